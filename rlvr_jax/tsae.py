"""The stage `tsae`: an autoencoder of the policy before RL, and the features it finds.

    problems -> completions, judged -> activations on disk -> sae_jax.train, or one that
    exists -> which latents are reasoning features -> texts that are read again in RL

leaves in the workdir

    activations/          the stream of the probed layer, as sae_jax.shards writes it
    rollouts/tsae_*       the completions, with verdict and band
    sae/                  the autoencoder in SAELens' layout, selection.json, the texts
    sae_clones/           those of other seeds
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from job_jax.metrics import Progress
from job_jax.processes import from_primary, is_primary, wait_for_all
from rlvr_jax.activations import add_sequences, batches, writer
from rlvr_jax.evaluate import Judged, bands, completions, initial_verdicts
from rlvr_jax.experience import ask
from rlvr_jax.given import given
from rlvr_jax.guidance import OUTCOMES
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.probes import FIXED_FILE, SELECTION_FILE, FixedTexts
from rlvr_jax.run import Run
from rlvr_jax.selection import Completions, choose, summary
from rlvr_jax.stage import Loop, check_ended, policy_after
from rlvr_jax.tokenizer import pad_rows
from rlvr_jax.types import BANDS
from sae_jax import io
from sae_jax.corpus import Corpus, open_corpus
from sae_jax.optimize import clones
from sae_jax.quality import stability
from sae_jax.sae import TSAE
from sae_jax.train import CLONES_DIR, SAE_DIR, open_source, train

ACTIVATIONS_DIR = "activations"
_STAGE = "tsae"


def probing(loop: Loop) -> None:
    """Makes the probe of a run; does nothing with probe.source=off."""
    config, directory = loop.run.config, loop.workdir.path / SAE_DIR
    if config.probe.source == "off":
        return
    check_ended(loop, "warmup", "difficulty")
    _collect(loop)
    loop.stop.check()
    tsae, others = _trained(loop) if config.probe.source == "stage" else _given(loop)
    asked = loop.workdir.read_rollouts(_STAGE, 0)
    numbers = {name: i for i, name in enumerate(dict.fromkeys(r["id"] for r in asked))}
    corpus = open_corpus(loop.workdir.path / ACTIVATIONS_DIR, tsae, roles=("response",))
    selection = choose(
        config.probe.features,
        tsae,
        Completions(
            corpus=corpus,
            problems=np.array([numbers[row["id"]] for row in asked]),
            outcomes=np.array([OUTCOMES[row["verdict"]] for row in asked]),
        ),
        layer=config.probe.layer,
        stability=stability(tsae.decoder, others) if others else None,
        tokenize=loop.run.tokenizer.encode,
        seed=config.seed,
    )
    if selection.dead and is_primary():
        print(
            f"warning: reasoning features {list(selection.dead)} hardly fire on the "
            f"policy's {selection.completions} completions; they cannot guide",
            file=sys.stderr,
        )
    if is_primary():
        _fixed_texts(loop, corpus, asked).save(directory / FIXED_FILE)
        selection.save(directory / SELECTION_FILE)
    loop.summarise({"features": summary(selection)})
    wait_for_all()


def _collect(loop: Loop) -> None:
    """Writes the policy's completions and their activations, unless they are there.

    Every process must see them before it goes on.
    """
    run, config = loop.run, loop.run.config
    directory = loop.workdir.path / ACTIVATIONS_DIR
    if from_primary(directory.exists):
        return
    params = policy_after(loop, "warmup")
    weights = run.layout.weights(params)
    sampling = run.replicate(Sampling.of(config.train.sampling))
    problems = run.problems("train", config.probe.problems)
    size = min(config.eval.batch_size, config.train.prompts_per_step)
    progress = Progress("tsae: completions", len(problems), every=1)
    judged: list[Judged] = []
    with writer(
        run,
        directory,
        layer=config.probe.layer,
        model=f"{config.name}, step 0",
        dtype="bfloat16",
    ) as shards:
        for batch in batches(problems, size):
            loop.stop.check()
            rollouts = ask(
                run,
                batch,
                weights,
                samples_per_prompt=config.train.samples_per_prompt,
                key=run.key("tsae"),
                sampling=sampling,
                weight_version=np.int32(0),
            )
            asked = batch[: len(problems) - len(judged) // _group(run)]
            judged += completions(run, asked, rollouts)
            tokens = add_sequences(
                run, shards, asked, rollouts, params=params, layer=config.probe.layer
            )
            progress.update(len(judged) // _group(run), {}, tokens=tokens)
        loop.workdir.write_rollouts(_STAGE, 0, _rows(loop, judged))
    progress.close()
    wait_for_all()


def _group(run: Run) -> int:
    return run.config.train.samples_per_prompt


def _rows(loop: Loop, judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Returns the completions as lines of rollouts/, each with its problem's band."""
    rows = [one.row(_STAGE, 0) for one in judged]
    of_problem = bands(initial_verdicts(rows), loop.run.config.difficulty)
    return [row | {"band": of_problem[row["id"]]} for row in rows]


