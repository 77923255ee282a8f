"""The parts of the page: their order, what is folded, and how a new one is found."""

import pytest

from rlvr_jax.report import parts
from rlvr_jax.report.page import load_parts
from rlvr_jax.report.sections import Part, Section


def test_the_result_comes_first_and_the_cost_last():
    names = [part.make.__name__ for part in load_parts()]
    assert names[:4] == ["gain_by_band", "doctor_findings", "strategies", "accuracy"]
    assert names[-2:] == ["sft", "cost"]
    assert names.index("token_section") < names.index("probe_sections")
    assert names.index("probe_sections") < names.index("crosscoder_sections")


def test_no_two_parts_claim_one_place():
    orders = [part.order for part in load_parts()]
    assert len(orders) == len(set(orders)) >= 24


@pytest.mark.parametrize("is_first", [True, False])
def test_a_part_is_folded_unless_it_comes_first(is_first):
    part = Part(lambda run: Section(title=run), order=1, is_first=is_first)
    (section,) = part.sections("a")
    assert (section.title, section.folded) == ("a", not is_first)


@pytest.mark.parametrize(
    ("made", "titles"),
    [(None, []), ([], []), ([Section(title="a"), Section(title="b")], ["a", "b"])],
)
def test_a_part_has_no_section_one_or_several(made, titles):
    part = Part(lambda run: made, order=1)
    assert [section.title for section in part.sections(None)] == titles


def test_a_new_file_adds_its_part_where_its_order_says(tmp_path, monkeypatch):
    (tmp_path / "weather.py").write_text(
        "from rlvr_jax.report.sections import Part, Section\n"
        "def weather(run):\n    return Section(title='Weather')\n"
        "PARTS = (Part(weather, order=25, is_first=True),)\n"
    )
    monkeypatch.setattr(parts, "__path__", [*parts.__path__, str(tmp_path)])
    names = [part.make.__name__ for part in load_parts()]
    assert names[:3] == ["gain_by_band", "doctor_findings", "weather"]
