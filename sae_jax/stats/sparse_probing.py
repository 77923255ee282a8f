"""How well a few latents predict a label, compared with the activations themselves.

Each value of a factor is compared with all others. On one half of the problems, we
choose the k latents whose means differ most and fit a logistic regression on them. We
report its AUROC on the other half. This is repeated for several random halvings, the
same for every dictionary. `std` is the variation over halvings, not an interval of the
difference between two dictionaries.

There are two controls. A regression on all coordinates of the activations must be
beaten for a dictionary to be worth its cost. Latents fitted to shuffled labels must
predict nothing. The method follows sae-probes, https://arxiv.org/abs/2502.16681.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sae_jax.data.corpus import Corpus
from sae_jax.sae import TSAE
from sae_jax.stats.factors import shared_labels
from sae_jax.stats.probing import auroc

_NUM_SPLITS = 5
_PENALTY = 1.0  # on squared weights, with inputs of mean square 1
_NEWTON_STEPS = 25
_MAX_MOVE = 4.0  # per step, because far from the minimum Newton's step may diverge
_TAKEN_OVER = 0.5  # share of the reconstruction along the probe
_MAX_TOKENS = 1 << 14  # of a half that a regression reads; more would change little


class _Tokens(NamedTuple):
    """Labeled tokens: activations [N, D], class [N] and problem [N]."""

    x: Float[np.ndarray, "N D"]
    label: Int[np.ndarray, " N"]
    problem: Int[np.ndarray, " N"]


def sparse_probe_report(
    tsae: TSAE, corpus: Corpus, name: str, *, counts: Sequence[int]
) -> dict[str, Any]:
    """Returns the AUROC of k latents, averaged over values and halvings of problems.

    Keys: each k of `counts`, `activations` and `shuffled` (for the largest k), each
    with `auroc` and `std`, the standard deviation over five halvings; and `absorbed`,
    with `share` and `std` (`absorbed_share`). Raises UnlabeledError if the factor
    cannot be used as a label.
    """
    values = shared_labels(corpus, name)
    tokens = _read_tokens(corpus, name, values)
    problems = np.unique(tokens.problem)
    found: dict[str, list[float]] = {}
    for seed in range(_NUM_SPLITS):
        rng = np.random.default_rng(seed)
        train = rng.permutation(problems)[: len(problems) // 2]
        is_train = np.isin(tokens.problem, train)
        learn, test = (_sample(tokens, kept, rng) for kept in (is_train, ~is_train))
        f_learn, f_test = (np.asarray(_encode(tsae, half.x)) for half in (learn, test))
        truth_NC = learn.label[:, None] == np.arange(len(values))
        shuffled_NC = rng.permutation(truth_NC)
        probes = {str(k): _fit_best(f_learn, truth_NC, k=k) for k in counts}
        probes["shuffled"] = _fit_best(f_learn, shuffled_NC, k=max(counts))
        for key, probe in probes.items():
            found.setdefault(key, []).append(probe.mean_auroc(f_test, test.label))
        dense = _fit_best(learn.x, truth_NC, k=learn.x.shape[1])
        score = dense.mean_auroc(test.x, test.label)
        found.setdefault("activations", []).append(score)
        main_C = _differences(f_learn, truth_NC).argmax(axis=1)
        share = absorbed_share(tsae, test.x, f_test, test.label, dense, main_C)
        found.setdefault("absorbed", []).append(share)
    return {
        key: spread("share" if key == "absorbed" else "auroc", scores)
        for key, scores in found.items()
    }


def spread(name: str, scores: Sequence[float]) -> dict[str, float | None]:
    """Returns mean and standard deviation of the scores, null if all are NaN."""
    known = [score for score in scores if not np.isnan(score)]
    if not known:
        return {name: None, "std": None}
    return {name: float(np.mean(known)), "std": float(np.std(known))}


class Probes(NamedTuple):
    """A logistic regression for each class, on all inputs; most weights may be 0.

    A class without training tokens has the bias NaN, and no score.
    """

    weight: Float[np.ndarray, "C Z"]
    bias: Float[np.ndarray, " C"]

    def scores(self, inputs: Float[np.ndarray, "N Z"]) -> Float[np.ndarray, "N C"]:
        """Returns the log odds of each class against all others."""
        return inputs @ self.weight.T + self.bias

    def mean_auroc(
        self, inputs: Float[np.ndarray, "N Z"], labels: Int[np.ndarray, " N"]
    ) -> float:
        """Returns the mean AUROC over the classes."""
        score_CN = self.scores(inputs).T
        each = [
            auroc(score_N, labels == c)
            for c, score_N in enumerate(score_CN)
            if not np.isnan(self.bias[c])
        ]
        return float(np.nanmean(each))


def absorbed_share(
    tsae: TSAE,
    x: Float[np.ndarray, "N D"],
    f: Float[np.ndarray, "N Z"],
    labels: Int[np.ndarray, " N"],
    probes: Probes,
    main: Int[np.ndarray, " C"],
) -> float:
    """Returns how often another latent replaces a label's main latent, over classes.

    It takes the tokens of a class that the probe of the activations finds. It returns
    the share of them where the main latent is silent and one other latent writes at
    least half of the reconstruction's part along the probe. Feature absorption is from
    https://arxiv.org/abs/2409.14507, which ablates one latent at a time; we use this
    share along one direction instead. (This rule is ours.)
    """
    decoder_ZD = np.asarray(tsae.decoder)
    shares = []
    for c, score_N in enumerate(probes.scores(x).T):
        found = (labels == c) & (score_N > 0)
        if not found.any():
            continue
        along_Z = decoder_ZD @ probes.weight[c]
        part_NZ = f[found] * along_Z
        silent_N = f[found][:, main[c]] == 0
        whole_N = part_NZ.sum(axis=1)
        taken_N = (whole_N > 0) & (part_NZ.max(axis=1) >= _TAKEN_OVER * whole_N)
        shares.append(float((silent_N & taken_N).mean()))
    return float(np.mean(shares)) if shares else float("nan")


def _read_tokens(corpus: Corpus, name: str, values: Int[np.ndarray, " Y"]) -> _Tokens:
    parts = []
    for block in corpus.blocks():
        labels = corpus.block_column(name, block)
        kept = block.mask & np.isin(labels, values)
        problem = np.broadcast_to(corpus.block_problems(block)[:, None], kept.shape)
        classes = np.searchsorted(values, labels[kept])
        parts.append((block.x[kept], classes, problem[kept]))
    return _Tokens(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _sample(
    tokens: _Tokens, kept_N: Bool[np.ndarray, " N"], rng: np.random.Generator
) -> _Tokens:
    """Returns the kept tokens, but at most as many as a regression reads."""
    index = np.flatnonzero(kept_N)
    chosen = rng.permutation(index)[:_MAX_TOKENS]
    return _Tokens(*(column[chosen] for column in tokens))


@jax.jit
def _encode(tsae: TSAE, x: Float[Array, "N D"]) -> Float[Array, "N Z"]:
    return tsae.encode(x)


def _differences(
    input_NZ: Float[np.ndarray, "N Z"], truth_NC: Bool[np.ndarray, "N C"]
) -> Float[np.ndarray, "C Z"]:
    """Returns each input's mean in a class minus its mean outside."""
    count_C = truth_NC.sum(axis=0)
    sum_CZ = truth_NC.T.astype(np.float32) @ input_NZ
    others_C = np.maximum(len(truth_NC) - count_C, 1)
    outside_CZ = (input_NZ.sum(axis=0) - sum_CZ) / others_C[:, None]
    return sum_CZ / np.maximum(count_C, 1)[:, None] - outside_CZ


