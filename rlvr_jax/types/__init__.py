"""The records that flow between stages.

Each docstring says who writes the record, who reads it, and which mask has already been
applied. docs/method/notation.md lists the axes. Rows of a `[B, ...]` array are
group-major: row `p * G + g` is sample g of prompt p.
"""

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
    TokenClass,
)
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
from rlvr_jax.types.rollouts import (
    Array,
    BegunRows,
    Episode,
    Message,
    Prompts,
    Reply,
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
    "Rollouts",
    "TokenClass",
    "Verdict",
    "VerdictStatus",
    "length_mask",
]
