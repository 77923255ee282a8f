"""Opens what every stage of a run needs: mesh, tokenizer, policy, verifier."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import PyTree

from job_jax.mesh import (
    batch_sharding,
    check_batch,
    replicated_sharding,
)
from job_jax.processes import barrier, device_put
from job_jax.schema import ConfigError
from job_jax.working import working
from rlvr_jax.config import Config
from rlvr_jax.config.task import Stage, Task
from rlvr_jax.data.loader import (
    MAX_SCANNED_PROBLEMS,
    NUM_CHECKED_PROBLEMS,
    filter_by_length,
)
from rlvr_jax.models import (
    Transformer,
    abstract_params,
    check_divisible,
    load_hf,
    param_shardings,
)
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.models.huggingface import hf_vocab_size, resolve_model
from rlvr_jax.run.checkpoint_settings import settle_config
from rlvr_jax.run.checks import check_batch_sizes, check_has_traces, check_marks
from rlvr_jax.run.golds import describe_invalid_golds, filter_by_gold
from rlvr_jax.sampler import (
    SamplerLayout,
    ScopedIntervention,
    sample,
    sampler_mesh,
    update_mesh,
)
from rlvr_jax.tokenizer import (
    Tokenizer,
    chat_template,
    open_tokenizer,
    tokenizer_directory,
)
from rlvr_jax.types import Problem, ProblemSource, Prompts, Rollouts
from rlvr_jax.verifiers.grader import Grader
from rlvr_jax.verifiers.thinking import writes_thinking

# Long enough that a busy machine keeps the same golds as an idle one, because a resumed
# run must see the same problems.
_GOLD_CHECK_TIMEOUT_S = 60.0
# Problems of a generated (endless) source that a tokenizer is trained on.
_NUM_TOKENIZER_PROBLEMS = 4096

PROBLEM_STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSetup:
    """An opened run. Its arrays live on `mesh`, which the caller has made current.

    With `sampler.devices`, `mesh` is the update's, and `sampler_layout` has another.
    """

    config: Config
    mesh: Mesh
    tokenizer: Tokenizer
    graphdef: nnx.GraphDef
    sampler_layout: SamplerLayout
    verifier: Grader
    sources: dict[Stage, ProblemSource]
    too_long: dict[Stage, int]
    invalid_golds: dict[Stage, dict[str, str]]  # problem id -> why it is unreadable

    def initial_params(self) -> nnx.State:
        """Returns the parameters that a run starts from, laid out on the mesh.

        They come from config.pretrained, in the model's param_dtype, or are random, by
        the config's seed. Every device reads or draws its own shards; no host ever
        holds all of them.
        """
        start, dtype = self.config.pretrained.path, self.config.model.param_dtype
        if start:
            with working(f"loading the weights of {start}"):
                return nnx.state(
                    load_hf(
                        start,
                        dtype=dtype,
                        mesh=self.mesh,
                        family=self.config.model.family,
                    )
                )

        def draw() -> nnx.State:
            return nnx.state(
                _init_policy(self.config, self.tokenizer, self.config.seed)
            )

        return jax.jit(draw, out_shardings=self.params_shardings())()

    def abstract_params(self) -> nnx.State:
        """Returns the parameters' shapes, dtypes and shardings."""
        policy = _abstract_policy(self.config, self.tokenizer)
        return abstract_params(policy, self.mesh)

    @property
    def vocab_size(self) -> int:
        """Returns V, the embedding's rows: as in the checkpoint, or one per token."""
        return _num_embedding_rows(self.config, self.tokenizer)

    def params_shardings(self) -> nnx.State:
        """Returns each parameter's sharding on the mesh."""
        policy = _abstract_policy(self.config, self.tokenizer)
        return param_shardings(policy, self.mesh)

    def shard_batch(self, batch: PyTree) -> PyTree:
        """Returns the batch's arrays on the mesh, split over the batch axes."""
        return device_put(batch, batch_sharding(self.mesh))

    def sample(
        self,
        weights: nnx.State,
        prompts: Prompts,
        sampling: SamplingParams,
        *,
        key: jax.Array,
        weight_version: jax.Array | np.int32,
        num_samples: int,
        max_new_tokens: int,
        intervention: ScopedIntervention | None = None,
    ) -> Rollouts:
        """Returns the rollouts that `sampler.sample` draws on the sampler's mesh.

        `weights` are parameters that `sampler_layout.place_params` returned.
        """
        layout = self.sampler_layout
        with jax.set_mesh(layout.mesh):
            return sample(
                self.graphdef,
                weights,
                layout.place_prompts(prompts),
                layout.replicate(sampling),
                key=layout.replicate(key),
                weight_version=layout.replicate(weight_version),
                num_samples=num_samples,
                max_new_tokens=max_new_tokens,
                num_slots=self.config.sampler.slots,
                intervention=layout.replicate(intervention),
            )

    def replicate(self, tree: PyTree) -> PyTree:
        """Returns the arrays with a whole copy on every device."""
        return device_put(tree, replicated_sharding(self.mesh))

    def stream_key(self, stream: str) -> jax.Array:
        """Returns the random key for one purpose, independent of other purposes."""
        number = {
            "train": 0,
            "eval": 1,
            "difficulty": 2,
            "probe": 3,
            "arm": 4,
            "lora": 5,
            "noise": 6,
            "prefixes": 7,
        }[stream]
        return jax.random.fold_in(jax.random.key(self.config.seed), number)

    def problems(self, stage: Stage, count: int) -> list[Problem]:
        """Returns the first problems of a stage, at most `count`."""
        source = self.sources[stage]
        return [source[i] for i in range(min(count, len(source)))]

    def first_by_verifier(self) -> dict[str, Problem]:
        """Returns the first problem of each verifier that the first problems name."""
        first: dict[str, Problem] = {}
        for stage in self.sources:
            if stage != "sft":
                for problem in self.problems(stage, NUM_CHECKED_PROBLEMS):
                    first.setdefault(problem.verifier, problem)
        first.pop("none", None)  # of prompts that nothing grades (`tasks.prompts`)
        return first

    def dropped_report(self) -> list[str]:
        """Returns lines that say which problems were left out of a stage, and why."""
        lines: list[str] = []
        for stage, golds in self.invalid_golds.items():
            total = len(golds) + self.too_long[stage] + len(self.sources[stage])
            lines += describe_invalid_golds(stage, golds, total=total)
        for stage, count in self.too_long.items():
            prompt, solution = _max_lengths(self.config, stage)
            limits = f"a prompt of more than {prompt} tokens"
            if solution is not None:
                limits += f" or a solution of more than {solution}"
            total = count + len(self.sources[stage])
            if count:
                lines.append(f"{stage}: {count} of {total} problems left out: {limits}")
        return lines


