"""Overlap of train and evaluation, repeated problems, and batches beyond them."""

import dataclasses
import pathlib
import sys
import tempfile
import types

import pytest

from job_jax.command import load_config
from job_jax.config_io import override
from job_jax.schema import ConfigError
from rlvr_jax.config import Config, TokenizerConfig
from rlvr_jax.run.checks import check_new_run
from rlvr_jax.run.data_warnings import data_warnings
from rlvr_jax.run.setup import open_setup
from rlvr_jax.run.start_warnings import start_warnings
from rlvr_jax.tasks import FilesTask, RecordConfig
from rlvr_jax.types import Problem

_ROOT = pathlib.Path(__file__).parents[2]


def problem(name, prompt=None, gold="4", **more):
    return Problem(
        id=name,
        prompt=prompt or f"question {name}",
        gold=gold,
        verifier="math",
        source="s",
        **more,
    )


class Generated:
    """A source of `size` problems that counts which ones are read, up to 200,000."""

    def __init__(self, size, prefix):
        self.size, self.prefix, self.read = size, prefix, set()

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        self.read.add(index)
        assert len(self.read) <= 200_000
        return problem(f"{self.prefix}{index}", f"question {index % 500}")


@dataclasses.dataclass
class Opened:
    """The part of a `RunSetup` that is read here."""

    train: object
    held_out: object
    config: Config

    @property
    def sources(self):
        return {"train": self.train, "eval": self.held_out}

    def problems(self, stage, count):
        source = self.sources[stage]
        return [source[i] for i in range(min(count, len(source)))]


def warn(train, held_out=(), **changes):
    settings = {"train__batch_size": "1"} | changes
    overrides = {key.replace("__", "."): text for key, text in settings.items()}
    return data_warnings(Opened(train, held_out, override(Config(), overrides)))


def test_distinct_problems_are_told_nothing():
    assert warn([problem("a"), problem("b")], [problem("c")]) == []
    # An id may name another problem on the other side, as the number of a row does.
    assert warn([problem("1", "two?")], [problem("1", "three?")]) == []


def test_an_evaluation_problem_among_the_train_problems_is_counted_and_named():
    train = [problem("a"), problem("b", "What is\n 2+2?"), problem("c")]
    held_out = [
        problem("x"),
        problem("y", " What is 2+2?  "),
        problem("z", "question c"),
    ]
    assert warn(train, held_out) == [
        "evaluation problems that are also among 3 train problems: 2 of 3, such as "
        "'What is 2+2?' (evaluation y, train b); held-out results then count memory as "
        "skill; remove them from one side"
    ]


def test_problems_that_the_run_does_not_use_do_not_overlap():
    train = [problem(name) for name in "abc"]
    held_out = [problem("x"), problem("c")]
    assert len(warn(train, held_out)) == 1
    assert warn(train, held_out, eval__num_problems="1") == []
    assert warn(train, held_out, difficulty__pool_size="2") == []
    assert warn(train, held_out, train__steps="0") == []


def test_copies_with_equal_and_with_other_golds_are_told_apart():
    train = [
        problem("a"),
        problem("b", "question  a"),
        problem("c", "question a", gold=" 4 "),
        problem("d", "2+2?", gold="4"),
        problem("e", "2+2?", gold="5"),
        problem("f", "half?", gold="1/2", other_golds=("0.5",)),
        problem("g", "half?", gold="0.5"),
        problem("h"),
    ]
    assert warn(train) == [
        "questions with different golds among 8 train problems: 1, such as '2+2?' with "
        "'4' (d) and '5' (e); the same answer is rewarded in one and not in the other; "
        "correct or remove one of them",
        "train problems that repeat another's question: 3 of 8, such as 'question a' "
        "(a and b); this question counts several times; remove the copies",
    ]


def test_a_long_question_is_shown_on_one_line_without_its_middle():
    text = "start\n" + "x" * 500 + " end"
    (line,) = warn([problem("a", text), problem("b", text)])
    assert "\n" not in line
    assert "'start x" in line
    assert "x end'" in line
    assert len(line) < 260


