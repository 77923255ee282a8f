"""A small substitute for the library reasoning-gym: its tests need no extra."""

import sys

import pytest

from rlvr_jax.tasks.reasoning_gym import library

STAND_IN = '''
import dataclasses
import random
from random import Random

DATASETS, CURRICULA = {}, {}


@dataclasses.dataclass
class Config:
    seed: int | None = None
    size: int = 500
    max_value: int = 50
    signs: list[str] = dataclasses.field(default_factory=lambda: ["+"])
    spell: bool = False
    limit: float | None = None
    table: dict | None = None

    def validate(self):
        assert self.max_value > 0, "max_value must be positive"


class Dataset:
    def __init__(self, config):
        self.config, self.size = config, config.size

    def score_answer(self, answer, entry):
        gold = entry["answer"]
        if answer == gold:
            return 1.0
        return len(gold) / len(answer) if gold in answer else 0.0


class Sums(Dataset):
    def __getitem__(self, index):
        rng = Random(self.config.seed + index)
        a, b = (rng.randint(0, self.config.max_value) for _ in "ab")
        sign = rng.choice(self.config.signs)
        gold = str(a + b if sign == "+" else a - b)
        question = f"{a} {sign} {b} = ?"
        return {"question": question, "answer": gold, "metadata": {"index": index}}


class Noisy(Sums):
    """Prints while it makes a problem."""

    def __getitem__(self, index):
        print("....", end="")
        return super().__getitem__(index)


class Tiny(Sums):
    """One question in all."""

    def __getitem__(self, index):
        return {"question": "1 + 1 = ?", "answer": "2", "metadata": {}}


class Unstated(Sums):
    """States no answer, and accepts every even number."""

    def __getitem__(self, index):
        return super().__getitem__(index) | {"answer": None}

    def score_answer(self, answer, entry):
        entry["metadata"]["index"] = -1  # scorers may write into the problem
        return 1.0 if int(answer) % 2 == 0 else 0.0


class Above(Sums):
    """Gives more than all for an answer that is too large."""

    def score_answer(self, answer, entry):
        return int(answer) / int(entry["answer"])


class Strict(Sums):
    """Accepts nothing."""

    def score_answer(self, answer, entry):
        return 0.0


class Copied(Sums):
    """Asks for what the second line of its question states."""

    def __getitem__(self, index):
        item = super().__getitem__(index)
        return item | {"question": f"Repeat:\\n.2. {item['answer']}"}


class Generous(Sums):
    """Accepts everything."""

    def score_answer(self, answer, entry):
        return 1.0


class Broken(Sums):
    def __getitem__(self, index):
        raise RuntimeError(f"no problem {index}")


class Slow(Sums):
    def score_answer(self, answer, entry):
        while answer == "slow":
            pass
        return super().score_answer(answer, entry)


class Global(Sums):
    """Draws from the random stream that all share."""

    def __getitem__(self, index):
        number = str(random.randint(0, 10**9))
        return {"question": f"repeat {number}", "answer": number, "metadata": {}}


class Hashed(Sums):
    """Depends on the order of a set of texts, another one in each process."""

    def __getitem__(self, index):
        words = " ".join({f"w{index + n}" for n in range(20)})
        return {"question": words, "answer": words[::-1], "metadata": {}}


class Evaluated(Sums):
    """Evaluates the answer, as the scorer of countdown does."""

    def score_answer(self, answer, entry):
        return 1.0 if eval(answer) == int(entry["answer"]) else 0.0


class Attribute:
    levels = (10, 100, 1000)


class Curriculum:
    attributes = {"max_value": Attribute()}

    def set_global_level(self, level):
        self.level = level

    def generate_configuration(self, defaults):
        return Config(max_value=Attribute.levels[self.level], **defaults)


def create_curriculum(name):
    return CURRICULA[name]()


for name, kind in {
    "sums": Sums, "differences": Sums, "tiny": Tiny, "unstated": Unstated,
    "above": Above, "strict": Strict, "copied": Copied, "generous": Generous,
    "broken": Broken, "noisy": Noisy,
    "slow": Slow, "drawn": Global, "hashed": Hashed, "countdown": Evaluated,
    "codeio": Sums,
}.items():
    DATASETS[name] = kind, Config
CURRICULA["sums"] = Curriculum
'''
METADATA = "Metadata-Version: 2.1\nName: reasoning-gym\nVersion: 9.9\n"


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Installs the substitute for the library, and yields its folder."""
    package, about = (
        tmp_path / "reasoning_gym",
        tmp_path / "reasoning_gym-9.9.dist-info",
    )
    package.mkdir()
    about.mkdir()
    (package / "__init__.py").write_text("")
    (package / "factory.py").write_text(STAND_IN)
    (about / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(str(tmp_path))
    with monkeypatch.context() as patch:
        for name in list(sys.modules):
            if name.partition(".")[0] == "reasoning_gym":
                patch.delitem(sys.modules, name)
        _forget()
        yield tmp_path
        for name in ("reasoning_gym", "reasoning_gym.factory"):
            sys.modules.pop(name, None)
    _forget()


def _forget():
    for cached in (library._library, library.make_item, library.open_dataset):
        cached.cache_clear()
