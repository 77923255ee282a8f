"""The report is made from a workdir's files alone, escapes text, and is complete."""

import dataclasses
import gzip
import html.parser
import json
import math
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from job_jax.metrics import MetricsWriter
from rlvr_jax.analysis import NotAWorkdirError, read_run, write_report
from rlvr_jax.analysis.__main__ import main
from rlvr_jax.report import charts
from rlvr_jax.report.charts import (
    AMBER,
    BLUE,
    Forest,
    ForestRow,
    Line,
    Panel,
    arm_colors,
    draw_panel,
    level_colors,
    smooth,
)
from rlvr_jax.report.page import headline, lead_paragraph, render_page
from rlvr_jax.report.parts.bands import behavior_by_band, pass_by_band
from rlvr_jax.report.parts.episodes import episodes
from rlvr_jax.report.parts.held_out import accuracy, pass_curves, strategies
from rlvr_jax.report.parts.learning import (
    answer_formats,
    by_level,
    cost,
    doctor_findings,
    learning,
)
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.samples import wrong_samples
from rlvr_jax.report.terms import TermLinker
from rlvr_jax.run.workdir import rollouts_file
from tests.support.run_workdirs import config, make_workdir, rollout


class Page(html.parser.HTMLParser):
    """Collects headings, ids, and everything that a browser would fetch or run."""

    VOID = frozenset(("meta", "br", "path", "rect", "use"))

    def __init__(self, text):
        super().__init__()
        self.headings, self.ids, self.requests, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids += [values["id"]] if "id" in values else []
        for name in ("src", "href", "data", "action"):
            if not values.get(name, "#").startswith("#"):
                self.requests.append((tag, values[name]))
        if tag in ("script", "link", "iframe", "img", "object", "embed", "base"):
            self.requests.append((tag, ""))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    workdir = make_workdir(tmp_path_factory.mktemp("whole"))
    return workdir, write_report(workdir).read_text(encoding="utf-8")


def test_page_has_every_part_of_a_whole_run(whole):
    assert Page(whole[1]).headings == [
        "Pass@1 rose from 40\u00a0% to 68\u00a0%",
        "What the run doctor found",
        "Which strategies the policy chooses, and how often they work",
        "Accuracy by level and type of problem",
        "Reward, and groups with a signal, step by step",
        "Which difficulties taught the policy",
        "Pass@k on held-out problems",
        "Scores before and after RL, by difficulty",
        "How hard the problems were, step by step",
        "Why groups teach nothing, by difficulty",
        "Signs of degenerate behavior, by difficulty",
        "Early signs of collapse: length, entropy, numerics",
        "The loss of supervised fine-tuning",
        "Time and cost of the run",
        "Why samples are wrong",
        "What the policy writes",
        "Terms used above",
        "Every setting of the run",
    ]


def test_page_needs_nothing_from_outside(whole):
    page = Page(whole[1])
    assert page.requests == []
    assert page.open == []
    assert "http:" not in whole[1]
    assert "https:" not in whole[1]
    assert not re.search(r"url\((?!#)|@import", whole[1])


def test_ids_are_unique_and_references_resolve(whole):
    ids = Page(whole[1]).ids
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:url\(|href=")#([^)"]+)', whole[1])
    assert set(used) <= set(ids)


def test_model_text_is_shown_and_never_run(whole):
    assert "<script" not in whole[1]
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; ?" in whole[1]


def test_samples_are_of_the_first_and_last_step_two_of_each_verdict(whole):
    text = whole[1].split("<h2>What the policy writes</h2>")[1]
    assert text.count("early words") == 5  # 2 correct, 2 incorrect, 1 unverified
    assert text.count("alert(") == 5
    assert "middle words" not in text


