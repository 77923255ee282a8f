"""Checks which seed, sampling settings and problems are really used.

Two small runs in which all settings that could be confused differ. Training and
evaluation have different temperatures, truncations of the distribution and lengths.
Stages take different numbers of samples, a batch takes two optimizer steps, and the
seed is not 0. A third run has another seed.
"""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx

from job_jax.checkpoint import params_sha256
from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import to_json
from rlvr_jax.config import (
    Config,
    DifficultyConfig,
    EvalConfig,
    LogConfig,
    LoRAConfig,
    ModelConfig,
    OptimizerConfig,
    RewardConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.data import Loader
from rlvr_jax.main import main
from rlvr_jax.models import Transformer
from rlvr_jax.run.load import load_checkpoint_params
from rlvr_jax.run.workdir import saved_rollouts
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from rlvr_jax.verifiers.controls import coin_flip
from tests.support.command import completions, metrics
from tests.support.policies import forward
from tests.support.tracing import traced
from tests.support.user_extensions import brevity

SEED, OTHER_SEED = 7, 8
SFT, STEPS, MINIBATCHES, P, G = 2, 2, 2, 16, 4
MIX = ChainMix(chain_lengths=(1, 2))
TASK = FiniteFieldTask(modulus=7, sft=MIX, train=MIX, eval=MIX)
TRAIN = SamplingConfig(max_new_tokens=24, temperature=0.7, top_p=0.9)
EVAL = SamplingConfig(max_new_tokens=20, temperature=1.3, top_k=5, min_new_tokens=1)
PEAK, END = 4e-3, 0.25
CONFIG = Config(
    name="settings",
    seed=SEED,
    task=TASK,
    model=ModelConfig(
        num_layers=1,
        hidden_size=16,
        intermediate_size=16,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
    ),
    mesh=MeshConfig(cpu_devices=8),
    sft=SFTConfig(
        steps=SFT,
        batch_size=8,
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=0),
    ),
    difficulty=DifficultyConfig(num_samples=3, pool_size=16),
    train=TrainConfig(
        steps=STEPS,
        batch_size=P,
        group_size=G,
        num_minibatches=MINIBATCHES,
        old_logprobs="trainer",
        optimizer=OptimizerConfig(
            learning_rate=PEAK, warmup_steps=1, schedule="cosine", end_lr_fraction=END
        ),
        reward=RewardConfig(names=("correctness", "random"), weights=(1.0, 0.5)),
        sampling=TRAIN,
    ),
    eval=EvalConfig(
        num_problems=8,
        num_samples=2,
        k=(1, 2),
        every=2,
        batch_size=8,
        bootstrap_resamples=20,
        sampling=EVAL,
    ),
    checkpoint=CheckpointConfig(every=1, max_to_keep=10),
    log=LogConfig(rollouts_every=5),
    prompt_pad_multiple=32,
    completion_pad_multiple=24,
)
ADAPTERS = dataclasses.replace(
    CONFIG,
    train=dataclasses.replace(
        CONFIG.train,
        lora=LoRAConfig(rank=2, alpha=4),
        reward=RewardConfig(
            names=("correctness", "tests.support.user_extensions:brevity"),
            weights=(1.0, 0.25),
        ),
    ),
)


def num_problems(group_size):
    """Returns the number of problems in a draw with so many samples of each."""
    return P if group_size == G else 8


@dataclasses.dataclass(frozen=True)
class Traced:
    """A run's config, workdir and events."""

    config: Config
    workdir: object
    trace: object

    def sampled(self, group_size):
        """Returns the draws with this number of samples, which identifies the stage."""
        return [e for e in self.trace.of("sample") if e.group_size == group_size]

    @property
    def difficulty(self):
        """Returns the draws of stage `difficulty`."""
        return self.sampled(self.config.difficulty.num_samples)

    @property
    def steps(self):
        """Returns the events of RL, step by step."""
        return self.trace.stage("train")

    def judged(self, group_size):
        """Returns the judged pairs from draws with so many samples."""
        count = num_problems(group_size) * group_size
        return [e for e in self.trace.of("judge") if len(e.pairs) == count]

    def params(self, step):
        """Returns the whole policy before RL (0) or after a step."""
        stage, at = ("train", step) if step else ("sft", SFT)
        setup = self.trace.setup
        with jax.set_mesh(setup.mesh):
            return load_checkpoint_params(
                setup, self.workdir / "checkpoints" / stage, at
            )


