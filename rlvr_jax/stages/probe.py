"""The stage `probe`: fits the run's probe to the policy before RL.

    train problems    -> completions, graded -> activations on disk -> ProbeConfig.fit
    held-out problems -> completions, graded -> texts that are read again during RL

It writes to the workdir:

    activations/                   the residual stream of the probed layer
    rollouts/probe_*               the completions, with verdict and band
    probe/reference_texts.npz      the texts
    probe/                         the probe's own files
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from job_jax.metrics import Progress
from job_jax.processes import broadcast, is_primary
from job_jax.working import working
from rlvr_jax.metrics.scores import bands_from_verdicts
from rlvr_jax.probe.capture import add_sequences, open_writer
from rlvr_jax.probe.labeled_corpus import LabeledCorpus
from rlvr_jax.probe.protocol import PROBE_DIR, FitInputs
from rlvr_jax.probe.reference_texts import (
    REFERENCE_TEXTS_FILE,
    ReferenceTexts,
    stratify_texts,
)
from rlvr_jax.probe.weight_noise import noise_file, write_noise
from rlvr_jax.rollouts.graded import (
    GradedCompletion,
    grade_completions,
    verdicts_by_problem,
)
from rlvr_jax.rollouts.sample import sample_problems
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.stages.context import RunContext, load_stage_params, require_finished
from rlvr_jax.tokenizer import pad_mask, pad_rows
from rlvr_jax.types import BANDS, Outcome, Rollouts, VerdictStatus
from sae_jax.data.corpus import Corpus, open_corpus

ACTIVATIONS_DIR = "activations"
_STAGE = "probe"


def probe(ctx: RunContext) -> None:
    """Fits the probe of a run and writes its reference texts, if it has a probe."""
    setup, config = ctx.setup, ctx.setup.config
    if not config.probe.enabled:
        return
    require_finished(ctx, "sft", "difficulty")
    start = time.monotonic()
    directory, activations = (
        ctx.workdir.path / name for name in (PROBE_DIR, ACTIVATIONS_DIR)
    )
    if is_primary():
        directory.mkdir(exist_ok=True)
    _collect_activations(ctx)
    _write_reference_texts(ctx, directory / REFERENCE_TEXTS_FILE)
    ctx.stop_signal.check()
    rows = ctx.workdir.read_rollouts(_STAGE, 0)
    corpus = open_corpus(activations, None, roles=("response",))
    with working("fitting the probe"):
        summary = config.probe.fit(
            FitInputs(
                config=config,
                mesh=setup.mesh,
                directory=directory,
                activations=activations,
                corpus=_label(corpus, rows),
                tokenize=setup.tokenizer.encode,
                workdir=ctx.workdir,
                writer=ctx.writer,
                stop_signal=ctx.stop_signal,
            )
        )
    seconds = time.monotonic() - start  # of the attempt that finished the stage
    ctx.update_summary({_STAGE: summary, "stages": {_STAGE: seconds}})


def _label(corpus: Corpus, rows: Sequence[Mapping[str, Any]]) -> LabeledCorpus:
    """Returns the corpus with the problem and the outcome of each completion.

    Problems of the same text count as one, so no text is in two splits of the problems.
    """
    index = {text: i for i, text in enumerate(dict.fromkeys(r["prompt"] for r in rows))}
    return LabeledCorpus(
        corpus=corpus,
        problem_index=np.array([index[row["prompt"]] for row in rows]),
        outcomes=np.array([Outcome[row["verdict"]] for row in rows]),
    )


def write_probe_noise(ctx: RunContext) -> None:
    """Writes the effect on the reference texts of weight noise as large as RL's change.

    Does nothing without a probe that logs, without RL, or if it was done before.
    """
    config = ctx.setup.config
    step, path = config.train.steps, ctx.workdir.path
    if not (config.probe.enabled and config.probe.log_every and step):
        return
    if broadcast(noise_file(path, step).exists):
        return
    before, after = (load_stage_params(ctx, stage) for stage in ("sft", "train"))
    write_noise(ctx.setup, path, before=before, after=after, step=step)


def _collect_activations(ctx: RunContext) -> None:
    """Writes the policy's completions and their activations, unless they exist.

    Every process must see them before it continues.
    """
    setup, config = ctx.setup, ctx.setup.config
    directory = ctx.workdir.path / ACTIVATIONS_DIR
    if broadcast(directory.exists):
        return
    params = load_stage_params(ctx, "sft")
    problems = setup.problems("train", config.probe.num_problems)
    batch_size = min(config.eval.batch_size, config.train.batch_size)
    progress = Progress("probe: completions", len(problems), every=1)
    graded: list[GradedCompletion] = []
    with open_writer(
        setup,
        directory,
        layer=config.probe.layer,
        model=f"{config.name}, step 0",
        dtype="bfloat16",
    ) as shards:
        for batch, rollouts in sample_problems(
            setup,
            params,
            problems,
            sampling=config.train.sampling,
            num_samples=config.train.group_size,
            batch_size=batch_size,
            stream="probe",
        ):
            graded += grade_completions(setup, batch, rollouts)
            tokens = add_sequences(
                setup, shards, batch, rollouts, params=params, layer=config.probe.layer
            )
            ctx.stop_signal.check()
            progress.update(len(graded) // _group_size(setup), {}, tokens=tokens)
        ctx.workdir.write_rollouts(_STAGE, 0, _rollout_rows(ctx, graded))
    progress.close()
    ctx.workdir.share()


def _group_size(setup: RunSetup) -> int:
    return setup.config.train.group_size


def _rollout_rows(
    ctx: RunContext, graded: Sequence[GradedCompletion]
) -> list[dict[str, Any]]:
    """Returns the completions as lines of rollouts/, each with its problem's band."""
    rows = [completion.to_json(_STAGE, 0) for completion in graded]
    band_of_problem = bands_from_verdicts(
        verdicts_by_problem(rows), ctx.setup.config.difficulty
    )
    return [row | {"band": band_of_problem[row["id"]]} for row in rows]