def test_wrong_samples_of_each_band_are_shown_with_gold_and_answer(whole):
    """From the last saved step; problems 1, 2 and 5 are wrong, in medium and hard."""
    section = whole[1].split("<h2>Why samples are wrong</h2>")[1]
    section = html.unescape(section.split("</details>")[0])
    assert re.findall(r"<h3>(.*)</h3>", section) == [
        "Band medium: 1 completion: 1 incorrect",
        "Band hard: 2 completions: 1 incorrect, 1 unverified",
    ]
    for told in (
        "the answer is not the gold",
        "gold: e3",
        "read: e4",
        "read: e5",
        "read: (none was read)",
        "reward 0, advantage -0.5",
        "problem: p5, sample 1, band hard, level 6, inversion",
    ):
        assert told in section
    assert "read: e3" not in section


def wrong_row(index, reason, band="hard", **more):
    row = rollout(110, 1) | {"id": f"q{index}", "reason": reason, "band": band}
    return row | more


def test_wrong_samples_are_few_and_of_many_reasons(tmp_path):
    """Seven with one reason, three of one problem, still leave room for another."""
    workdir = make_workdir(tmp_path / "run", steps=2)
    rows = [wrong_row(i, "too late") for i in (0, 0, 0, 1, 2, 3, 4)]
    rows += [wrong_row(6, "no answer", gold="<i>4</i>"), wrong_row(7, "", None)]
    del rows[-1]["band"]
    with gzip.open(rollouts_file(workdir, "train", 111), "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    first, last = wrong_samples(read_run(workdir))
    assert [dict(s.facts)["problem"].split(",")[0] for s in first.samples] == [
        "q0",
        "q6",
        "q1",
    ]
    assert [sample.reason for sample in first.samples][:2] == ["too late", "no answer"]
    assert last.title == "Without a band: 1 completion: 1 incorrect"
    page = render_page(read_run(workdir))
    assert "gold: &lt;i&gt;4&lt;/i&gt;" in page
    assert "<i>4" not in page


def test_same_workdir_gives_the_same_page(whole):
    workdir, text = whole
    assert write_report(workdir).read_text(encoding="utf-8") == text
    assert sorted(p.name for p in (workdir / "report").iterdir()) == ["index.html"]


def test_lead_says_that_rfgo_was_off(whole):
    run = read_run(whole[0])
    for refusal, is_told in (("none of 16 latents", True), ("", False)):
        summary = run.summary | {"algorithm": "GRPO + RFGO"}
        summary |= {"probe": {"refusal": refusal}}
        lead = lead_paragraph(dataclasses.replace(run, summary=summary))
        assert ("by GRPO + RFGO (no reasoning feature" in lead) == is_told


def test_lead_says_what_was_done(whole):
    assert (
        "A 612k-parameter policy, 120 steps of reinforcement learning with verifiable "
        "rewards on arithmetic in GF(7), by DAPO: 16 prompts per step, 8 completions "
        "each. Seed 0, 2 x cpu, 4m52s in all. Measured on 120 held-out problems: "
        in whole[1]
    )


@pytest.mark.parametrize(
    ("evals", "words"), [((0.7, 0.3), "fell from"), ((0.5, 0.5), "within the noise")]
)
def test_headline_claims_no_more_than_the_intervals_allow(tmp_path, evals, words):
    run = read_run(make_workdir(tmp_path / "run", steps=2, evals=evals))
    assert words in headline(run)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (0.0, 0.0, "No held-out answer was correct, before RL or after"),
        (1.0, 1.0, "Every held-out answer was correct, before RL and after"),
        (0.004, 0.0, "Pass@1 stayed at 0 %"),
        (0.43, 0.434, "Pass@1 stayed at 43 %"),
        (0.43, 0.44, "Pass@1 went from 43 % to 44 %, within the noise"),
    ],
)
def test_unmoved_metrics_are_not_reported_as_moved(tmp_path, before, after, words):
    run = read_run(make_workdir(tmp_path / "run", steps=2))
    scores = run.summary["eval"]
    for when, value in (("before", before), ("after", after)):
        scores[when]["pass@k"]["1"]["mean"] = value
    scores["gain"]["pass@k"]["1"] |= {"low": -0.1, "high": 0.1}
    assert headline(run).replace("\u00a0", " ") == words


