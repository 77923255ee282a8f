"""The records that flow between stages.

Each docstring says who writes the record, who reads it, and which mask has already been
applied. docs/method/notation.md lists the axes. Rows of a `[B, ...]` array are
group-major: row `p * G + g` is sample g of prompt p.

The records of arrays are imported when they are first used. So the config, which needs
only the others, loads without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rlvr_jax.types.episodes import Episode, Message, Reply
from rlvr_jax.types.fields import Fields
from rlvr_jax.types.problems import (
    BANDS,
    AnswerFormat,
    Band,
    Outcome,
    Problem,
    ProblemSource,
    Verdict,
    VerdictStatus,
)

if TYPE_CHECKING:
    from rlvr_jax.types.batches import (
        NUM_DECILES,
        TOKEN_CLASSES,
        TOKEN_STATS,
        Batch,
        ExternalTraces,
        FeatureSums,
        LossAux,
        Packing,
        PolicyTokens,
        ProbeTargets,
        ReasoningFeatures,
        RewardGroups,
        TokenClass,
    )
    from rlvr_jax.types.rollouts import (
        Array,
        BegunRows,
        Prompts,
        Rollouts,
        length_mask,
    )

__all__ = [
    "BANDS",
    "NUM_DECILES",
    "TOKEN_CLASSES",
    "TOKEN_STATS",
    "AnswerFormat",
    "Array",
    "Band",
    "Batch",
    "BegunRows",
    "Episode",
    "ExternalTraces",
    "FeatureSums",
    "Fields",
    "LossAux",
    "Message",
    "Outcome",
    "Packing",
    "PolicyTokens",
    "ProbeTargets",
    "Problem",
    "ProblemSource",
    "Prompts",
    "ReasoningFeatures",
    "Reply",
    "RewardGroups",
    "Rollouts",
    "TokenClass",
    "Verdict",
    "VerdictStatus",
    "length_mask",
]

_ROLLOUTS = ("Array", "BegunRows", "Prompts", "Rollouts", "length_mask")


def __getattr__(name: str) -> Any:
    """Imports and returns a record of arrays in `__all__`."""
    if name not in __all__:
        raise AttributeError(f"module 'rlvr_jax.types' has no attribute {name!r}")
    module = "rollouts" if name in _ROLLOUTS else "batches"
    return vars(importlib.import_module(f"rlvr_jax.types.{module}"))[name]
