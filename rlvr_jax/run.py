"""What every stage of a run needs, opened once: mesh, tokenizer, policy, judge."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from job_jax.mesh import (
    batch_sharding,
    check_batch,
    make_mesh,
    replicated,
)
from job_jax.processes import is_primary, placed, wait_for_all
from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.data.loader import Fitting, ProblemSource, fitting
from rlvr_jax.models import Transformer, check_divides, held_whole, shardings
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.sampler import SamplerLayout, sample, sampler_mesh
from rlvr_jax.tasks import Stage, problem_source
from rlvr_jax.tasks.finite_field import vocabulary
from rlvr_jax.tasks.records import RecordSource
from rlvr_jax.tokenizer import SentencePieceTokenizer, SymbolTokenizer, Tokenizer
from rlvr_jax.types import Problem, Prompts, Rollouts
from rlvr_jax.verifiers import Judge

# Long enough that a busy machine leaves out no gold that a quiet one would keep: a run
# that goes on must see the same problems.
_AUDIT_LIMIT_S = 60.0

STAGES: tuple[Stage, ...] = ("warmup", "train", "eval")  # those that ask problems


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """An opened run. Its arrays live on `mesh`, which the caller has made current."""

    config: Config
    mesh: Mesh
    tokenizer: Tokenizer
    graphdef: Any
    layout: SamplerLayout
    judge: Judge
    sources: dict[Stage, Fitting]
    too_long: dict[Stage, int]
    unreadable: dict[Stage, dict[str, str]]  # id -> why its gold cannot be judged by

    def initial_params(self) -> Any:
        """Returns freshly drawn parameters, a function of the config's seed, laid out.

        Every device draws its own shards; no host ever holds the whole.
        """

        def draw() -> Any:
            return nnx.state(_new_policy(self.config, self.tokenizer, self.config.seed))

        return jax.jit(draw, out_shardings=self.params_layout())()

    def abstract_params(self) -> Any:
        """Returns the parameters' shapes, types and layout."""

        def laid_out(layout: NamedSharding, param: Any) -> Any:
            return jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(
                    leaf.shape, leaf.dtype, sharding=layout
                ),
                param,
            )

        params = nnx.state(_abstract_policy(self.config, self.tokenizer))
        return jax.tree.map(laid_out, self.params_layout(), params)

    def params_layout(self) -> Any:
        """Returns each parameter's sharding on the mesh."""
        policy = _abstract_policy(self.config, self.tokenizer)
        return shardings(policy, self.mesh)

    def held_whole(self) -> list[str]:
        """Returns the parameters that the mesh should split and cannot."""
        return held_whole(_abstract_policy(self.config, self.tokenizer), self.mesh)

    def place(self, batch: Any) -> Any:
        """Returns the record's arrays on the mesh, split over the batch axes."""
        return placed(batch, batch_sharding(self.mesh))

    def sample(
        self,
        weights: Any,
        prompts: Prompts,
        sampling: Sampling,
        *,
        key: jax.Array,
        weight_version: Any,
        **settings: int,
    ) -> Rollouts:
        """Returns rollouts by weights that `layout.weights` gave, as `sample` does."""
        layout = self.layout
        with jax.set_mesh(layout.mesh):
            return sample(
                self.graphdef,
                weights,
                layout.prompts(prompts),
                layout.whole(sampling),
                key=layout.whole(key),
                weight_version=layout.whole(weight_version),
                **settings,
            )

    def replicate(self, tree: Any) -> Any:
        """Returns the arrays whole on every device."""
        return placed(tree, replicated(self.mesh))

    def key(self, stream: str) -> jax.Array:
        """Returns the key of one stream of random numbers, apart from all others."""
        number = {"train": 0, "eval": 1, "difficulty": 2, "tsae": 3, "arm": 4}[stream]
        return jax.random.fold_in(jax.random.key(self.config.seed), number)

    def problems(self, stage: Stage, count: int) -> list[Problem]:
        """Returns the first problems of a stage, at most `count`."""
        source = self.sources[stage]
        return [source[i] for i in range(min(count, len(source)))]

    def left_out(self) -> list[str]:
        """Returns lines on the problems that stages go without, and why."""
        lines = []
        for stage, golds in self.unreadable.items():
            if golds:
                total = len(golds) + self.too_long[stage] + len(self.sources[stage])
                lines.append(
                    f"{stage}: {len(golds)} of {total} problems left out: golds that "
                    "the verifier cannot read"
                )
                lines += [f"  {name}: {reason}" for name, reason in golds.items()]
        for stage, count in self.too_long.items():
            prompt, solution = _limits(self.config, stage)
            limits = f"a prompt of more than {prompt} tokens"
            if solution is not None:
                limits += f" or a solution of more than {solution}"
            total = count + len(self.sources[stage])
            if count:
                lines.append(f"{stage}: {count} of {total} problems left out: {limits}")
        return lines


