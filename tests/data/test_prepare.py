"""The command `python -m rlvr_jax.data`: files, counts, refusals."""

import hashlib
import json
import pathlib
import re
import sys

import datasets
import pytest

from rlvr_jax.data import __main__ as command
from rlvr_jax.tasks import PREPARED_RECORD
from rlvr_jax.tasks.public.layout import DATA_SETS
from rlvr_jax.tasks.records.files import load_file_source
from tests.support.public_records import DAPO_BEFORE, DAPO_BEHIND

PAGE = (pathlib.Path(__file__).parents[2] / "docs/use/data_sets.md").read_text()
LONG = " ".join(f"w{i}" for i in range(30))
RECORDS = [
    {"question": "Two and two?", "answer": "2+2=4\n#### 4"},
    {"question": "two and TWO", "answer": "#### 4"},  # the first again
    {"question": "Two and two", "answer": "#### 5"},  # again, and another gold
    {"question": f"{LONG} so?", "answer": "#### 6"},  # overlaps
    {"question": "Nine?", "answer": "9"},  # no mark
    {"question": "", "answer": "#### 9"},
    {"question": "How many?", "answer": "#### many"},  # no number
    {"question": "Seven?", "answer": "It is 7.\n#### 7"},
]
QUIZ = [
    {"problem": f"Of {LONG}, how many?", "answer": "1", "unique_id": "far"},
    {"problem": "Eight?", "answer": "8", "unique_id": "near"},
]


def write(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(*args):
    return command.main([*map(str, args)])


def refusal(capsys, *args):
    assert run(*args) == 2
    return capsys.readouterr().err


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "in.jsonl", RECORDS)


def test_kept_dropped_and_counted_records(source, tmp_path, capsys):
    quiz, out = write(tmp_path / "quiz.jsonl", QUIZ), tmp_path / "out.jsonl"
    args = ("prepare", "gsm8k", f"--from={source}", f"--out={out}", f"--against={quiz}")
    assert run(*args) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["kept"], summary["removed"]) == (2, 6)
    assert summary["counts"]["gsm8k"] == {
        "kept": 2,
        'no "####" before the answer': 1,
        "no problem": 1,
        "the same problem stood before": 1,
        "the same problem stood before, with another answer": 1,
        "overlaps with an evaluation problem": 1,
        "the verifier numeric cannot grade by the answer": 1,
    }
    assert lines(out) == [
        {
            "id": "gsm8k/1",
            "problem": "Two and two?",
            "answer": "4",
            "solution": "2+2=4",
            "level": None,
            "difficulty": None,
            "type": "",
            "source": "gsm8k",
        },
        {
            "id": "gsm8k/8",
            "problem": "Seven?",
            "answer": "7",
            "solution": "It is 7.",
            "level": None,
            "difficulty": None,
            "type": "",
            "source": "gsm8k",
        },
    ]
    removed = {row["id"]: row for row in lines(tmp_path / "out.removed.jsonl")}
    assert removed["gsm8k/3"]["detail"] == "gsm8k/1: 4, not 5"
    assert removed["gsm8k/7"]["detail"].startswith("many: ")
    [overlap] = removed["gsm8k/4"]["overlaps"]
    assert (overlap["problem"], len(overlap["words"].split())) == ("far", 13)
    # A run can read it.
    problems = load_file_source(PREPARED_RECORD, out)
    assert [problems[i].gold for i in range(len(problems))] == ["4", "7"]


def test_the_card_has_the_numbers(source, tmp_path, capsys):
    write(tmp_path / "suite/math500.jsonl", QUIZ)
    out, suite = tmp_path / "out.jsonl", tmp_path / "suite"
    args = ("prepare", "gsm8k", f"--from={source}", f"--out={out}", "--nocheck_golds")
    assert run(*args, "--against=math500", f"--suite_dir={suite}") == 0
    card = (tmp_path / "out.card.md").read_text()
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (source, out)]
    for part in (
        "# GSM8K, prepared\n\n3 problems with answers",
        f"    python -m rlvr_jax.data prepare gsm8k --from={source}",
        f"(https://huggingface.co/datasets/openai/gsm8k) | {source} | MIT | numeric |",
        "| read | 8 |",
        "| no problem | 1 |",
        "| overlaps with an evaluation problem | 1 |",
        "| **kept** | 3 |",
        "| words of a problem | 1 to 3, median 2, 95 % up to 3 |",
        "| with a worked solution | 2 |",
        "| math500 | 2 | 1 | 1 |",
        "| math500: far | gsm8k/4 |",
        f"| {source} | `{digests[0]}` |",
        f"| **out.jsonl** | `{digests[1]}` |",
    ):
        assert part in card, part
    before = [p.read_bytes() for p in sorted(tmp_path.glob("out.*"))]
    assert run(*args, "--against=math500", f"--suite_dir={suite}") == 0
    assert [p.read_bytes() for p in sorted(tmp_path.glob("out.*"))] == before


