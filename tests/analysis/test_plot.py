"""A metric of a run as a figure that notebooks show."""

import xml.etree.ElementTree

import pytest

from job_jax.flags import UsageError
from rlvr_jax.analysis import read_run
from rlvr_jax.report.charts import smooth
from tests.support.run_workdirs import make_workdir


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read_run(make_workdir(tmp_path_factory.mktemp("run"), steps=48))


def test_the_strong_line_is_smoothed_and_the_faint_one_is_what_was_logged(run):
    steps, values = run.series("train", "reward/mean")
    (axes,) = run.plot("reward/mean").axes
    raw, strong = axes.lines
    assert raw.get_alpha() < 0.5
    assert strong.get_alpha() is None
    assert raw.get_xdata().tolist() == strong.get_xdata().tolist() == [*steps]
    assert raw.get_ydata().tolist() == [*values]
    assert strong.get_ydata() == pytest.approx(smooth(values))
    assert strong.get_ydata().std() < raw.get_ydata().std()
    assert (axes.get_title("left"), axes.get_xlabel()) == ("reward/mean", "step")


def test_another_stage_has_its_own_steps(run):
    (axes,) = run.plot("loss/total", stage="sft").axes
    assert axes.lines[0].get_xdata().tolist() == [*range(24)]


def test_a_notebook_shows_the_figure_and_a_file_keeps_its_colors(run, tmp_path):
    figure = run.plot("reward/mean")
    shown = figure._repr_svg_()
    assert xml.etree.ElementTree.fromstring(shown).tag.endswith("svg")
    figure.savefig(tmp_path / "reward.svg")
    for text in (shown, (tmp_path / "reward.svg").read_text()):
        assert "#ffffff" in text
        assert "#1f2328" in text
        assert not {"#000001", "#000002"} & {*text.split('"'), *text.split()}


def test_a_metric_of_one_step_is_a_dot(tmp_path):
    short = read_run(make_workdir(tmp_path, steps=1))
    assert {line.get_marker() for line in short.plot("reward/mean").axes[0].lines} >= {
        "o"
    }
    two = read_run(make_workdir(tmp_path / "two", steps=2))
    assert "o" not in {
        line.get_marker() for line in two.plot("reward/mean").axes[0].lines
    }


@pytest.mark.parametrize(
    ("metric", "stage", "says"),
    [
        (
            "reward/men",
            "train",
            "stage 'train' logged no metric 'reward/men'; did you mean 'reward/mean'?",
        ),
        ("reward/mean", "sft", "stage 'sft' logged no metric 'reward/mean'"),
        ("reward/mean", "trian", "no steps of stage 'trian'; did you mean 'train'?"),
    ],
)
def test_an_unknown_metric_or_stage_is_named_with_the_nearest(run, metric, stage, says):
    with pytest.raises(UsageError, match=says.replace("?", r"\?")):
        run.plot(metric, stage=stage)


def test_a_run_without_steps_says_so(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"has no steps of stage 'train'$"):
        read_run(tmp_path).plot("reward/mean")