def test_one_problem_has_no_interval_and_no_verdict(tmp_path):
    run = read_run(make_workdir(tmp_path / "run", steps=2, num_problems=1))
    page = render_page(run).replace("\u00a0", " ")
    assert re.search(r"Pass@1 went from \d+ % to \d+ % on one problem", page)
    lead = lead_paragraph(run).replace("\u00a0", " ")
    assert "Measured on 1 held-out problem: pass@1 " in lead
    assert "% (no interval) after, " in lead
    assert "one problem: no interval" in page  # the tiles
    assert "within the noise" not in page
    assert "nan" not in page


def test_the_method_of_intervals_is_explained_once(whole):
    """The first mention of 95 % links to it."""
    page = whole[1].replace("\u00a0", " ")
    lead = re.search(r'<p class="lead">(.*?)</p>', page, re.DOTALL)[1]
    assert '(<a href="#term-95-interval">95 % intervals</a>)' in lead
    assert re.search(r"\+2\d points \(\+\d+ to \+\d+\) paired by problem", lead)
    assert len(re.findall(r"\d+\u2013\d+ %, 95 % over problems", page)) == 2  # tiles
    assert page.count("a bootstrap over problems") == 1


def test_the_result_and_the_alarms_come_before_what_is_folded(whole):
    opened, _, folded = whole[1].partition("<details")
    assert Page(opened).headings == [
        "Pass@1 rose from 40\u00a0% to 68\u00a0%",
        "What the run doctor found",
        "Which strategies the policy chooses, and how often they work",
        "Accuracy by level and type of problem",
    ]
    assert ">pass@8</dt>" in opened
    assert "<section>" not in folded


def test_terms_are_linked_once_and_only_those_met_are_explained(whole):
    """A term may be within another's mention, in code, or first in a table's head."""
    linker = TermLinker()
    assert linker("Bands & pass@8, by pass@1") == (
        '<a href="#term-band">Bands</a> &amp; <a href="#term-pass-k">pass@8</a>, by '
        "pass@1"
    )
    assert linker("<b>a band's entropy</b>") == (
        '&lt;b&gt;a band&#39;s <a href="#term-entropy">entropy</a>&lt;/b&gt;'
    )
    assert [term.name for term in linker.met] == ["band", "pass@k", "entropy"]
    entries = re.findall(r'<dt id="(term-[^"]+)"', whole[1])
    links = re.findall(r'href="#(term-[^"]+)"', whole[1])
    assert sorted(entries) == sorted(links)
    assert "term-fve" not in entries  # this run has no autoencoder


def test_the_report_says_where_the_curves_cross(whole):
    """RL leads at every k here, with 8 samples a problem."""
    text = pass_curves(read_run(whole[0])).text
    assert "pass@k: RL leads the policy before it at every k up to 8" in text
    assert " to beyond 8, bootstrap over problems" in text


def test_a_run_that_did_not_tell_its_gain_gets_no_headline_of_it(tmp_path):
    workdir = make_workdir(tmp_path / "run", steps=2)
    summary = json.loads((workdir / "summary.json").read_text())
    del summary["eval"]["gain"]
    (workdir / "summary.json").write_text(json.dumps(summary))
    run = read_run(workdir)
    assert headline(run) == "2 of 120 training steps done"
    assert "leads" not in pass_curves(run).text


def test_unfinished_run_gets_a_report_of_what_there_is(tmp_path):
    workdir = make_workdir(tmp_path / "run", steps=30, evals=None)
    headings = Page(write_report(workdir).read_text()).headings
    assert headings[0] == "30 of 120 training steps done"
    assert "Which difficulties taught the policy" in headings
    assert "Pass@k on held-out problems" not in headings
    assert "Time and cost of the run" not in headings