def test_levels_types_and_ids_of_the_set_are_kept(tmp_path, capsys):
    rows = [
        {"problem": f"{n}?", "answer": str(n), "level": n % 2 + 1, "id": "a"}
        for n in range(5)
    ]
    source, out = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    args = ("prepare", "deepscaler", f"--from={source}", f"--out={out}")
    assert run(*args, "--nocheck_golds") == 0
    assert [row["id"] for row in lines(out)][:3] == [
        "deepscaler/a",
        "deepscaler/a#2",
        "deepscaler/a#3",
    ]
    card = (tmp_path / "out.card.md").read_text()
    assert "| problems by level | 1: 3, 2: 2 |" in card
    assert "Not checked, because `--against` was not given." in card


def test_phrases_are_no_overlap(tmp_path, capsys):
    rows = [{"question": f"{LONG} {n}?", "answer": f"#### {n}"} for n in range(12)]
    source, out = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    quiz = write(tmp_path / "quiz.jsonl", QUIZ)
    args = ("prepare", "gsm8k", f"--from={source}", f"--out={out}", "--nocheck_golds")
    assert run(*args, f"--against={quiz}") == 0
    assert len(lines(out)) == 12
    assert (
        "12 problems that share only such phrases"
        in (tmp_path / "out.card.md").read_text()
    )
    assert run(*args, f"--against={quiz}", "--max_shared=12") == 2
    error = capsys.readouterr().err
    assert (
        "no problem of gsm8k is left: 12 overlaps with an evaluation problem" in error
    )


