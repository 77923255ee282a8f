"""What every stage of a run needs, opened once: mesh, tokenizer, policy, judge."""

import dataclasses
import os
import pathlib
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh

from rlvr_jax.config import Config
from rlvr_jax.data.loader import Fitting, ProblemSource, fitting
from rlvr_jax.mesh import batch_sharding, check_batch, make_mesh, replicated, shardings
from rlvr_jax.models.transformer import Transformer, logical_axes
from rlvr_jax.tasks import problem_source
from rlvr_jax.tasks.finite_field import vocabulary
from rlvr_jax.tokenizer import SentencePieceTokenizer, SymbolTokenizer, Tokenizer
from rlvr_jax.types import Problem
from rlvr_jax.verifiers import Judge
from rlvr_jax.workdir import Workdir


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """An opened run. Its arrays live on `mesh`, which the caller has made current."""

    config: Config
    mesh: Mesh
    tokenizer: Tokenizer
    graphdef: Any
    judge: Judge
    sources: dict[str, Fitting]
    too_long: dict[str, int]

    def initial_params(self) -> Any:
        """Returns freshly drawn parameters, a function of the config's seed, laid out.

        Every device draws its own shards; no host ever holds the whole.
        """

        def draw() -> Any:
            return nnx.state(_new_policy(self.config, self.tokenizer, self.config.seed))

        return jax.jit(draw, out_shardings=self.params_layout())()

    def abstract_params(self) -> Any:
        """Returns the parameters' shapes and types."""
        return nnx.state(_abstract_policy(self.config, self.tokenizer))

    def params_layout(self) -> Any:
        """Returns each parameter's sharding on the mesh."""
        policy = _abstract_policy(self.config, self.tokenizer)
        return shardings(logical_axes(policy), self.mesh)

    def place(self, batch: Any) -> Any:
        """Returns the record's arrays on the mesh, split over the batch axes."""
        return jax.device_put(batch, batch_sharding(self.mesh))

    def replicate(self, tree: Any) -> Any:
        """Returns the arrays whole on every device."""
        return jax.device_put(tree, replicated(self.mesh))

    def key(self, stream: str) -> jax.Array:
        """Returns the key of one stream of random numbers, apart from all others."""
        number = {"train": 0, "eval": 1}[stream]
        return jax.random.fold_in(jax.random.key(self.config.seed), number)

    def problems(self, stage: str, count: int) -> list[Problem]:
        """Returns the first problems of a stage, at most `count`."""
        source = self.sources[stage]
        return [source[i] for i in range(min(count, len(source)))]


def open_run(config: Config, workdir: pathlib.Path) -> Run:
    """Returns the run, every refusal made: data, lengths and batches are checked here.

    Raises ConfigError.
    """
    mesh = make_mesh(config.mesh)
    _check_batches(config, mesh)
    raw = {
        stage: problem_source(config.task, stage, seed=config.seed)
        for stage in ("warmup", "train", "eval")
        if stage != "warmup" or config.warmup.steps
    }
    tokenizer = _tokenizer(config, raw["train"], workdir)
    sources, too_long = {}, {}
    for stage, source in raw.items():
        sources[stage], too_long[stage] = fitting(
            source,
            tokenizer,
            max_prompt=config.model.max_length - _max_new_tokens(config, stage),
            max_solution=_max_new_tokens(config, stage) if stage == "warmup" else None,
            what=f"{stage} problems",
        )
    return Run(
        config=config,
        mesh=mesh,
        tokenizer=tokenizer,
        graphdef=nnx.graphdef(_abstract_policy(config, tokenizer)),
        judge=Judge(config.verifier),
        sources=sources,
        too_long=too_long,
    )


def _max_new_tokens(config: Config, stage: str) -> int:
    """Returns the room for completions; worked solutions get what RL will have."""
    stage_config = config.eval if stage == "eval" else config.train
    return stage_config.sampling.max_new_tokens


def _tokenizer(config: Config, source: ProblemSource, workdir: pathlib.Path) -> Tokenizer:
    """Returns the task's tokenizer; a learnt one is kept in the workdir."""
    if config.task.kind == "finite_field":
        return SymbolTokenizer(vocabulary(config.task.modulus))
    path = workdir / "tokenizer.model"
    if path.exists():
        return SentencePieceTokenizer(path)
    problems = (source[i] for i in range(len(source)))
    texts = (text for p in problems for text in (p.prompt, p.solution) if text)
    return SentencePieceTokenizer.train(
        texts, vocab_size=config.tokenizer.vocab_size, path=path
    )


def _check_batches(config: Config, mesh: Mesh) -> None:
    """Raises ConfigError where a stage's rows do not divide over the mesh."""
    train = config.train
    parts = train.minibatches * train.micro_batches
    for rows, what in (
        (config.warmup.batch_size // config.warmup.micro_batches, "problems in one warmup micro-batch"),
        (train.prompts_per_step, "train.prompts_per_step"),
        (train.prompts_per_step // parts, "prompts in one train micro-batch"),
        (config.eval.batch_size, "eval.batch_size"),
    ):
        check_batch(rows, mesh, what)


def _new_policy(config: Config, tokenizer: Tokenizer, seed: int) -> Transformer:
    return Transformer(
        config.model,
        tokenizer.vocab_size,
        nnx.Rngs(jax.random.key(seed)),
        eos_ids=(tokenizer.eos_id,),
    )


def _abstract_policy(config: Config, tokenizer: Tokenizer) -> Transformer:
    return nnx.eval_shape(lambda: _new_policy(config, tokenizer, 0))


def device_name() -> str:
    """Returns what JAX runs on: "8 x TPU v5 lite", "2 x cpu on 2 cores"."""
    devices = jax.devices()
    kind = devices[0].device_kind
    cores = f" on {os.cpu_count()} cores" if devices[0].platform == "cpu" else ""
    return f"{len(devices)} x {kind}{cores}"
