"""Where each latent fires: its strongest contexts, and weaker ones by quantile.

The strongest contexts alone make any latent look clean. So the documents in which a
latent fires are ordered by its highest activation there, and some are shown at the top
and some at each lower quantile. Documents that answer one problem resemble each other,
so only the highest of them is used.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from sae_jax.data.corpus import Corpus
from sae_jax.sae import TSAE
from sae_jax.stats.features import OutcomeMoments, outcome_moments

TOP = "top"
_TOKENS_BEFORE, _TOKENS_AFTER = 32, 12  # shown around the highest token of a context


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextCounts:
    """How many documents to show for a latent: at the top, and at each quantile."""

    top: int = 10
    at_quantile: int = 3
    quantiles: tuple[float, ...] = (0.75, 0.5, 0.25)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """Tokens of one document around the highest activation of one latent in it.

    `group` is TOP or the quantile, such as "0.50"; `peak` is the index of the highest
    token in the T tokens.
    """

    group: str
    document: int
    peak: int
    token_ids: Int[np.ndarray, " T"]
    roles: Int[np.ndarray, " T"]
    values: Float[np.ndarray, " T"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentFirings:
    """How R latents fire in a corpus. Made by `measure_firings`.

    `rate` is the share of counted tokens on which a latent fires, and `mean` its mean
    on those. `highest` and `position` [M, R] are its highest activation in each
    document and that token's number there, both 0 if it never fires there. `outcomes`
    is None if the documents have no verdicts.
    """

    latents: Int[np.ndarray, " R"]
    rate: Float[np.ndarray, " R"]
    mean: Float[np.ndarray, " R"]
    highest: Float[np.ndarray, "M R"]
    position: Int[np.ndarray, "M R"]
    document_ids: Int[np.ndarray, " M"]
    problems: Int[np.ndarray, " M"]
    outcomes: OutcomeMoments | None


def measure_firings(
    tsae: TSAE,
    corpus: Corpus,
    latents: Int[np.ndarray, " R"],
    *,
    outcomes: Int[np.ndarray, " M"] | None = None,
    problems: Int[np.ndarray, " M"] | None = None,
) -> LatentFirings:
    """Measures in one pass how these latents fire in all documents of a corpus.

    In the corpus's order of documents, `outcomes` are the verdicts (1 right, 0 wrong,
    -1 unknown) and `problems` the problems they answer, by default the corpus's own.
    """
    fired_R, total_R, tokens = np.zeros(len(latents)), np.zeros(len(latents)), 0
    highest, position, documents, means, own_problems = [], [], [], [], []
    for block, f in corpus.encode_blocks(tsae):
        f_STR = np.asarray(f)[:, :, latents]
        ids_S = corpus.block_document_ids(block)
        kept = ids_S >= 0
        fired_R += (f_STR > 0).sum(axis=(0, 1))
        total_R += f_STR.sum(axis=(0, 1), dtype=np.float64)
        tokens += int(block.mask.sum())
        highest.append(f_STR.max(axis=1)[kept])
        position.append(f_STR.argmax(axis=1)[kept])
        documents.append(ids_S[kept])
        counts_S1 = np.maximum(block.mask.sum(axis=1), 1)[:, None]
        means.append((f_STR.sum(axis=1) / counts_S1)[kept])
        own_problems.append(corpus.block_problems(block)[kept])
    problem_M = np.concatenate(own_problems) if problems is None else problems
    return LatentFirings(
        latents=latents,
        rate=fired_R / max(tokens, 1),
        mean=total_R / np.maximum(fired_R, 1),
        highest=np.concatenate(highest),
        position=np.concatenate(position),
        document_ids=np.concatenate(documents),
        problems=problem_M,
        outcomes=None
        if outcomes is None
        else _outcome_moments(np.concatenate(means), outcomes, problem_M),
    )


def choose_documents(
    highest_M: Float[np.ndarray, " M"],
    problem_M: Int[np.ndarray, " M"],
    counts: ContextCounts,
) -> list[tuple[str, int]]:
    """Returns the group and the row of each document to show for a latent.

    The N problems on which it fires are sorted, highest first. It returns the top ones,
    and then the problems around rank (1 - q) N that are not returned already.

    >>> counts = ContextCounts(top=1, at_quantile=1, quantiles=(0.5,))
    >>> highest = np.array([0.0, 5.0, 4.0, 1.0, 3.0, 2.0])
    >>> choose_documents(highest, np.array([0, 1, 1, 2, 3, 4]), counts)
    [('top', 1), ('0.50', 5)]
    """
    order = np.argsort(-highest_M, kind="stable")
    order = order[highest_M[order] > 0]
    _, first_of_problem = np.unique(problem_M[order], return_index=True)
    order = order[np.sort(first_of_problem)]
    chosen = {int(row): TOP for row in order[: counts.top]}
    for quantile in counts.quantiles:
        middle = int((1 - quantile) * len(order))
        first = max(0, middle - counts.at_quantile // 2)
        for row in order[first : first + counts.at_quantile]:
            chosen.setdefault(int(row), f"{quantile:.2f}")
    return [(group, row) for row, group in chosen.items()]


def read_contexts(
    tsae: TSAE, corpus: Corpus, firings: LatentFirings, counts: ContextCounts
) -> dict[int, list[Context]]:
    """Returns each latent's contexts, top first, in a second pass over the corpus."""
    wanted: dict[int, list[tuple[int, int, str, int]]] = {}
    for r, latent in enumerate(firings.latents.tolist()):
        chosen = choose_documents(firings.highest[:, r], firings.problems, counts)
        for rank, (group, row) in enumerate(chosen):
            wanted.setdefault(int(firings.document_ids[row]), []).append(
                (latent, rank, group, int(firings.position[row, r]))
            )
    found: dict[int, dict[int, Context]] = {z: {} for z in firings.latents.tolist()}
    for block, f in corpus.encode_blocks(tsae):
        ids_S = corpus.block_document_ids(block).tolist()
        if not any(number in wanted for number in ids_S):
            continue
        dense = np.asarray(f)
        tokens, roles = (
            corpus.block_column(name, block) for name in ("token_id", "role")
        )
        lengths = (block.token_index >= 0).sum(axis=1)
        for s, number in enumerate(ids_S):
            for latent, rank, group, at in wanted.get(number, ()):
                first = max(0, at - _TOKENS_BEFORE)
                end = min(int(lengths[s]), at + _TOKENS_AFTER + 1)
                found[latent][rank] = Context(
                    group=group,
                    document=number,
                    peak=at - first,
                    token_ids=tokens[s, first:end],
                    roles=roles[s, first:end],
                    values=dense[s, first:end, latent],
                )
    return {
        latent: [by_rank[rank] for rank in sorted(by_rank)]
        for latent, by_rank in found.items()
    }


def _outcome_moments(
    means_MR: Float[np.ndarray, "M R"],
    outcomes_M: Int[np.ndarray, " M"],
    problems_M: Int[np.ndarray, " M"],
) -> OutcomeMoments:
    _, prompts = np.unique(problems_M, return_inverse=True)
    return outcome_moments(
        means_MR,
        correct=outcomes_M == 1,
        verified=outcomes_M >= 0,
        prompts=prompts,
        num_prompts=int(prompts.max()) + 1,
    )