def open_run(
    config: Config, tokenizer_path: pathlib.Path, *, stages: Sequence[Stage] = STAGES
) -> Run:
    """Returns the run, with data, lengths and batches of `stages` checked.

    A tokenizer that has to be learnt is read from `tokenizer_path`, or else learnt from
    the train problems and written there. Raises ConfigError.
    """
    mesh = make_mesh(config.mesh)
    check_divides(config.model, mesh, "mesh.tensor")
    _check_batches(config, mesh, stages)
    raw = {
        stage: problem_source(config.task, stage, seed=config.seed)
        for stage in stages
        if stage != "warmup" or config.warmup.steps
    }
    tokenizer = _tokenizer(config, raw, tokenizer_path)
    auditor = dataclasses.replace(config.verifier, timeout_s=_AUDIT_LIMIT_S)
    with Judge(auditor) as judge:
        readable, unreadable = _readable(raw, judge)
    sources, too_long = {}, {}
    for stage, source in readable.items():
        max_prompt, max_solution = _limits(config, stage)
        sources[stage], too_long[stage] = fitting(
            source,
            tokenizer,
            max_prompt=max_prompt,
            max_solution=max_solution,
            what=f"{stage} problems",
        )
    if "train" in sources and config.probe.source != "off":
        fixed = min(config.probe.fixed, len(sources["train"]))
        check_batch(fixed, mesh, "the problems of probe.fixed")
    policy = _abstract_policy(config, tokenizer)
    return Run(
        config=config,
        mesh=mesh,
        tokenizer=tokenizer,
        graphdef=nnx.graphdef(policy),
        layout=SamplerLayout.of(config, policy, mesh),
        judge=Judge(config.verifier),
        sources=sources,
        too_long=too_long,
        unreadable=unreadable,
    )


def _readable(
    sources: Mapping[Stage, ProblemSource], judge: Judge
) -> tuple[dict[Stage, ProblemSource], dict[Stage, dict[str, str]]]:
    """Returns the sources without problems whose golds cannot be read, and those golds.

    Generated golds are right by construction; the warm start reads none.
    """
    kept = dict(sources)
    unreadable: dict[Stage, dict[str, str]] = {}
    for stage, source in sources.items():
        if stage == "warmup" or not isinstance(source, RecordSource):
            continue
        problems = [source[i] for i in range(len(source))]
        unreadable[stage] = judge.unreadable(problems)
        indices = [i for i, p in enumerate(problems) if p.id not in unreadable[stage]]
        if not indices:
            raise ConfigError(
                f"{stage} problems: the verifier can read none of {len(problems)} "
                f"golds, such as {problems[0].gold!r:.60}; see task.record"
            )
        kept[stage] = Fitting(source, indices)
    return kept, unreadable


def _limits(config: Config, stage: Stage) -> tuple[int, int | None]:
    """Returns the tokens of the longest prompt and, for warmup, worked solution.

    Worked solutions get the room that completions will have in RL.
    """
    sampling = config.eval.sampling if stage == "eval" else config.train.sampling
    room = sampling.max_new_tokens
    return config.model.max_length - room, room if stage == "warmup" else None


def _tokenizer(
    config: Config, sources: Mapping[Stage, ProblemSource], path: pathlib.Path
) -> Tokenizer:
    """Returns the tokenizer; one that has to be learnt is kept at `path`."""
    if config.tokenizer.kind == "symbols":
        assert config.task.kind == "finite_field"  # Config refuses any other pair
        return SymbolTokenizer(vocabulary(config.task.modulus))
    if is_primary() and not path.exists():
        source = sources["train"]
        problems = (source[i] for i in range(len(source)))
        texts = (text for p in problems for text in (p.prompt, p.solution) if text)
        SentencePieceTokenizer.train(
            texts, vocab_size=config.tokenizer.vocab_size, path=path
        )
    wait_for_all()
    return SentencePieceTokenizer(path)


def _check_batches(config: Config, mesh: Mesh, stages: Sequence[Stage]) -> None:
    """Raises ConfigError where a stage's rows do not divide over the mesh."""
    warmup, train = config.warmup, config.train
    parts = {
        "warmup": (
            warmup.batch_size // warmup.micro_batches,
            "warmup.batch_size / warmup.micro_batches",
        ),
        "train": (
            train.prompts_per_step // (train.minibatches * train.micro_batches),
            "train.prompts_per_step / (train.minibatches x train.micro_batches)",
        ),
        "eval": (config.eval.batch_size, "eval.batch_size"),
    }
    prompts = {
        "train": (train.prompts_per_step, "train.prompts_per_step"),
        "eval": parts["eval"],
    }
    for stage in stages:
        rows, what = parts[stage]
        check_batch(rows, mesh, what)
        if stage in prompts:
            rows, what = prompts[stage]
            check_batch(rows, sampler_mesh(config, mesh), what)
    if "train" in stages and config.probe.source != "off":
        pairs = config.probe.dictionary.batch_size
        check_batch(pairs, mesh, "probe.dictionary.batch_size")


def _new_policy(config: Config, tokenizer: Tokenizer, seed: int) -> Transformer:
    return Transformer(
        config.model,
        tokenizer.vocab_size,
        nnx.Rngs(jax.random.key(seed)),
        eos_ids=(tokenizer.eos_id,),
    )


def _abstract_policy(config: Config, tokenizer: Tokenizer) -> Transformer:
    return nnx.eval_shape(lambda: _new_policy(config, tokenizer, 0))