@pytest.fixture
def hub(monkeypatch):
    """A fake hub with DAPO's set, each problem twice, and MATH by subject."""
    prompt = [{"content": f"{DAPO_BEFORE}Half of 68?{DAPO_BEHIND}", "role": "user"}]
    row = {"prompt": prompt, "reward_model": {"ground_truth": "34", "style": "rule"}}
    asked = []

    def load_dataset(path, subset, *, split, revision):
        asked.append((path, subset, split, revision))
        if path == "BytedTsinghua-SIA/DAPO-Math-17k":
            return datasets.Dataset.from_list([row, row, row])
        if path == "EleutherAI/hendrycks_math":
            text = {
                "problem": f"{subset}?",
                "solution": "\\boxed{1}",
                "level": "Level 1",
            }
            return datasets.Dataset.from_list([text | {"type": subset}])
        raise FileNotFoundError(f"no {path}")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def test_data_sets_of_the_hub(hub, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    args = (f"--out={out}", "--nocheck_golds")
    assert run("prepare", "dapo", "math", *args, "--revision=abc") == 0
    assert [row["problem"] for row in lines(out)][:2] == ["Half of 68?", "algebra?"]
    assert hub[0] == ("BytedTsinghua-SIA/DAPO-Math-17k", None, "train", "abc")
    assert {subset for _, subset, _, _ in hub[1:]} >= {"algebra", "precalculus"}
    card = (tmp_path / "out.card.md").read_text()
    assert "| | dapo | math |" in card
    assert "| read | 3 | 7 |" in card
    assert "| the same problem stood before | 2 | 0 |" in card
    [removed] = lines(tmp_path / "out.removed.jsonl")
    assert (removed["id"], removed["detail"], removed["times"]) == (
        *("dapo/2", "dapo/1", 2),
    )
    assert "| **kept** | 1 | 7 |" in card
    assert "of the hub, split train, revision abc" in card
    assert "| BytedTsinghua-SIA/DAPO-Math-17k:train, as JSON | `" in card


def test_a_copy_of_the_hub_and_one_that_is_not_there(hub, tmp_path, capsys):
    args = (f"--out={tmp_path / 'out.jsonl'}", "--hub=me/mine", "--subset=en")
    error = refusal(capsys, "prepare", "dapo", *args)
    assert "cannot load split 'train' of the data set 'me/mine'" in error
    assert "; check --hub, --subset and --split, and" in error
    assert hub == [("me/mine", "en", "train", None)]


def test_a_custom_layout(tmp_path, monkeypatch, capsys):
    [block] = re.findall(r"```python\n(# my_layouts.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "my_layouts.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_layouts", raising=False)
    record = {"q": {"text": "One?"}, "worked": "It is \\boxed{1}.", "grade": "easy 2"}
    source = write(tmp_path / "in.jsonl", [record])
    out = tmp_path / "out.jsonl"
    args = (f"--from={source}", f"--out={out}", "--nocheck_golds")
    assert run("prepare", "my_layouts:QUIZ", *args) == 0
    [row] = lines(out)
    assert (row["id"], row["answer"], row["level"]) == ("quiz/1", "1", 2)
    assert "my_layouts:QUIZ is not on the hub" in refusal(
        capsys, "prepare", "my_layouts:QUIZ", f"--out={out}"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["prepare"], "prepare needs the NAME of a data set"),
        (["perpare"], "no command 'perpare'; did you mean 'prepare'?"),
        (["prepare", "gsmk8"], "unknown data set 'gsmk8'; did you mean 'gsm8k'?"),
        (["prepare", "gsm8k", "gsm8k"], "repeats a name"),
        (["prepare", "gsm8k", "--out=a.json"], "--out='a.json' must end in .jsonl"),
        (["prepare", "gsm8k", "--out="], "--out=FILE.jsonl is missing"),
        (["prepare", "gsm8k", "--out=no/a.jsonl"], "directory 'no' does not exist"),
        (["prepare", "gsm8k", "math", "--from=x"], "take one data set"),
        (["prepare", "gsm8k", "--from=x", "--hub=y/z"], "do not go with --from"),
        (["prepare", "gsm8k", "--from=nowhere"], "there is no 'nowhere'"),
        (
            ["prepare", "gsm8k", "--from=out.jsonl", "--out=./out.jsonl"],
            "--out=out.jsonl would replace a file that is read",
        ),
        (
            ["prepare", "gsm8k", "--from=x", "--against=math=out.jsonl"],
            "--out=out.jsonl would replace a file that is read",
        ),
        (["prepare", "gsm8k", "--suite_dir=x"], "--suite_dir needs --against"),
        (["prepare", "gsm8k", "--ngram=1"], "ngram"),
        (["prepare", "math500", "--from={in}"], "not the layout of MATH-500: expected"),
        (
            ["prepare", "gsm8k", "--from={in}", "--against=math5"],
            "need --suite_dir=DIR",
        ),
        (
            ["prepare", "gsm8k", "--from={in}", "--against=mth5", "--suite_dir=."],
            "unknown suite or evaluation set 'mth5'; did you mean 'math5'?",
        ),
        (
            ["prepare", "gsm8k", "--from={in}", "--against=aime24", "--suite_dir=."],
            "AIME 2024 is missing: put it at aime24.jsonl (.json, .parquet), or run hf "
            "download HuggingFaceH4/aime_2024 --repo-type dataset --local-dir aime24",
        ),
        (
            ["prepare", "gsm8k", "--from={in}", "--against={other}"],
            "no layout can read",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    source, tmp_path, capsys, monkeypatch, args, message
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "other.jsonl", [{"text": "?"}])
    places = {"in": source, "other": tmp_path / "other.jsonl"}
    args = [arg.format(**places) for arg in args]
    if not any(arg.startswith("--out") for arg in args):
        args.append("--out=out.jsonl")
    error = refusal(capsys, *args)
    assert message in error
    assert error.startswith("error: ")
    assert "Traceback" not in error
    assert not (tmp_path / "out.jsonl").exists()


def test_the_list_names_every_set_and_its_fields(capsys):
    assert run("list") == 0
    shown = capsys.readouterr().out
    verl = "prompt.-1.content, reward_model.ground_truth"
    for part in ("big-math", verl, "(hashes)"):
        assert part in shown


def test_the_page_names_every_set_of_the_list():
    assert [name for name in DATA_SETS.names if f"| `{name}` |" not in PAGE] == []