@pytest.mark.parametrize(("size", "is_read_whole"), [(100_000, True), (100_001, False)])
def test_a_generated_source_is_not_read_whole(size, is_read_whole):
    train, held_out = Generated(size, "t"), Generated(2**31 - 1, "e")
    lines = warn(train, held_out, eval__num_problems="7")
    among = "100,000" if is_read_whole else "the first 512"
    assert lines[0].startswith(
        f"evaluation problems that are also among {among} train problems: 7 of 7"
    )
    # It repeats problems by chance, which is nothing to repair.
    assert [line.split(":")[0] for line in lines[1:]] == (
        ["train problems that repeat another's question"] if is_read_whole else []
    )
    assert len(train.read) == (size if is_read_whole else 512)
    assert held_out.read == set(range(7))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train.batch_size": "4"}, None),
        (
            {"train.batch_size": "5"},
            "train.batch_size=5 is more than the 4 train problems, so each step would "
            "repeat some; lower it to at most 4, or give more problems",
        ),
        ({"train.batch_size": "5", "train.steps": "0"}, None),
        ({"train.batch_size": "5", "curriculum.name": "one_sample"}, None),
        ({"train.batch_size": "4", "difficulty.pool_size": "4"}, None),
        (
            {"train.batch_size": "4", "difficulty.pool_size": "3"},
            "train.batch_size=4 is more than the 3 problems of difficulty.pool_size=3, "
            "so each step would repeat some; lower it to at most 3, or give more "
            "problems",
        ),
        ({"judge.url": "http://x/v1", "judge.model": "m"}, "judge.url='http://x/v1'"),
        ({"judge.model": "m"}, "judge.model='m', but nothing uses a judge; name it"),
        (
            {
                "judge.url": "http://x/v1",
                "judge.model": "m",
                "train.reward.names": "judge",
            },
            None,
        ),
    ],
)
def test_settings_with_which_no_run_should_start(changes, message):
    config = override(Config(), {"train.batch_size": "1"} | changes)
    sources = {"train": [problem(name) for name in "abcd"]}
    if message is None:
        check_new_run(config, sources, ["math"])
        return
    with pytest.raises(ConfigError) as refused:
        check_new_run(config, sources, ["math"])
    assert str(refused.value).startswith(message)
    check_new_run(override(Config(), {"judge.model": "m"}), {}, ["judge"])


def test_the_problems_that_are_left_are_counted():
    config = override(Config(), {"train.batch_size": "1000"})
    check_new_run(config, {"train": Generated(2**31 - 1, "t")}, [])
    with pytest.raises(ConfigError, match="more than the 999 train problems"):
        check_new_run(config, {"train": Generated(999, "t")}, [])


def test_an_evaluation_of_a_billion_problems_is_not_read_and_is_told():
    train, held_out = [problem("a")], Generated(2**31 - 1, "e")
    assert warn(train, held_out, eval__num_problems="100000") == []
    held_out.read.clear()
    (line,) = warn(train, held_out, eval__num_problems="1000000000")
    assert line.startswith(
        "eval.num_problems=1000000000 samples 1,000,000,000 problems before RL and "
    )
    assert line.endswith("try --config.eval.num_problems=1000")
    assert len(held_out.read) == 100_000
    # A file with fewer problems is read whole, whatever the number.
    assert warn(train, [problem("b")], eval__num_problems="1000000000") == []


MINE = {"train__reward__names": "mine:f"}


@pytest.fixture
def own_reward(monkeypatch):
    module = types.ModuleType("mine")
    module.f = lambda problem, completion: 1.0
    monkeypatch.setitem(sys.modules, "mine", module)


def with_fields(count, **odd):
    """Returns problems with fields lo and tag, the last of which differ."""
    usual = [problem(str(i), fields={"lo": i, "tag": "x"}) for i in range(count)]
    return [*usual, problem("odd", fields=odd)]


@pytest.mark.usefixtures("own_reward")
@pytest.mark.parametrize(
    ("odd", "found"),
    [
        ({"lo": 1.5, "tag": "y"}, None),
        ({"lo": "3", "tag": "y"}, "'lo' is a number in 9 of 10 train problems, but te"),
        ({"tag": "y"}, "'lo' is a number in 9 of 10 train problems, but missing in od"),
        ({"lo": True, "tag": "y"}, "'lo' is a number in 9 of 10 train problems, but t"),
        ({"lo": 3, "tag": None}, "'tag' is a text in 9 of 10 train problems, but null"),
    ],
)
def test_a_field_that_few_records_lack_or_write_otherwise(odd, found):
    lines = warn(with_fields(9, **odd), **MINE)
    assert [line[: len(f"field {found}")] for line in lines] == (
        [f"field {found}"] if found else []
    )


@pytest.mark.usefixtures("own_reward")
def test_fields_are_compared_only_for_own_rewards_and_if_few_differ():
    odd = with_fields(9, tag="y")
    assert len(warn(odd, **MINE)) == 1
    assert warn(odd) == []  # no function reads them
    assert warn(with_fields(8, tag="y"), **MINE) == []  # 1 of 9 is over a tenth


@pytest.mark.parametrize(
    ("template", "found"),
    [("{prompt}", 0), ("{prompt} {lo}", 1), ("{prompt} {gold}", 0)],
)
def test_a_template_that_names_a_field_is_told_that_it_stays(template, found):
    train = [problem("a", fields={"lo": 3})]
    record = RecordConfig(prompt_template=template)
    config = Config(
        task=FilesTask(train_path="a", eval_path="b", record=record),
        tokenizer=TokenizerConfig(kind="sentencepiece"),
    )
    config = override(config, {"train.batch_size": "1", "sft.steps": "0"})
    lines = data_warnings(Opened(train, (), config))
    assert len(lines) == found
    assert all("prompt_template has {lo}, which stays as it is" in x for x in lines)