def test_run_that_has_only_begun_gets_a_report(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"config": config(120), "device": "cpu"})
    )
    page = Page(write_report(tmp_path).read_text())
    assert page.headings == ["0 of 120 training steps done", "Every setting of the run"]


def test_accuracy_by_level_shows_the_names_of_levels(whole, monkeypatch):
    run = read_run(whole[0])
    monkeypatch.setattr(RunArtifacts, "level_names", {2: "easy", 5: "so-so"})
    texts = "".join(accuracy(run).figures)
    assert ">easy<" in texts
    assert ">so-so<" in texts
    assert ">3<" in texts


def test_run_without_strategies_or_levels_leaves_them_out(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with MetricsWriter(tmp_path) as writer:
        for step in range(9):
            writer.write("train", step, {"reward/mean": 0.5})
    run = read_run(tmp_path)
    assert by_level(run) is None
    assert pass_by_band(run) is None
    assert behavior_by_band(run) is None
    assert strategies(run) is None
    assert answer_formats(run) is None
    assert episodes(run) is None
    assert pass_curves(run) is None
    assert "Groups" not in learning(run).text


@pytest.mark.parametrize("boxed", [0.25, 1.0])
def test_formats_are_told_where_there_are_two(tmp_path, boxed):
    """Boxes take over from step 5; if all are boxed, this part is left out."""
    (tmp_path / "config.json").write_text("{}")
    with MetricsWriter(tmp_path) as writer:
        for step in range(10):
            share = boxed if step < 5 else 1.0
            shares = {"format/boxed": share, "format/tagged": 1 - share}
            entropy = 0.5623 if share < 1 else 0.0
            writer.write("train", step, {"format/entropy": entropy, **shares})
    section = answer_formats(read_run(tmp_path))
    if boxed == 1:
        assert section is None
        return
    assert section.legend.keys() == {"in a box", "in a tag"}
    assert "was 0.56 nats over the first tenth" in section.text
    assert "and 0.00 over the last" in section.text
    assert len(section.figures) == 2


def test_episodes_are_told_where_there_are_any(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with MetricsWriter(tmp_path) as writer:
        for step in range(10):
            told = {"turns": 2 + step, "tool_calls": 1 + step, "failures": 0.25}
            row = {f"environment/{name}": value for name, value in told.items()}
            writer.write("train", step, row)
    section = episodes(read_run(tmp_path))
    assert "2.0 turns and 1.0 tool calls" in section.text
    assert "11.0 and 10.0 over the last" in section.text
    assert "In 25 % of all episodes" in section.text.replace("\u00a0", " ")
    assert section.legend.keys() == {"turns", "tool calls"}
    assert len(section.figures) == 1


def test_doctor_repeats_what_the_run_was_told(tmp_path):
    sick = doctor_findings(
        read_run(make_workdir(tmp_path / "a", evals=None, sick_from=40))
    )
    assert [heading for heading, _, _ in sick.findings] == ["Step 42: length_collapse"]
    assert sick.text == ""
    healthy = doctor_findings(read_run(make_workdir(tmp_path / "b", evals=None)))
    assert healthy.findings == []
    assert healthy.text == "Nothing to report in 120 steps."


@pytest.mark.parametrize(("steps", "is_short"), [(19, True), (20, False)])
def test_doctor_of_a_short_run_says_that_it_cannot_say(tmp_path, steps, is_short):
    found = doctor_findings(read_run(make_workdir(tmp_path, steps=steps, evals=None)))
    assert ("Nothing to report" in found.text) == (not is_short)
    assert found.text.startswith("Most alarms need ") == is_short
    assert ("groups had both correct and incorrect" in found.text) == is_short


def test_a_run_of_no_rl_has_a_bill_without_a_gap(tmp_path):
    workdir = make_workdir(tmp_path / "run", steps=2)
    summary = json.loads((workdir / "summary.json").read_text())
    summary["logprob_mismatch"] = {"mean": None, "max": None}
    (workdir / "summary.json").write_text(json.dumps(summary))
    found = cost(read_run(workdir))
    assert not any("gap" in name for name, _ in found.table.rows)


def test_null_values_are_left_out_of_a_series(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with MetricsWriter(tmp_path) as writer:
        for step, value in enumerate((1.0, math.nan, 3.0)):
            writer.write("train", step, {"a/b": value}, nullable=("a/b",))
    steps, values = read_run(tmp_path).series("train", "a/b")
    assert (list(steps), list(values)) == ([0, 2], [1.0, 3.0])


def test_levels_sort_as_numbers(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with MetricsWriter(tmp_path) as writer:
        writer.write("train", 0, {f"level_{n}/pass": 0.5 for n in (10, 2, 1)})
    found = read_run(tmp_path).match_metrics("train", r"level_(\d+)/pass")
    assert found == ["1", "2", "10"]


def test_command_prints_where_the_report_is(tmp_path, capsys):
    workdir = make_workdir(tmp_path / "run", steps=2, evals=None)
    assert main(["report", str(workdir)]) == 0
    assert capsys.readouterr().out == f"{workdir}/report/index.html\n"


@pytest.mark.parametrize("exists", [True, False])
def test_command_refuses_a_directory_without_a_run(tmp_path, capsys, exists):
    path = tmp_path if exists else tmp_path / "nowhere"
    assert main(["report", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path} ")
    assert error.count("\n") == 1
    with pytest.raises(NotAWorkdirError, match=re.escape(str(path))):
        read_run(path)


def test_command_names_the_broken_line(tmp_path, capsys):
    workdir = make_workdir(tmp_path / "run", steps=2, evals=None)
    (workdir / "metrics.jsonl").write_text("{}}\n")
    assert main(["report", str(workdir)]) == 1
    assert "metrics.jsonl:1: not a JSON object" in capsys.readouterr().err


def test_smoothing_keeps_constants_and_means_neighbors():
    assert smooth([0.5] * 100).tolist() == [0.5] * 100
    assert smooth([1.0, 5.0]).tolist() == [1.0, 5.0]
    steep = smooth(range(48))  # windows of 5, cut at the ends
    assert (steep[0], steep[20], steep[47]) == (1.0, 20.0, 46.0)
    values = np.random.default_rng(0).normal(size=240)
    means = [np.mean(values[max(0, i - 10) : i + 11]) for i in range(240)]
    np.testing.assert_allclose(smooth(values), means, rtol=1e-12, atol=1e-12)
    assert smooth([3.0, *[math.nan] * 48, 5.0])[[0, 25, 49]].tolist()[::2] == [3.0, 5.0]


def test_a_long_curve_is_drawn_by_some_of_its_points_and_all_of_its_spikes():
    y = [0.0] * 50_000
    y[31_234] = 7.0
    line = Line(label="", color=BLUE, x=range(50_000), y=y, show_raw=True)
    axes = Figure().add_subplot()
    charts._draw_lines(axes, Panel(title="t", lines=[line]))
    raw, curve = axes.lines
    assert len(raw.get_xdata()) <= 1000
    assert len(curve.get_xdata()) <= 1000
    assert (raw.get_xdata()[raw.get_ydata().argmax()], raw.get_ydata().max()) == (
        31_234,
        7.0,
    )
    assert curve.get_xdata()[[0, -1]].tolist() == [0, 49_999]


def test_a_curve_with_an_interval_is_drawn_as_it_is():
    y = [0.0, 1.0] * 24
    band = [v - 1 for v in y], [v + 1 for v in y]
    line = Line(label="", color=BLUE, x=range(48), y=y, interval=band)
    axes = Figure().add_subplot()
    charts._draw_lines(axes, Panel(title="t", lines=[line]))
    assert axes.lines[0].get_ydata().tolist() == y


def test_a_forest_has_a_row_for_each_number_the_first_above():
    rows = [
        ForestRow(
            label="a", color=BLUE, value=-0.2, low=-0.3, high=-0.1, points=[-0.25]
        ),
        ForestRow(label="b", color=AMBER, value=0.1, low=math.nan, high=math.nan),
    ]
    axes = Figure().add_subplot()
    charts._draw_axes(axes, Forest(title="less c", rows=rows, percent=True))
    drawn = [
        (
            [*line.get_xdata()],
            line.get_ydata()[0],
            line.get_color(),
            line.get_marker(),
        )
        for line in axes.lines
        if len(line.get_xdata())
    ]
    assert ([-0.2], 1, BLUE, "D") in drawn
    assert ([-0.25], 1, BLUE, "o") in drawn
    assert ([-0.3, -0.1], 1, BLUE, "None") in drawn
    assert ([0.1], 0, AMBER, "D") in drawn
    assert [text.get_text() for text in axes.texts] == ["b", "a"]
    low, high = axes.get_xlim()
    assert (low < -0.3, high > 0.1) == (True, True)
    svg = draw_panel("f", Forest(title="less c", rows=rows, percent=True))
    assert ">points<" in svg
    assert ">a<" in svg


@pytest.mark.parametrize("side", [-1, 1])
def test_no_label_of_a_forest_lies_on_its_zero_line(side):
    """Labels are on the longer side of the axis."""
    row = ForestRow(
        label="a long name", color=BLUE, value=0.2 * side, low=-0.05, high=0.05
    )
    axes = Figure().add_subplot()
    charts._draw_axes(axes, Forest(title="less c", rows=[row], percent=True))
    (label,) = axes.texts
    drawn = label.get_window_extent()
    zero, _ = axes.transData.transform((0, 0))
    assert (drawn.x0 if side > 0 else -drawn.x1) > zero * side
    inside = axes.get_window_extent()
    assert inside.x0 < drawn.x0 < drawn.x1 < inside.x1


def test_levels_run_from_cool_to_warm():
    assert level_colors([3]) == {3: BLUE}
    colors = level_colors([1, 2, 3, 4, 5, 6, 7])
    assert (colors[1], colors[7]) == (BLUE, AMBER)
    assert len(set(colors.values())) == 7


@pytest.mark.parametrize(("number", "height"), [(1, 302), (7, 302), (8, 322)])
def test_a_legend_stays_on_its_sheet(number, height):
    lines = [
        Line(label=f"arm {n}", color=BLUE, x=[0, 1], y=[0, n]) for n in range(number)
    ]
    svg = charts.draw_sheet("s", "arms", [Panel(title="a", lines=lines)])
    assert f'viewBox="0 0 1290 {height}"' in svg
    places = re.findall(r'<text x="(\d+)" y="(\d+)" font-size="12">arm', svg)
    assert len({*places}) == len(places) == number
    assert max(int(x) for x, _ in places) + 160 <= 1290
    png = charts.draw_sheet_png("arms", [Panel(title="a", lines=lines)])
    size = [int.from_bytes(png[at : at + 4], "big") for at in (16, 20)]
    assert size == [2580, 2 * height + 16]  # 200 pixels an inch


@pytest.mark.parametrize("number", [1, 6, 7, 12, 13, 24])
def test_no_two_arms_have_one_color(number):
    colors = arm_colors([str(n) for n in range(number)])
    assert len({*colors.values()}) == number == len(colors)


def test_labels_are_plain_text_in_charts():
    panel = Panel(
        title='$x^2$ <b> "q"', lines=[Line(label="", color=BLUE, x=[0, 1], y=[0, 1])]
    )
    svg = draw_panel("a", panel)
    assert "$x^2$ &lt;b&gt;" in svg
    assert "<b>" not in svg
