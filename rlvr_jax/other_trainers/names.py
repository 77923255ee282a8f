"""A trainer that a user describes: a JSON file with the names of its metrics."""

from pathlib import Path

from rlvr_jax.other_trainers.files import LogError, read_rows
from rlvr_jax.other_trainers.trainer import QUANTITIES, Trainer

_OPTIONS = {
    "max_length": "the limit on completion tokens",
    "group_size": "the number of completions per prompt",
    "temperature": "the sampling temperature",
    "learning_rate": "the learning rate",
    "clip_high": "the upper clip range",
    "entropy": "an entropy bonus",
    "kl": "a KL penalty",
    "grad_clip": "the limit of the gradient norm",
    "filter": "filter them by pass rate",
    "chat_template": "see that the sampler applies it",
    "end_token": "see the sampler's stop tokens",
    "mismatch": "then compare the settings of sampler and trainer",
}


def read_names(path: Path) -> Trainer:
    """Returns a trainer whose metrics have the names in a JSON file.

    The file maps quantities to a name or a list of names: {"reward": "train/score"}.
    Raises LogError if it cannot be read or has unknown quantities.
    """
    table = next(iter(read_rows(path)), {})
    unknown = sorted(table.keys() - set(QUANTITIES))
    names = {k: [v] if isinstance(v, str) else v for k, v in table.items()}
    if unknown or not names:
        raise LogError(
            f"{path}: unknown quantity {unknown[0] if unknown else '(none)'!r}; the "
            f"quantities are {', '.join(QUANTITIES)}"
        )
    for quantity, value in names.items():
        if not isinstance(value, list) or not all(isinstance(n, str) for n in value):
            raise LogError(f"{path}: {quantity} must be a name or a list of names")
    return Trainer(
        name=path.stem,
        names=names,
        signature=[name for value in names.values() for name in value],
        options=_OPTIONS,
    )