@pytest.mark.parametrize(
    ("field", "num_without", "warned"),
    [("lvl", 1, True), ("lvl", 0, False), ("lvl", 5, False), ("", 1, False)],
)
def test_a_few_records_without_a_level_are_counted(field, num_without, warned):
    train = [problem(str(i), level=int(i >= num_without)) for i in range(20)]
    record = RecordConfig(level_field=field)
    config = Config(
        task=FilesTask(train_path="a", eval_path="b", record=record),
        tokenizer=TokenizerConfig(kind="sentencepiece"),
    )
    config = override(config, {"train.batch_size": "1", "sft.steps": "0"})
    lines = data_warnings(Opened(train, (), config))
    assert lines == warned * [
        "train problems of level 0, the level of a record without 'lvl': 1 of 20, such "
        "as 0; they count as easier than all others; complete the records"
    ]


@pytest.mark.parametrize("verifier", ["numeric", "judge"])
def test_worked_solutions_that_do_not_end_in_their_gold_are_counted(verifier):
    solutions = ["#### 4", "2 + 2 = 5\n#### 5", None, "I do not know.", "#### 4"]
    train = [
        dataclasses.replace(problem(str(i)), verifier=verifier, solution=solution)
        for i, solution in enumerate(solutions)
    ]
    config = Config(
        task=FilesTask(train_path="a", eval_path="b"),
        tokenizer=TokenizerConfig(kind="sentencepiece"),
    )
    config = override(config, {"train.batch_size": "1"})
    missing, *lines = data_warnings(Opened(train, (), config))
    assert missing.startswith(
        "1 of 5 train problems have no worked solution, such as 2"
    )
    right = [each for each in train if each.solution == "#### 4"]
    assert data_warnings(Opened(right, (), config)) == []
    rl_alone = override(config, {"sft.steps": "0"})
    assert data_warnings(Opened(train, (), rl_alone)) == []
    if verifier == "judge":  # which would cost money
        assert lines == []
        return
    (line,) = lines
    assert line.startswith(
        "worked solutions that do not end in their gold: 2 of the 4 that were graded, "
        "such as '2 + 2 = 5 #### 5' with gold '4' (1);"
    )


def test_a_group_far_larger_than_published_ones():
    train = [problem("a")]
    assert warn(train, train__group_size="1024") == []
    (line,) = warn(train, train__group_size="1025")
    assert line.startswith("train.group_size=1025 samples 1025 completions of each")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"train.batch_size": "1000000000"},
            "train.batch_size=1000000000 x group_size=8 means 8,000,000,000 "
            "completions at once, whose ids and log-probabilities alone need 5,722 "
            "GiB; lower train.batch_size to at most 131072",
        ),
        (
            {"train.group_size": "1000000000"},
            "train.batch_size=16 x group_size=1000000000 means 16,000,000,000 "
            "completions at once, whose ids and log-probabilities alone need 11,444 "
            "GiB; lower train.group_size to at most 65536",
        ),
        (
            {"eval.batch_size": "1000000000"},
            "eval.batch_size=1000000000 x num_samples=8 means 8,000,000,000 "
            "completions at once, whose ids and log-probabilities alone need 5,722 "
            "GiB; lower eval.batch_size to at most 131072",
        ),
        (
            {"sft.batch_size": "1000000000"},
            "sft.batch_size=1000000000 is a slip: no step can hold so many worked "
            "solutions; the default is 96",
        ),
    ],
)
def test_an_absurd_size_is_refused_with_what_it_would_need(overrides, message):
    with pytest.raises(ConfigError) as refused:
        override(Config(), overrides)
    assert str(refused.value) == message


def test_the_largest_sizes_are_accepted():
    largest = {"train.batch_size": str(2**17), "sft.batch_size": str(2**20)}
    assert override(Config(), largest).train.batch_size == 2**17
    with pytest.raises(ConfigError, match="means 1,048,584 completions"):
        override(Config(), {"train.batch_size": str(2**17 + 1)})
    with pytest.raises(ConfigError, match="is a slip"):
        override(Config(), {"sft.batch_size": str(2**20 + 1)})


@pytest.mark.parametrize(
    "name", ["calculator", "code", "own_reward", "quickstart", "smoke"]
)
def test_recipes_whose_problems_need_no_file_are_told_nothing(name):
    config = load_config(_ROOT / f"configs/{name}.py", Config)
    with tempfile.TemporaryDirectory() as scratch:
        setup = open_setup(config, pathlib.Path(scratch) / "tokenizer.model")
    assert start_warnings(setup) == []
