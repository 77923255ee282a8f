"""Every configuration field and its one default.

A recipe in `configs/` is a function `get_config()` that returns a `Config`; its
docstring is the lab record. Values are checked at construction: a config that cannot
run raises `ConfigError`, which names the value and the fix. A field's annotation says
which values it takes (`schema.Section` checks it); `__post_init__` of a section checks
that its fields agree. The sections of problems, difficulty, the policy, sampling,
learning and the probe have separate modules.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, ClassVar

from job_jax.config import (
    CheckpointConfig,
    MeshConfig,
    Seed,
)
from job_jax.schema import (
    ConfigSection,
    Constraint,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check,
    read_other_names,
)
from job_jax.trackers.base import tracker_class
from rlvr_jax.config.difficulty import (
    CurriculumConfig,
    DifficultyConfig,
    DynamicSamplingConfig,
    default_curriculum,
)
from rlvr_jax.config.environment import EnvironmentConfig
from rlvr_jax.config.judge import JudgeConfig
from rlvr_jax.config.model import PRETRAINED, ModelConfig, PretrainedConfig
from rlvr_jax.config.probe import ProbeConfig
from rlvr_jax.config.sampling import (
    SamplerConfig,
    SamplingConfig,
    check_num_completions,
)
from rlvr_jax.config.task import (
    Task,
    TokenizerConfig,
    default_task,
)
from rlvr_jax.config.tracking import TrackingConfig
from rlvr_jax.config.train import SFTConfig, TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig(ConfigSection):
    """Held-out evaluation: pass@k, maj@k, by band, by level and by type."""

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        num_samples="n num_generations_eval n_samples samples",
        num_problems="max_eval_samples",
        every="eval_steps eval_every test_freq eval_interval",
        batch_size="bs per_device_eval_batch_size eval_batch_size",
    )

    num_problems: PositiveInt = 256  # held-out problems, at most
    num_samples: PositiveInt = 8  # completions a problem
    k: Annotated[
        tuple[int, ...],
        Constraint("hold ks of at least 1", lambda k: min(k, default=1) >= 1),
    ] = ()  # of pass@k and maj@k; (): 1, 2, 4 .. num_samples
    every: NonNegativeInt = 0  # RL steps between evaluations; 0: before and after RL
    batch_size: PositiveInt = 64  # problems sampled at once
    # RL problems whose worked gold is scored, to compare with fresh ones; 0: off
    num_gold_problems: NonNegativeInt = 0
    bootstrap_resamples: PositiveInt = 1000  # resamples behind each 95 % interval
    sampling: SamplingConfig = SamplingConfig()

    def __post_init__(self) -> None:
        """Refuses a pass@k with too few samples."""
        super().__post_init__()
        check(
            max(self.ks) <= self.num_samples,
            f"k={self.k} needs more than num_samples="
            f"{self.num_samples} samples; lower k or raise num_samples",
        )
        check_num_completions(
            self.sampling.max_new_tokens,
            batch_size=self.batch_size,
            num_samples=self.num_samples,
        )
        check(
            self.sampling.temperature > 0 or self.num_samples == 1,
            f"num_samples={self.num_samples} repeats one completion, because "
            "sampling.temperature=0 is greedy; set num_samples=1, or a temperature "
            "above 0",
        )

    @property
    def ks(self) -> tuple[int, ...]:
        """Returns the ks of pass@k and maj@k: `k`, else powers of 2 and num_samples."""
        powers = (2**i for i in range(self.num_samples.bit_length()))
        return self.k or tuple(sorted({*powers, self.num_samples}))


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifierConfig(ConfigSection):
    """How completions are graded: mathematics and programs in worker processes."""

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        timeout_s="timeout",
        workers="num_workers num_processes",
    )

    workers: PositiveInt = 2  # processes that grade mathematics, and programs at a time
    timeout_s: PositiveFloat = 5.0  # per item; mathematics beyond it is incorrect
    # Time of a batch for answers that exceed timeout_s; later ones are not tried
    overdue_s: PositiveFloat = 60.0
    concurrency: PositiveInt = 32  # items at a time of a verifier's `async def grade`
    code_cpu_s: PositiveInt = 2  # of a program; over it, or 5 x in wall time: incorrect
    code_memory_mb: PositiveInt = 512  # mebibytes of a program; over it: incorrect


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogConfig(ConfigSection):
    """What the user sees while it runs."""

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        progress_every="logging_steps log_interval log_every",
        rollouts_every="log_completions",
        trackers="report_to logger tracker wandb",
    )

    rollouts_every: PositiveInt = 10  # steps between saved batches of completions
    progress_every: PositiveInt = 10  # steps between progress lines
    difficulty_rollouts: NonNegativeInt = 10_000  # saved from stage difficulty, at most
    alarm_window: PositiveInt = 20  # steps that the run doctor looks back
    trackers: tuple[str, ...] = ()  # wandb, trackio, or your own as module:Class
    tracking: TrackingConfig = TrackingConfig()

    def __post_init__(self) -> None:
        """Refuses unknown trackers, and repeated ones."""
        super().__post_init__()
        for name in self.trackers:
            tracker_class(name)
        check(
            len(set(self.trackers)) == len(self.trackers),
            f"trackers={self.trackers} repeats one; name each once",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(ConfigSection):
    """A whole run."""

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        name="run_name experiment_name",
        seed="random_seed rng_seed",
    )

    name: str = "run"  # in reports and in the files of a probe
    seed: Seed = 0  # of weights, data order and sampling
    task: Task = dataclasses.field(default_factory=default_task)
    environment: EnvironmentConfig = EnvironmentConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    pretrained: PretrainedConfig = PretrainedConfig()
    mesh: MeshConfig = MeshConfig()
    sampler: SamplerConfig = SamplerConfig()
    sft: SFTConfig = SFTConfig()
    difficulty: DifficultyConfig = DifficultyConfig()
    curriculum: CurriculumConfig = dataclasses.field(default_factory=default_curriculum)
    dynamic_sampling: DynamicSamplingConfig = DynamicSamplingConfig()
    probe: ProbeConfig = ProbeConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    verifier: VerifierConfig = VerifierConfig()
    judge: JudgeConfig = JudgeConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()
    prompt_pad_multiple: PositiveInt = 16  # prompts are padded to a multiple of it
    completion_pad_multiple: PositiveInt = 16  # completions, likewise, in the update

    def __post_init__(self) -> None:
        """Refuses combinations that a stage could not run."""
        super().__post_init__()
        check(
            self.model.family != PRETRAINED or self.pretrained.path != "",
            f"model.family={PRETRAINED} reads a checkpoint's config.json, but "
            "pretrained.path is empty; set it to a Hugging Face directory",
        )
        self._check_tokenizer()
        self._check_rewards()
        self.environment.check_config(self)
        self._check_devices()
        self._check_probe()
        rounds, rule = self.dynamic_sampling.max_rounds, self.dynamic_sampling.tags()
        check(
            rounds > 0 or rule == DynamicSamplingConfig().tags(),
            f"dynamic_sampling.name={rule['name']} does nothing with max_rounds=0; set "
            "dynamic_sampling.max_rounds, for example to 2, or leave the name out",
        )
        staleness = self.train.staleness
        check(
            staleness == 0 or rounds == 0,
            f"train.staleness={staleness} samples the next step before this one is "
            f"verified, but dynamic_sampling.max_rounds={rounds} needs its verdicts "
            "first; set one of them to 0",
        )
        curriculum = self.curriculum
        check(
            not curriculum.needs_initial_estimates or self.difficulty.num_samples > 0,
            f"curriculum.name={curriculum.tags()['name']} takes its bands from "
            "estimates before RL, and difficulty.num_samples=0 makes none; raise it, "
            "or set curriculum.difficulty_source=online",
        )
        samplings = {"train": self.train.sampling, "eval": self.eval.sampling}
        for name, sampling in samplings.items():
            check(
                sampling.max_new_tokens < self.model.max_seq_len,
                f"{name}.sampling.max_new_tokens={sampling.max_new_tokens} leaves no "
                f"room for a prompt within model.max_seq_len={self.model.max_seq_len}; "
                "lower it, or raise model.max_seq_len",
            )

    @property
    def tokens_per_group(self) -> int:
        """Returns the tokens of the longest group, padded: a prompt and its rows.

        A prompt and completion longer than model.max_seq_len are never sampled.
        """
        completion = self.train.sampling.max_new_tokens
        prompt = self.model.max_seq_len - completion
        padded = [
            -(-length // multiple) * multiple
            for length, multiple in (
                (prompt, self.prompt_pad_multiple),
                (completion, self.completion_pad_multiple),
            )
        ]
        return padded[0] + self.train.rows_per_group * padded[1]

    def _check_devices(self) -> None:
        """Refuses layouts whose sizes do not divide, or that do not go together."""
        multiples = (self.prompt_pad_multiple, self.completion_pad_multiple)
        tensor = self.mesh.tensor
        check(
            not self.model.sequence_parallel
            or (tensor > 1 and all(each % tensor == 0 for each in multiples)),
            f"model.sequence_parallel splits tokens over mesh.tensor={tensor}: make it "
            "at least 2, and a divisor of prompt_pad_multiple="
            f"{self.prompt_pad_multiple} and completion_pad_multiple="
            f"{self.completion_pad_multiple}",
        )
        rank, tensor = self.train.lora.rank, self.sampler.tensor_parallel
        check(
            rank == 0 or tensor == 0,
            f"sampler.tensor_parallel={tensor} copies whole weights to the sampler, "
            f"and train.lora.rank={rank} trains adapters only; set one of them to 0",
        )

    def _check_probe(self) -> None:
        """Refuses a probe of a missing layer, and settings that need or spoil it."""
        rfgo = self.train.rfgo
        check(
            self.probe.enabled or rfgo.features_of == "policy",
            "train.rfgo.features_of=reference reads features, and probe.name=none has "
            "none; set probe.name=sae, or features_of=policy",
        )
        check(
            self.probe.enabled or not rfgo.changes_updates,
            f"train.rfgo.lambda_w={rfgo.lambda_w} or lambda_p={rfgo.lambda_p} above 0 "
            "needs features, and probe.name=none has none; set probe.name=sae, or both "
            "to 0",
        )
        check(
            not (self.probe.enabled and self.train.loss.has_external_traces),
            "train.loss.external_traces updates on tokens that the policy did not "
            "write, and a probe has features only for tokens that it did; set "
            "probe.name=none, or external_traces=off",
        )
        reads_layers = self.model.family == PRETRAINED or (
            self.pretrained.path != "" and "num_layers" not in self.model.stated
        )
        check(
            not self.probe.enabled
            or reads_layers
            or self.probe.layer < self.model.num_layers,
            f"probe.layer={self.probe.layer}, but the policy has layers 0.."
            f"{self.model.num_layers - 1}; lower it",
        )

    def _check_rewards(self) -> None:
        """Refuses to reward a confidence that no completion can state."""
        names, task = self.train.reward.names, self.task
        words = task.vocabulary() if self.tokenizer.kind == "word_level" else ()
        check(
            "confidence" not in names
            or not words
            or any("confidence" in word.lower() for word in words),
            f"train.reward.names={names} rewards a confidence, but task.source="
            f"{task.tags()[task.tag]} has no word to state one, so every completion "
            "would earn -1; remove confidence, or set task.ask_confidence if the task "
            "has it",
        )
        check(
            "judge" not in names or bool(self.judge.url),
            f"train.reward.names={names} needs a judge, and judge.url is empty; set "
            "judge.url and judge.model",
        )

    def _check_tokenizer(self) -> None:
        """Refuses a tokenizer that does not fit the problems or the weights."""
        tokenizer, task, weights = self.tokenizer, self.task, self.pretrained.path
        source = task.tags()[task.tag]
        is_closed = bool(task.vocabulary())
        check(
            is_closed or tokenizer.kind != "word_level",
            f"tokenizer.kind=word_level cannot read task.source={source}, whose texts "
            "may hold any word; set tokenizer.kind=sentencepiece or huggingface",
        )
        check(
            not is_closed or not tokenizer.trained_in_run,
            "tokenizer.kind=sentencepiece learns from texts, and task.source="
            f"{source} has none; set tokenizer.kind=word_level, or a tokenizer.path",
        )
        check(
            weights == "" or not tokenizer.trained_in_run,
            f"pretrained.path={weights!r} has an id for each token, which a newly "
            "trained tokenizer would not know; set tokenizer.kind=huggingface, or a "
            "tokenizer.path",
        )
        check(
            tokenizer.kind != "huggingface" or tokenizer.path != "" or weights != "",
            "tokenizer.kind=huggingface needs a directory; set tokenizer.path or "
            "pretrained.path",
        )
        check(
            not task.needs_tokenizer_template or tokenizer.kind == "huggingface",
            f"{task.chat_template_field}=tokenizer, but "
            f"tokenizer.kind={tokenizer.kind} has no template; give the Jinja text, or "
            "set tokenizer.kind=huggingface",
        )