def _run(config, folder):
    record = folder / "config.json"
    record.write_text(json.dumps({"config": to_json(config)}))
    with traced() as trace:
        assert main([f"--config={record}", f"--workdir={folder / 'run'}"]) == 0
    return Traced(config, folder / "run", trace)


@pytest.fixture(
    scope="module",
    params=["weights", pytest.param("adapters", marks=pytest.mark.slow)],
)
def run(request, tmp_path_factory):
    config = {"weights": CONFIG, "adapters": ADAPTERS}[request.param]
    return _run(config, tmp_path_factory.mktemp("settings"))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    config = dataclasses.replace(CONFIG, seed=OTHER_SEED)
    return _run(config, tmp_path_factory.mktemp("other"))


def _settings(config):
    return {
        name: pytest.approx(getattr(config, name))
        for name in ("temperature", "top_p", "top_k", "min_new_tokens")
    }


def test_each_stage_samples_by_its_own_settings(run):
    """Difficulty samples as RL does; evaluation has separate settings."""
    assert len(run.difficulty) == 2  # 16 problems, 8 at a time
    assert len(run.sampled(G)) == STEPS
    assert len(run.sampled(2)) == 3  # after step 2, before RL, after RL
    for group_size, expected in ((3, TRAIN), (G, TRAIN), (2, EVAL)):
        for event in run.sampled(group_size):
            found = {k: v.item() for k, v in vars(event.sampling).items()}
            assert found == _settings(expected)
            assert event.max_new_tokens == expected.max_new_tokens
            rows = num_problems(group_size) * group_size
            assert event.rollouts.tokens.shape == (rows, event.max_new_tokens)