def _trained(loop: Loop) -> tuple[TSAE, list[Any]]:
    """Returns the first clone, and the decoders of other seeds."""
    config, path = loop.run.config, loop.workdir.path
    job = config.probe.dictionary.as_job(
        name=config.name,
        seed=config.seed,
        path=str(path / ACTIVATIONS_DIR),
        checkpoint=config.checkpoint,
        log_every=config.log.progress_every,
    )
    if not _is_told(loop):
        source, metadata = open_source(job.pairs, seed=job.seed)
        train(
            job,
            source,
            mesh=loop.run.mesh,
            workdir=loop.workdir,
            writer=loop.writer,
            stop=loop.stop,
            metadata=metadata,
        )
    first, *rest = clones(job)
    others = [clone for clone in rest if clone.alpha == first.alpha]
    return io.load(path / SAE_DIR), [
        io.load(path / CLONES_DIR / clone.name).decoder for clone in others
    ]


def _given(loop: Loop) -> tuple[TSAE, list[Any]]:
    """Returns the autoencoder that the config names, kept in the workdir as well.

    Raises ConfigError where it does not fit.
    """
    config, record = loop.run.config, given(loop.run.config)
    if not _is_told(loop):
        if is_primary():
            io.save(loop.workdir.path / SAE_DIR, record.tsae, metadata=record.metadata)
        found = {"path": config.probe.path, "format": record.format}
        loop.summarise({_STAGE: found})
    return record.tsae, []


def _is_told(loop: Loop) -> bool:
    """Returns whether summary.json tells of an autoencoder."""
    return from_primary(lambda: _STAGE in loop.workdir.read_summary())


def _fixed_texts(
    loop: Loop, corpus: Corpus, asked: Sequence[Mapping[str, Any]]
) -> FixedTexts:
    """Returns the first completions of the first problems, from what is on disk."""
    run, shards = loop.run, corpus.shards
    count, G = run.config.probe.fixed, _group(run)
    sequence_N, role_N = shards.column("sequence"), shards.column("role")
    token_N = shards.column("token_id")
    chosen = [p * G for p in range(min(count, len(asked) // G))]

    def tokens(sequence: int, role: int) -> list[int]:
        return token_N[(sequence_N == sequence) & (role_N == role)].tolist()

    prompt_tokens, prompt_lengths = pad_rows(
        [tokens(s, 0) for s in chosen], bucket=run.config.prompt_bucket
    )
    completion_tokens, lengths = pad_rows(
        [tokens(s, 1) for s in chosen], bucket=run.config.completion_bucket
    )
    rows = [asked[s] for s in chosen]
    return FixedTexts(
        names=tuple(row["id"] for row in rows),
        prompt_tokens=prompt_tokens,
        prompt_lengths=prompt_lengths,
        tokens=completion_tokens,
        lengths=lengths,
        bands=np.array([BANDS.index(row["band"]) for row in rows], np.int32),
        outcomes=np.array([OUTCOMES[row["verdict"]] for row in rows], np.int32),
    )