def _fit_best(
    input_NZ: Float[np.ndarray, "N Z"], truth_NC: Bool[np.ndarray, "N C"], *, k: int
) -> Probes:
    """Fits probes on the k inputs that differ most between a class and the rest."""
    top_CK = np.argsort(-np.abs(_differences(input_NZ, truth_NC)), axis=1)[:, :k]
    weight_CK, bias_C = fit_logistic(
        jnp.asarray(input_NZ), jnp.asarray(truth_NC), jnp.asarray(top_CK)
    )
    weight_CZ = np.zeros((truth_NC.shape[1], input_NZ.shape[1]), np.float32)
    np.put_along_axis(weight_CZ, top_CK, np.asarray(weight_CK), axis=1)
    return Probes(weight_CZ, np.where(truth_NC.any(axis=0), bias_C, np.nan))


@jax.jit
def fit_logistic(
    x: Float[Array, "N Z"], truth: Bool[Array, "N C"], columns: Int[Array, "C K"]
) -> tuple[Float[Array, "C K"], Float[Array, " C"]]:
    """Returns weights and bias of a logistic regression for each class, on K columns.

    It minimizes the sum of the log losses + 1/2 |weights|^2 by Newton's method, with
    inputs scaled to mean square 1; the bias is not penalized.

    >>> x = jnp.array([[0.0], [1.0], [5.0], [6.0]])
    >>> truth = jnp.array([[False], [False], [True], [True]])
    >>> weight, bias = fit_logistic(x, truth, jnp.zeros((1, 1), jnp.int32))
    >>> (x @ weight[0] + bias[0] > 0).tolist()
    [False, False, True, True]
    """

    def fit(truth_N: Array, columns_K: Array) -> tuple[Array, Array]:
        x_NK = x[:, columns_K]
        scale_K = jnp.sqrt(jnp.mean(x_NK**2, axis=0)) + 1e-9
        x_NP = jnp.concatenate([x_NK / scale_K[None], jnp.ones((len(x), 1))], axis=1)
        penalty_P = jnp.append(jnp.full(len(columns_K), _PENALTY), 1e-6)

        def step(_: Array, weight_P: Array) -> Array:
            p_N = jax.nn.sigmoid(jnp.matmul(x_NP, weight_P, precision="highest"))
            error_N = p_N - truth_N.astype(jnp.float32)
            gradient_P = x_NP.T @ error_N + penalty_P * weight_P
            curvature_N1 = jnp.maximum(p_N * (1 - p_N), 1e-6)[:, None]
            hessian_PP = x_NP.T @ (curvature_N1 * x_NP) + jnp.diag(penalty_P)
            move_P = jnp.linalg.solve(hessian_PP, gradient_P)
            longest = jnp.maximum(jnp.linalg.norm(move_P) / _MAX_MOVE, 1.0)
            return weight_P - move_P / longest

        start_P = jnp.zeros(len(columns_K) + 1)
        weight_P = jax.lax.fori_loop(0, _NEWTON_STEPS, step, start_P)
        return weight_P[:-1] / scale_K, weight_P[-1]

    return jax.lax.map(lambda each: fit(*each), (truth.T, columns))