def _expected_logprobs(run, rollouts, step, *, temperature, top_p):
    """Returns [B, T] from the model's float64 logits, by the settings' definition."""
    setup, prompts = run.trace.setup, rollouts.prompts
    B, T = rollouts.tokens.shape
    S = prompts.tokens.shape[1]
    rows, mask = np.zeros((B, S + T), np.int32), np.zeros((B, S + T), bool)
    starts = np.repeat(prompts.lengths, G)
    for b, (start, length) in enumerate(zip(starts, rollouts.lengths, strict=True)):
        rows[b, :start] = prompts.tokens[b // G, :start]
        rows[b, start : start + length] = rollouts.tokens[b, :length]
        mask[b, : start + length] = True
    with jax.set_mesh(setup.mesh):
        logits = forward(setup.graphdef, run.params(step), rows, mask)
    logits = np.asarray(logits, np.float64) / temperature
    found = np.zeros((B, T))
    for b, (start, length) in enumerate(zip(starts, rollouts.lengths, strict=True)):
        for t in range(length):
            row, token = logits[b, start - 1 + t], rollouts.tokens[b, t]
            probs = np.exp(row - row.max())
            probs /= probs.sum()
            order = np.argsort(-probs, kind="stable")
            before = np.cumsum(probs[order]) - probs[order]
            kept = {*order[before < top_p].tolist(), int(token)}
            found[b, t] = np.log(probs[token] / probs[list(kept)].sum())
    return found


def test_an_update_scores_by_the_settings_that_sampled(run):
    for step, events in enumerate(run.steps):
        (sampled,) = [e for e in events if e.name == "sample" and e.group_size == G]
        rollouts = sampled.rollouts
        expected = _expected_logprobs(run, rollouts, step, temperature=0.7, top_p=0.9)
        np.testing.assert_allclose(rollouts.logprobs, expected, atol=2e-4, rtol=0)
        # Other settings give other numbers, by far more than the tolerance.
        for temperature, top_p in ((1.0, 0.9), (0.7, 1.0), (1.0, 1.0)):
            wrong = _expected_logprobs(
                run, rollouts, step, temperature=temperature, top_p=top_p
            )
            assert np.abs(wrong - expected).max() > 0.02
        stepped = [e for e in events if e.name == "step"]
        assert len(stepped) == MINIBATCHES
        for event in stepped:
            (batch,) = event.batches
            for b, row in enumerate(_find_rows(batch, rollouts)):
                length = batch.lengths[b]
                np.testing.assert_allclose(
                    batch.old_logprobs[b, :length],
                    expected[row, :length],
                    atol=2e-4,
                    rtol=0,
                )
        for event in (*stepped, *(e for e in events if e.name == "score")):
            found = {k: v.item() for k, v in vars(event.sampling).items()}
            assert found == _settings(TRAIN)


def _find_rows(batch, rollouts):
    """Returns the index of each minibatch row among the completions of the rollouts."""

    def texts(batch, prompts, prompt_lengths):
        return [
            (
                prompts[b // G, : prompt_lengths[b // G]].tolist(),
                batch.tokens[b, :length].tolist(),
            )
            for b, length in enumerate(batch.lengths)
        ]

    drawn = texts(rollouts, rollouts.prompts.tokens, rollouts.prompts.lengths)
    return [
        drawn.index(text)
        for text in texts(batch, batch.prompt_tokens, batch.prompt_lengths)
    ]


def _served(events):
    """Returns the completions that an update learned from, by minibatch."""
    (sampled,) = [e for e in events if e.name == "sample" and e.group_size == G]
    found = []
    for event in (e for e in events if e.name == "step"):
        (batch,) = event.batches
        assert len(batch.lengths) == P * G // MINIBATCHES
        found += _find_rows(batch, sampled.rollouts)
    return found


def test_each_group_is_in_one_minibatch_and_their_order_is_drawn(run):
    orders = []
    for events in run.steps:
        served = _served(events)
        assert sorted(served) == list(range(P * G))
        groups = [row // G for row in served[::G]]
        assert served == [p * G + g for p in groups for g in range(G)]
        orders.append(groups)
    assert orders[0] != list(range(P)) != orders[1]
    assert orders[0] != orders[1]


def test_rewards_are_the_sum_of_the_parts_by_their_weights(run):
    """The run's seed tosses the coin; a user's reward reads problem and text."""
    reward = run.config.train.reward
    rows = [row for row in metrics(run.workdir) if row["stage"] == "train"]
    for row, judged in zip(rows, run.judged(G), strict=True):
        problems, texts = zip(*judged.pairs, strict=True)
        statuses = [verdict.status for verdict in judged.verdicts]
        right = np.array([s == "correct" for s in statuses], float)
        known = np.array([s != "unverified" for s in statuses]).reshape(P, G)
        grouped = np.where(known, right.reshape(P, G), 0)
        mean = grouped.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        correctness = np.where(known, grouped, mean[:, None])
        if "random" in reward.names:
            part = [coin_flip(SEED, p.id, b % G) for b, p in enumerate(problems)]
            wrong = [coin_flip(0, p.id, b % G) for b, p in enumerate(problems)]
            assert part != wrong
        else:
            part = brevity(problems, texts)
        expected = correctness + reward.weights[1] * np.reshape(part, (P, G))
        assert row["reward/mean"] == pytest.approx(expected.mean(), abs=1e-5)
        assert row["reward/std"] == pytest.approx(expected.std(), abs=1e-5)


def test_held_out_scores_are_of_the_policy_at_their_step(run):
    """eval.every=2 evaluates after the second step, after four optimizer steps."""
    digests = [params_sha256(run.params(step)) for step in range(STEPS + 1)]
    assert len(set(digests)) == STEPS + 1
    asked = [(e.params, e.version) for e in run.sampled(2)]
    last = (digests[STEPS], STEPS * MINIBATCHES)
    assert asked[1:] == [(digests[0], 0), last]
    assert asked[0][1] == STEPS * MINIBATCHES
    # Adapters are merged into the weights only when a checkpoint is read.
    assert (asked[0] == last) == (not run.config.train.lora.rank)
    rows = [row for row in metrics(run.workdir) if row["stage"] == "train"]
    first, _, after = run.judged(2)
    for judged, found in ((first, rows[1]), (after, rows[1])):
        right = [v.status == "correct" for v in judged.verdicts]
        assert found["eval/pass@1"] == pytest.approx(np.mean(right))
    assert "eval/pass@1" not in rows[0]


def test_bands_of_held_out_problems_are_set_before_rl(run):
    _, before, _ = run.judged(2)
    cut = run.config.difficulty
    expected = {}
    for pair in range(8):
        rows = slice(2 * pair, 2 * pair + 2)
        (name,) = {problem.id for problem, _ in before.pairs[rows]}
        statuses = [verdict.status for verdict in before.verdicts[rows]]
        known = [s for s in statuses if s != "unverified"]
        rate = known.count("correct") / len(known) if known else None
        if rate is None:
            expected[name] = "unknown"
        elif rate < cut.hard_below:
            expected[name] = "hard"
        else:
            expected[name] = "easy" if rate > cut.easy_above else "medium"
    for when in ("before", "after"):
        rows = completions(run.workdir, f"eval_{when}_000000.jsonl.gz")
        assert {row["id"]: row["band"] for row in rows} == expected
    assert len(set(expected.values())) > 1


def test_the_first_and_the_last_steps_completions_are_saved(run):
    saved = saved_rollouts(run.workdir)
    assert saved["train"] == [0, STEPS - 1]
    for step, judged in zip((0, STEPS - 1), run.judged(G), strict=True):
        rows = completions(run.workdir, f"train_{step:06}.jsonl.gz")
        assert [row["verdict"] for row in rows] == [v.status for v in judged.verdicts]


def test_no_stage_evaluates_problems_that_another_learned_from(run):
    """Compares sets of question texts: no held-out problem was in a batch."""
    sources = run.trace.setup.sources

    def asked(stage):
        return {sources[stage][i].prompt for i in range(min(300, len(sources[stage])))}

    judged = {
        group_size: {p.prompt for e in run.judged(group_size) for p, _ in e.pairs}
        for group_size in (3, G, 2)
    }
    held_out = asked("eval")
    assert judged[2] <= held_out
    assert judged[3] | judged[G] <= asked("train")
    assert not held_out & (asked("train") | asked("sft"))


def _streams(run):
    """Returns the random draws of a run from its seed, by purpose."""
    setup = run.trace.setup
    first = run.trace.stage("sft")[0]
    (stepped,) = [e for e in first if e.name == "step"]

    def drawn(group_size):
        return tuple(e.key for e in run.sampled(group_size))

    def problems(stage):
        return tuple(setup.sources[stage][i].prompt for i in range(16))

    return {
        "initial weights": params_sha256(stepped.state.params),
        "problems of sft": problems("sft"),
        "problems of train": problems("train"),
        "problems of eval": problems("eval"),
        "keys of difficulty": drawn(3),
        "keys of train": drawn(G),
        "keys of eval": drawn(2),
        "order of the curriculum": [e.source_index for e in run.trace.of("ask")],
        "order of the minibatches": [_served(events) for events in run.steps],
    }


@pytest.mark.parametrize("run", ["weights"], indirect=True)
def test_the_seed_moves_every_stream(run, other):
    ours, theirs = _streams(run), _streams(other)
    same = [name for name in ours if ours[name] == theirs[name]]
    assert same == ["problems of eval"]  # one held-out set for every seed
    keys = [ours[f"keys of {stage}"] for stage in ("difficulty", "train", "eval")]
    drawn = [key for one in keys for key in set(one)]
    assert len(set(drawn)) == len(drawn)  # no two purposes share a key
    theirs_drawn = {k for name in theirs if "keys" in name for k in theirs[name]}
    assert not theirs_drawn & set(drawn)


@pytest.mark.parametrize("run", ["weights"], indirect=True)
def test_weights_problems_and_order_follow_the_seed(run):
    """Compared with direct calls of the parts, with the seed."""
    setup = run.trace.setup

    def init():
        return nnx.state(
            Transformer(
                setup.config.model,
                setup.vocab_size,
                nnx.Rngs(jax.random.key(SEED)),
                eos_ids=setup.tokenizer.eos_ids,
                num_real_tokens=setup.tokenizer.vocab_size,
            )
        )

    with jax.set_mesh(setup.mesh):
        weights = jax.jit(init)()
    (stepped,) = [e for e in run.trace.stage("sft")[0] if e.name == "step"]
    for found, expected in zip(
        jax.tree.leaves(stepped.state.params),
        jax.tree.leaves(weights),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for stage in ("sft", "train", "eval"):
        source = TASK.problems(stage, seed=SEED)
        found = [setup.sources[stage][i] for i in range(8)]
        assert found == [source[i] for i in range(8)]
    loader = Loader(setup.sources["sft"], batch_size=8, seed=SEED)
    for step, events in enumerate(run.trace.stage("sft")):
        (stepped,) = [e for e in events if e.name == "step"]
        (batch,) = stepped.batches
        expected = [
            list(setup.tokenizer.encode_prompt(problem.prompt))
            for problem in loader.next_batch(step)
        ]
        found = [
            batch.prompt_tokens[b, :length].tolist()
            for b, length in enumerate(batch.prompt_lengths)
        ]
        assert found == expected