def open_setup(
    config: Config,
    tokenizer_path: pathlib.Path,
    *,
    stages: Sequence[Stage] = PROBLEM_STAGES,
    devices: Sequence[jax.Device] | None = None,
    share: Callable[[], None] = barrier,
) -> RunSetup:
    """Opens the run and returns it, with data, lengths and batches of `stages` checked.

    It uses all `devices`, by default JAX's. It reads a pretrained checkpoint's
    config.json, but not its weights. A tokenizer that the recipe trains is read from
    `tokenizer_path`, or else trained on the train problems and written there; `share`
    makes it visible to all processes. Raises ConfigError.
    """
    config = settle_config(config)
    if config.pretrained.path:
        model = resolve_model(config.pretrained, config.model)
        config = dataclasses.replace(config, model=model)
    mesh = update_mesh(config, devices)
    check_divisible(config.model, mesh, "mesh.tensor")
    check_batch_sizes(config, mesh, sampler_mesh(config, mesh, devices), stages)
    task = _resolve_chat_template(config)
    thinking = config.tokenizer.resolve_thinking(
        template_has_it=writes_thinking(task.template_text)
    )
    config = dataclasses.replace(config, tokenizer=thinking)
    raw: dict[Stage, ProblemSource] = {
        stage: task.problems(stage, seed=config.seed)
        for stage in stages
        if stage != "sft" or config.sft.steps
    }
    with working("opening the tokenizer"):
        tokenizer = _open_tokenizer(config, raw, tokenizer_path, share)
    check_marks(config, tokenizer, (raw[s] for s in ("train", "eval") if s in raw))
    auditor = dataclasses.replace(config.verifier, timeout_s=_GOLD_CHECK_TIMEOUT_S)
    valid = raw
    invalid_golds: dict[Stage, dict[str, str]] = {}
    if task.checks_golds:
        with working("reading the golds"), Grader(auditor) as verifier:
            valid, invalid_golds = filter_by_gold(raw, verifier)
    with working("counting the tokens of the problems"):
        sources, too_long = _filter_by_length(config, valid, tokenizer)
    if "train" in sources and config.train.loss.has_external_traces:
        check_has_traces(config, sources["train"], tokenizer)
    if {"train", "eval"} <= sources.keys() and config.probe.enabled:
        fixed = min(config.probe.num_reference_texts, len(sources["eval"]))
        check_batch(fixed, mesh, "the problems of probe.num_reference_texts")
    policy = _abstract_policy(config, tokenizer)
    return RunSetup(
        config=config,
        mesh=mesh,
        tokenizer=tokenizer,
        graphdef=nnx.graphdef(policy),
        sampler_layout=SamplerLayout.from_config(config, policy, mesh, devices),
        verifier=Grader(config.verifier, config.judge),
        sources=sources,
        too_long=too_long,
        invalid_golds=invalid_golds,
    )


