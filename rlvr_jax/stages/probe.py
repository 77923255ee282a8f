"""The stage `probe`: fits the run's probe to the policy before RL.

    problems -> completions, graded -> activations on disk -> ProbeConfig.fit
             -> texts that are read again during RL

leaves in the workdir

    activations/                   the residual stream of the probed layer
    rollouts/probe_*               the completions, with verdict and band
    probe/reference_texts.npz      the texts; and what the probe itself writes there
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from job_jax.metrics import Progress
from job_jax.processes import barrier, broadcast, is_primary
from rlvr_jax.metrics.scores import bands_from_verdicts
from rlvr_jax.probe.capture import add_sequences, open_writer
from rlvr_jax.probe.labeled_corpus import LabeledCorpus
from rlvr_jax.probe.protocol import PROBE_DIR, FitInputs
from rlvr_jax.probe.reference_texts import REFERENCE_TEXTS_FILE, ReferenceTexts
from rlvr_jax.rollouts.graded import (
    GradedCompletion,
    grade_completions,
    verdicts_by_problem,
)
from rlvr_jax.rollouts.sample import sample_problems
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.stages.context import RunContext, load_stage_params, require_finished
from rlvr_jax.tokenizer import pad_rows
from rlvr_jax.types import BANDS, Outcome
from sae_jax.data.corpus import Corpus, open_corpus

ACTIVATIONS_DIR = "activations"
_STAGE = "probe"


def probe(ctx: RunContext) -> None:
    """Fits the probe of a run and writes its reference texts; nothing without one."""
    setup, config = ctx.setup, ctx.setup.config
    if not config.probe.enabled:
        return
    require_finished(ctx, "sft", "difficulty")
    start = time.monotonic()
    _collect_activations(ctx)
    ctx.stop_signal.check()
    directory, activations = (
        ctx.workdir.path / name for name in (PROBE_DIR, ACTIVATIONS_DIR)
    )
    if is_primary():
        directory.mkdir(exist_ok=True)
    rows = ctx.workdir.read_rollouts(_STAGE, 0)
    corpus = open_corpus(activations, None, roles=("response",))
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
    if is_primary():
        texts = _reference_texts(setup, corpus, rows)
        texts.save(directory / REFERENCE_TEXTS_FILE)
    seconds = time.monotonic() - start  # of the attempt that ended the stage
    ctx.update_summary({_STAGE: summary, "stages": {_STAGE: seconds}})
    barrier()


def _label(corpus: Corpus, rows: Sequence[Mapping[str, Any]]) -> LabeledCorpus:
    """Returns the corpus with the problem and the outcome of each completion.

    Problems of the same text are one, so that no text is in two parts of the problems.
    """
    index = {text: i for i, text in enumerate(dict.fromkeys(r["prompt"] for r in rows))}
    return LabeledCorpus(
        corpus=corpus,
        problem_index=np.array([index[row["prompt"]] for row in rows]),
        outcomes=np.array([Outcome[row["verdict"]] for row in rows]),
    )


def _collect_activations(ctx: RunContext) -> None:
    """Writes the policy's completions and their activations, unless they are there.

    Every process must see them before it goes on.
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
    barrier()


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


def _reference_texts(
    setup: RunSetup, corpus: Corpus, rows: Sequence[Mapping[str, Any]]
) -> ReferenceTexts:
    """Returns the first completion of each of the first problems, read from disk."""
    config, shards = setup.config, corpus.shards
    G = _group_size(setup)
    num_texts = min(config.probe.num_reference_texts, len(rows) // G)
    sequence_N, role_N = shards.column("sequence"), shards.column("role")
    token_N = shards.column("token_id")
    sequences = [p * G for p in range(num_texts)]

    def tokens(sequence: int, role: int) -> list[int]:
        return token_N[(sequence_N == sequence) & (role_N == role)].tolist()

    prompt_tokens, prompt_lengths = pad_rows(
        [tokens(sequence, 0) for sequence in sequences],
        pad_multiple=config.prompt_pad_multiple,
    )
    completion_tokens, lengths = pad_rows(
        [tokens(sequence, 1) for sequence in sequences],
        pad_multiple=config.completion_pad_multiple,
    )
    chosen = [rows[sequence] for sequence in sequences]
    return ReferenceTexts(
        problem_ids=tuple(row["id"] for row in chosen),
        prompt_tokens=prompt_tokens,
        prompt_lengths=prompt_lengths,
        tokens=completion_tokens,
        lengths=lengths,
        bands=np.array([BANDS.index(row["band"]) for row in chosen], np.int32),
        outcomes=np.array([Outcome[row["verdict"]] for row in chosen], np.int32),
    )
