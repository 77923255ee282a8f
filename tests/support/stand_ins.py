"""An opened run with a stand-in policy and judge: stages run without JAX programs.

The stand-in policy is its name ("sft", "train"). Its completions are functions of
(name, key, prompt, sample), and verdicts are functions of the text.
"""

import contextlib
import dataclasses
import zlib
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.metrics import CompileCounter, MetricsWriter
from job_jax.steps import StopSignal
from rlvr_jax.config import (
    Config,
    DifficultyConfig,
    EvalConfig,
    LogConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.run.setup import RunSetup, open_setup
from rlvr_jax.run.workdir import Workdir
from rlvr_jax.sampler import SamplerLayout
from rlvr_jax.stages import context as stage_context
from rlvr_jax.stages.context import RunContext
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from rlvr_jax.tokenizer import Tokenizer
from rlvr_jax.types import Problem, Rollouts, Verdict
from rlvr_jax.verifiers.grader import Grader

MIX = ChainMix(chain_lengths=(1, 2))
G = 4
CONFIG = Config(
    name="stand-in",
    seed=7,
    task=FiniteFieldTask(
        modulus=7, sft=ChainMix(chain_lengths=(1,)), train=MIX, eval=MIX
    ),
    model=ModelConfig(
        num_layers=1,
        hidden_size=16,
        intermediate_size=16,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
    ),
    mesh=MeshConfig(cpu_devices=8),
    sft=SFTConfig(steps=3, batch_size=8, optimizer=OptimizerConfig(learning_rate=2e-3)),
    difficulty=DifficultyConfig(num_samples=3, pool_size=20),
    train=TrainConfig(
        steps=5,
        batch_size=8,
        group_size=G,
        num_minibatches=2,
        old_logprobs="trainer",
        optimizer=OptimizerConfig(learning_rate=1e-3),
        sampling=SamplingConfig(max_new_tokens=24, temperature=0.7, top_p=0.9),
    ),
    eval=EvalConfig(
        num_problems=11,
        num_samples=2,
        k=(1, 2),
        every=2,
        batch_size=8,
        bootstrap_resamples=20,
        num_gold_problems=3,
        sampling=SamplingConfig(max_new_tokens=20, temperature=1.3, top_k=5),
    ),
    checkpoint=CheckpointConfig(every=1),
    log=LogConfig(rollouts_every=3),
    prompt_pad_multiple=32,
    completion_pad_multiple=24,
)


class Named(str):
    """A policy that is only its name, with 10 parameters."""

    size = 10


@dataclasses.dataclass(frozen=True)
class Draw:
    """The arguments of one call of the sampler."""

    policy: str
    settings: dict[str, float]
    key: tuple[int, ...]
    version: int
    num_samples: int
    max_new_tokens: int
    prompts: list[tuple[int, ...]]
    uids: list[int]  # the prompts' parts of the sampling keys


@dataclasses.dataclass(frozen=True)
class StandIn:
    """A run's context, and the calls that its stand-ins received."""

    ctx: RunContext
    draws: list[Draw]
    judged: list[tuple[str, str, str]]  # problem id, text, status

    def prompt_of(self, problem: Problem) -> tuple[int, ...]:
        return tuple(self.ctx.setup.tokenizer.encode_prompt(problem.prompt))

    def key_of(self, stream: str) -> tuple[int, ...]:
        return _key_data(self.ctx.setup.stream_key(stream))


def settings_of(sampling: object) -> dict[str, float]:
    """Returns the sampling settings of a config, or of arrays, rounded to float32."""
    names = ("temperature", "top_p", "top_k", "min_new_tokens")
    return {name: float(np.float32(getattr(sampling, name))) for name in names}


def status_of(problem_id: str, text: str) -> str:
    """Returns a status that is independent of the truth; a fifth are unverified."""
    number = zlib.crc32(f"{problem_id}:{text}".encode())
    return ("correct", "incorrect", "incorrect", "correct", "unverified")[number % 5]


@contextlib.contextmanager
def stand_in(folder: Path, config: Config = CONFIG) -> Iterator[StandIn]:
    """Yields a new run in `folder`, with all stages before the tested one finished."""
    setup = open_setup(config, folder / "tokenizer.model", devices=jax.devices()[:1])
    found = StandIn(
        ctx=RunContext(
            setup=setup,
            workdir=Workdir(folder / "run", config),
            writer=None,  # type: ignore[arg-type]  # set below, once the folder exists
            stop_signal=StopSignal(),
            compile_counter=CompileCounter(),
        ),
        draws=[],
        judged=[],
    )
    with (
        pytest.MonkeyPatch.context() as patch,
        jax.set_mesh(setup.mesh),
        MetricsWriter(found.ctx.workdir.path) as writer,
    ):
        found = dataclasses.replace(
            found, ctx=dataclasses.replace(found.ctx, writer=writer)
        )
        _patch(patch, found)
        yield found


def _patch(patch: pytest.MonkeyPatch, found: StandIn) -> None:
    def sample(self, weights, prompts, sampling, *, key, weight_version, **settings):
        num_samples, width = settings["num_samples"], settings["max_new_tokens"]
        rows = [
            tuple(np.asarray(prompts.tokens)[p, :length].tolist())
            for p, length in enumerate(np.asarray(prompts.lengths))
        ]
        draw = Draw(
            policy=weights,
            settings=settings_of(sampling),
            key=_key_data(key),
            version=int(weight_version),
            num_samples=num_samples,
            max_new_tokens=width,
            prompts=rows,
            uids=np.asarray(prompts.uid).tolist(),
        )
        found.draws.append(draw)
        tokens = np.array(
            [
                _completion(draw, row, sample, width, self.tokenizer)
                for row in rows
                for sample in range(num_samples)
            ],
            np.int32,
        )
        return Rollouts(
            prompts=jax.device_get(prompts),
            tokens=tokens,
            lengths=np.full(len(tokens), width, np.int32),
            logprobs=np.zeros(tokens.shape, np.float32),
            finished=np.ones(len(tokens), bool),
            weight_version=np.int32(weight_version),
        )

    def judge(self, problems, texts):
        statuses = [
            status_of(p.id, text) for p, text in zip(problems, texts, strict=True)
        ]
        found.judged.extend(
            (p.id, text, status)
            for p, text, status in zip(problems, texts, statuses, strict=True)
        )
        return [Verdict(status=status, answer="1") for status in statuses]

    patch.setattr(RunSetup, "sample", sample)
    patch.setattr(SamplerLayout, "place_params", lambda self, params: params)
    patch.setattr(Grader, "__call__", judge)
    patch.setattr(stage_context, "count_steps", lambda name, workdir: _ALL_STEPS[name])
    patch.setattr(stage_context, "is_finished", lambda *_, **__: True)


_ALL_STEPS = {"sft": CONFIG.sft.steps, "train": CONFIG.train.steps}


def name_policies(patch: pytest.MonkeyPatch, module: object) -> None:
    """Gives a stage the name of the stage that made a policy, instead of the policy."""
    patch.setattr(module, "load_stage_params", lambda ctx, stage: Named(stage))


def _completion(
    draw: Draw, prompt: tuple[int, ...], sample: int, width: int, tokenizer: Tokenizer
) -> list[int]:
    seed = zlib.crc32(repr((draw.policy, draw.key, prompt, sample)).encode())
    first = max(tokenizer.eos_ids) + 1
    drawn = np.random.default_rng(seed).integers(first, tokenizer.vocab_size, width)
    return [*drawn[:-1].tolist(), tokenizer.eos_id]


def _key_data(key: jax.Array) -> tuple[int, ...]:
    return tuple(np.ravel(jax.random.key_data(key)).tolist())