def _write_reference_texts(ctx: RunContext, path: Path) -> None:
    """Writes completions of held-out problems, balanced by band, unless they exist.

    RL does not train on these problems, and the probe is not fitted to them.
    """
    if broadcast(path.exists):
        return
    setup, config = ctx.setup, ctx.setup.config
    sampling = config.train.sampling
    # A held-out prompt leaves only the room that evaluation's completions need.
    room = min(sampling.max_new_tokens, config.eval.sampling.max_new_tokens)
    problems = setup.problems("eval", config.probe.num_problems)
    progress = Progress("probe: held-out texts", len(problems), every=1)
    first: list[_Text] = []
    verdicts: dict[str, list[VerdictStatus]] = {}
    for batch, rollouts in sample_problems(
        setup,
        load_stage_params(ctx, "sft"),
        problems,
        sampling=dataclasses.replace(sampling, max_new_tokens=room),
        num_samples=_group_size(setup),
        batch_size=min(config.eval.batch_size, config.train.batch_size),
        stream="probe",
    ):
        graded = grade_completions(setup, batch, rollouts)
        for one in graded:
            verdicts.setdefault(one.problem.id, []).append(one.verdict.status)
        first += _first_completions(setup, rollouts, graded)
        ctx.stop_signal.check()
        progress.update(len(first), {}, tokens=int(rollouts.lengths.sum()))
    progress.close()
    band_of_problem = bands_from_verdicts(verdicts, config.difficulty)
    bands_N = np.array(
        [BANDS.index(band_of_problem[text.problem_id]) for text in first]
    )
    rows = stratify_texts(bands_N, config.probe.num_reference_texts)
    if is_primary():
        _pad_texts(setup, [first[i] for i in rows], bands_N[rows]).save(path)
    ctx.workdir.share()


class _Text(NamedTuple):
    problem_id: str
    prompt: list[int]
    completion: list[int]
    is_policy: list[bool]  # by token; the others are an environment's
    outcome: Outcome


def _first_completions(
    setup: RunSetup, rollouts: Rollouts, graded: Sequence[GradedCompletion]
) -> list[_Text]:
    """Returns each graded problem's first completion."""
    G, prompts = _group_size(setup), rollouts.prompts
    return [
        _Text(
            problem_id=one.problem.id,
            prompt=prompts.tokens[p, : prompts.lengths[p]].tolist(),
            completion=rollouts.tokens[p * G, : rollouts.lengths[p * G]].tolist(),
            is_policy=rollouts.mask[p * G, : rollouts.lengths[p * G]].tolist(),
            outcome=Outcome[one.verdict.status],
        )
        for p, one in enumerate(graded[::G])
    ]


def _pad_texts(
    setup: RunSetup, texts: Sequence[_Text], bands: np.ndarray
) -> ReferenceTexts:
    prompt_tokens, prompt_lengths = pad_rows(
        [text.prompt for text in texts], pad_multiple=setup.config.prompt_pad_multiple
    )
    tokens, lengths = pad_rows(
        [text.completion for text in texts],
        pad_multiple=setup.config.completion_pad_multiple,
    )
    return ReferenceTexts(
        problem_ids=tuple(text.problem_id for text in texts),
        prompt_tokens=prompt_tokens,
        prompt_lengths=prompt_lengths,
        tokens=tokens,
        lengths=lengths,
        policy_mask=(
            pad_mask([text.is_policy for text in texts], tokens.shape[1])
            if setup.config.environment.enabled
            else None
        ),
        bands=bands.astype(np.int32),
        outcomes=np.array([text.outcome for text in texts], np.int32),
    )