def _filter_by_length(
    config: Config, valid: Mapping[Stage, ProblemSource], tokenizer: Tokenizer
) -> tuple[dict[Stage, ProblemSource], dict[Stage, int]]:
    """Returns each stage's problems that fit the model, and the number that do not."""
    sources, too_long = {}, {}
    for stage, source in valid.items():
        max_prompt, max_solution = _max_lengths(config, stage)
        sources[stage], too_long[stage] = filter_by_length(
            source,
            tokenizer,
            max_prompt_tokens=max_prompt,
            max_solution_tokens=max_solution,
            environment=config.environment,
            name=f"{stage} problems",
        )
    return sources, too_long


def _max_lengths(config: Config, stage: Stage) -> tuple[int, int | None]:
    """Returns the tokens of the longest prompt and, for sft, worked solution.

    A worked solution may be as long as a completion in RL.
    """
    sampling = config.eval.sampling if stage == "eval" else config.train.sampling
    room = sampling.max_new_tokens
    return config.model.max_seq_len - room, room if stage == "sft" else None


def _resolve_chat_template(config: Config) -> Task:
    """Returns the task, with the tokenizer's chat template if it needs that."""
    task = config.task
    if not task.needs_tokenizer_template:
        return task
    directory = tokenizer_directory(config)
    return task.with_chat_template(
        chat_template(directory, field=task.chat_template_field)
    )


def _open_tokenizer(
    config: Config,
    sources: Mapping[Stage, ProblemSource],
    path: pathlib.Path,
    share: Callable[[], None],
) -> Tokenizer:
    """Returns the tokenizer; one that the recipe trains is saved at `path`.

    Raises ConfigError if the model has fewer rows than the tokenizer has tokens.
    """

    def texts() -> Iterator[str]:
        source = sources["train"]
        is_generated = len(source) > MAX_SCANNED_PROBLEMS
        count = _NUM_TOKENIZER_PROBLEMS if is_generated else len(source)
        for problem in (source[i] for i in range(count)):
            yield from filter(None, (problem.prompt, problem.solution))

    found = open_tokenizer(config, texts=texts, trained_path=path, share=share)
    if found.vocab_size > (rows := _num_embedding_rows(config, found)):
        raise ConfigError(
            f"the tokenizer has {found.vocab_size} tokens, but the model of "
            f"pretrained.path={config.pretrained.path!r} has rows for {rows} "
            "(vocab_size); give the tokenizer that belongs to it"
        )
    return found


def _num_embedding_rows(config: Config, tokenizer: Tokenizer) -> int:
    if config.pretrained.path:
        return hf_vocab_size(config.pretrained)
    return tokenizer.vocab_size


def _init_policy(config: Config, tokenizer: Tokenizer, seed: int) -> Transformer:
    return Transformer(
        config.model,
        _num_embedding_rows(config, tokenizer),
        nnx.Rngs(jax.random.key(seed)),
        eos_ids=tokenizer.eos_ids,
        num_real_tokens=tokenizer.vocab_size,
    )


def _abstract_policy(config: Config, tokenizer: Tokenizer) -> Transformer:
    return nnx.eval_shape(lambda: _init_policy(config, tokenizer, 0))
