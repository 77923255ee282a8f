"""What every stage of a run needs, opened once: mesh, tokenizer, policy, judge."""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh

from job_jax.mesh import (
    batch_sharding,
    check_batch,
    make_mesh,
    replicated,
)
from job_jax.processes import placed
from job_jax.schema import ConfigError
from rlvr_jax.config import Config, TaskConfig
from rlvr_jax.data.loader import Fitting, ProblemSource, fitting
from rlvr_jax.models import (
    Transformer,
    check_divides,
    laid_out_shapes,
    load_hf,
    shardings,
)
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.models.huggingface import check_match, embedding_rows
from rlvr_jax.sampler import SamplerLayout, sample, sampler_mesh
from rlvr_jax.tasks import Stage, problem_source
from rlvr_jax.tasks.finite_field import vocabulary
from rlvr_jax.tasks.records import RecordSource
from rlvr_jax.tokenizer import (
    Tokenizer,
    chat_template,
    open_tokenizer,
    tokenizer_directory,
)
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
        """Returns the parameters that a run starts from, laid out on the mesh.

        Those of config.pretrained, in the model's param_dtype, or freshly drawn ones, a
        function of the config's seed. Every device reads or draws its own shards; no
        host ever holds the whole.
        """
        start, dtype = self.config.pretrained.path, self.config.model.param_dtype
        if start:
            return nnx.state(load_hf(start, dtype=dtype, mesh=self.mesh))

        def draw() -> Any:
            return nnx.state(_new_policy(self.config, self.tokenizer, self.config.seed))

        return jax.jit(draw, out_shardings=self.params_layout())()

    def abstract_params(self) -> Any:
        """Returns the parameters' shapes, types and layout."""
        policy = _abstract_policy(self.config, self.tokenizer)
        return laid_out_shapes(policy, self.mesh)

    @property
    def vocab_size(self) -> int:
        """Returns V, the embedding's rows: those of the checkpoint, or one a token."""
        return _rows(self.config, self.tokenizer)

    def params_layout(self) -> Any:
        """Returns each parameter's sharding on the mesh."""
        policy = _abstract_policy(self.config, self.tokenizer)
        return shardings(policy, self.mesh)

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
        number = {
            "train": 0,
            "eval": 1,
            "difficulty": 2,
            "tsae": 3,
            "arm": 4,
            "lora": 5,
        }[stream]
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

    Of a checkpoint to start from config.json is read, the weights are not. A tokenizer
    that has to be learnt is read from `tokenizer_path`, or else learnt from
    the train problems and written there. Raises ConfigError.
    """
    mesh = make_mesh(config.mesh)
    check_divides(config.model, mesh, "mesh.tensor")
    _check_batches(config, mesh, stages)
    if config.pretrained.path:
        check_match(config.pretrained, config.model)
    task = _written_out(config)
    raw = {
        stage: problem_source(task, stage, seed=config.seed)
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


def _written_out(config: Config) -> TaskConfig:
    """Returns the task, the tokenizer's chat template in place of its name."""
    task = config.task
    if task.kind == "finite_field" or task.record.chat_template != "tokenizer":
        return task
    template = chat_template(tokenizer_directory(config))
    record = dataclasses.replace(task.record, chat_template=template)
    return dataclasses.replace(task, record=record)


def _tokenizer(
    config: Config, sources: Mapping[Stage, ProblemSource], path: pathlib.Path
) -> Tokenizer:
    """Returns the tokenizer; one that has to be learnt is kept at `path`.

    Raises ConfigError where the model has no rows for all of its tokens.
    """

    def texts() -> Iterator[str]:
        source = sources["train"]
        for problem in (source[i] for i in range(len(source))):
            yield from filter(None, (problem.prompt, problem.solution))

    task = config.task
    words = vocabulary(task.modulus) if task.kind == "finite_field" else ()
    found = open_tokenizer(config, words=words, texts=texts, learnt_path=path)
    if found.vocab_size > (rows := _rows(config, found)):
        raise ConfigError(
            f"the tokenizer has {found.vocab_size} tokens, and the model of "
            f"pretrained.path={config.pretrained.path!r} rows for {rows} "
            "(vocab_size); give the tokenizer that belongs to it"
        )
    return found


def _rows(config: Config, tokenizer: Tokenizer) -> int:
    if config.pretrained.path:
        return embedding_rows(config.pretrained)
    return tokenizer.vocab_size


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
        _rows(config, tokenizer),
        nnx.Rngs(jax.random.key(seed)),
        eos_ids=tokenizer.eos_ids,
        known_ids=tokenizer.vocab_size,
    )


def _abstract_policy(config: Config, tokenizer: Tokenizer) -> Transformer:
    return nnx.eval_shape(lambda: _new_policy(config, tokenizer, 0))
