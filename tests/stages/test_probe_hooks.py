"""A probe's part in an update, step by step, with a stand-in for the probe."""

import collections
import dataclasses
import types

import jax
import numpy as np
import pytest

from rlvr_jax.config import Config, RFGOConfig, TrainConfig
from rlvr_jax.probe.protocol import Probe
from rlvr_jax.probe.rfgo_state import RFGOState
from rlvr_jax.probe.sae import SAEProbeConfig
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.run.throughput import Timing
from rlvr_jax.stages import probe_hooks as stage
from rlvr_jax.types import Outcome, Problem, Verdict

P, G, EVERY = 3, 2, 2
RFGO = RFGOConfig(lambda_w=0.5, lambda_p=0.2, anneal_steps=10, min_correlation=-1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told(Probe):
    """A probe that records its calls."""

    calls: list = dataclasses.field(default_factory=list)

    def read_texts(self, graphdef, params, texts):
        self.calls.append(("read", graphdef, params))
        return "statistics"

    def write_step(self, directory, **told):
        self.calls.append(("write", directory, told))
        return {"told": 1.0}


@pytest.fixture
def hooks(monkeypatch):
    """Returns a function that makes the hooks of a probe with these weights."""
    monkeypatch.setattr(stage, "device_get", lambda tree: tree)

    def make(weights=(0.75, -0.25), rfgo=RFGO, **changes):
        config = Config(
            name="told",
            train=TrainConfig(rfgo=rfgo, **changes),
            probe=SAEProbeConfig(log_every=EVERY),
        )
        setup = types.SimpleNamespace(
            config=config,
            graphdef="bare",
            replicate=lambda tree: tree,
            shard_batch=lambda tree: tree,
            stream_key=lambda name: jax.random.key({"arm": 4}[name]),
        )
        summaries = []
        return stage.ProbeCallback(
            ctx=types.SimpleNamespace(
                setup=setup,
                workdir=types.SimpleNamespace(path="the workdir"),
                update_summary=summaries.append,
                summaries=summaries,
            ),
            trainable=types.SimpleNamespace(
                setup=types.SimpleNamespace(
                    graphdef="whole", shard_batch=lambda tree: tree
                ),
                merge_frozen=lambda params: f"merged {params}",
            ),
            probe=Told(
                layer=1,
                feature_names=("a", "b")[: len(weights)],
                weights=weights,
                rms=(1.0, 2.0)[: len(weights)],
                reader="reader",
                observer="observer",
            ),
            texts="texts",
            reader="placed reader",
            key=setup.stream_key("arm"),
        )

    return make


def _graded():
    """Returns three groups of two: split, all wrong, all wrong."""
    statuses = ["correct", "incorrect", *["incorrect"] * 4]
    return [
        GradedCompletion(
            problem=Problem(
                id=str(n // G), prompt="?", gold="4", verifier="", source=""
            ),
            completion="5",
            verdict=Verdict(status=status, answer="5"),
            length=1,
            finished=n != 5,  # the last one was cut
            strategy=None,
            weight_version=0,
        )
        for n, status in enumerate(statuses)
    ]


@dataclasses.dataclass(frozen=True)
class StandInBatch:
    tokens: np.ndarray
    prompt_lengths: np.ndarray
    probe_targets: object = None


BATCH = StandInBatch(np.zeros((P * G, 4), np.int32), np.ones(P, np.int32))


def _rollouts(rewards):
    return types.SimpleNamespace(
        groups=types.SimpleNamespace(graded=_graded()),
        rewards=np.array(rewards, np.float32),
        judged=np.ones((P, G), bool),
    )


def _begin(hooks, step, rewards=((1, 0), (0, 0), (0, 0))):
    state = hooks.init_state()
    return hooks.on_update_begin(state, step, "params", _rollouts(rewards), BATCH)


def test_every_second_step_is_logged_with_the_policy_before_the_update(hooks):
    probed = hooks()
    for step in range(5):
        probed.probe.calls.clear()
        begun = _begin(probed, step)
        logged = step % EVERY == 0
        read = [("read", "whole", "merged params")] if logged else []
        assert probed.probe.calls == read
        assert begun.text_stats == ("statistics" if logged else None)
        assert begun.inputs.observer == ("observer" if logged else None)
        assert begun.inputs.reader == "placed reader"


def test_without_logging_nothing_is_read(hooks):
    probed = hooks()
    config = dataclasses.replace(
        probed.ctx.setup.config, probe=SAEProbeConfig(log_every=0)
    )
    probed.ctx.setup.config = config
    assert _begin(probed, 0).text_stats is None
    assert probed.probe.calls == []


def test_targets_are_the_verdicts_and_who_may_earn_a_proxy(hooks):
    """Groups with unequal rewards need no proxy, and a truncated text earns none."""
    targets = _begin(hooks(), 1).batch.probe_targets
    expected = ["correct", "incorrect", *["incorrect"] * 4]
    assert targets.outcomes.tolist() == [Outcome[name] for name in expected]
    assert targets.proxy_eligible.tolist() == [False] * 2 + [True] * 3 + [False]
    assert targets.row.tolist() == list(range(P * G))
    # Rewards decide, not verdicts: here a penalty splits the second group.
    split = _begin(hooks(), 1, rewards=((1, 0), (0, -0.5), (0, 0)))
    assert split.batch.probe_targets.proxy_eligible.tolist() == [
        *[False] * 4,
        True,
        False,
    ]


def test_features_have_the_steps_scale_strength_and_key(hooks):
    probed = hooks()
    keys = []
    for step in (0, 3, 10, 12):
        begun = _begin(probed, step)
        features = begun.inputs.reasoning_features
        strength = 0.2 * max(0.0, 1 - step / 10)
        assert begun.proxy_strength == pytest.approx(strength)
        assert features.proxy_strength == pytest.approx(strength)
        assert features.weights.tolist() == [0.75, -0.25]
        assert features.scale.tolist() == [1.0, 2.0]
        keys.append(jax.random.key_data(features.key).tolist())
    for key, step in zip(keys, (0, 3, 10, 12), strict=True):
        expected = jax.random.fold_in(jax.random.key(4), step)
        assert key == jax.random.key_data(expected).tolist()


def test_a_probe_without_features_guides_nothing(hooks):
    empty = hooks(weights=())
    assert (empty.rfgo.lambda_w, empty.rfgo.lambda_p) == (0.0, 0.0)
    assert empty.spec.rfgo == empty.rfgo
    assert _begin(empty, 0).proxy_strength == 0.0
    frozen = dataclasses.replace(RFGO, features_of="reference")
    assert hooks(rfgo=frozen).rfgo == frozen
    assert not hooks(weights=(), rfgo=frozen).rfgo.needs_reference_policy
    full = hooks()
    assert full.rfgo == RFGO
    assert full.spec.layer == 1
    assert full.spec.shuffle_weights == full.ctx.setup.config.probe.shuffles_weights


def _sums(moment):
    """Returns a step's sums of two groups; quality follows the outcome, or not."""
    moments = np.array([moment, 1.0, 1.0])
    return types.SimpleNamespace(
        num_informative_groups=2.0,
        moments=moments,
        moment_products=np.outer(moments, moments) / 2,
        sum_squares=np.array([8.0, 0.0]),
        num_tokens=2.0,
        num_weighted_tokens=2.0,
        weight_sq_deviation=0.5,
        proxy_groups=1.0,
        tokens_by_band=np.zeros(4),
        sums_by_band=np.zeros((4, 2)),
        sums_by_outcome=np.zeros((3, 2)),
        tokens_by_outcome=np.zeros(3),
    )


def test_the_state_after_a_step_follows_its_sums_and_changes_are_logged(hooks):
    probed = hooks()
    strict = dataclasses.replace(RFGO, min_correlation=0.5)
    config = probed.ctx.setup.config
    probed.ctx.setup.config = dataclasses.replace(
        config, train=dataclasses.replace(config.train, rfgo=strict)
    )
    state = RFGOState.init((1.0, 2.0))
    assert not state.is_proxy_on(strict)
    begun = _begin(probed, 1)
    result = types.SimpleNamespace(feature_sums=_sums(0.99), latent_sums="latents")
    after, metrics, messages = probed.on_update_end(state, 1, begun, result)
    strength = begun.proxy_strength
    assert after == state.update(result.feature_sums, strict, proxy_strength=strength)
    assert after.is_proxy_on(strict)
    assert len(messages) == 1
    assert messages[0].startswith("step 1: the proxy is on")
    assert metrics["rfgo/proxy_groups"] == pytest.approx(1 / P)
    assert "told" not in metrics  # no step to log
    again, _, messages = probed.on_update_end(after, 3, begun, result)
    assert messages == []
    assert again.num_proxy_groups == 2


def test_a_logged_step_is_written_with_its_own_texts_and_latents(hooks):
    probed = hooks()
    begun = _begin(probed, 2)
    result = types.SimpleNamespace(feature_sums=_sums(0.1), latent_sums="latents")
    _, metrics, _ = probed.on_update_end(probed.init_state(), 2, begun, result)
    assert metrics["told"] == 1.0
    kind, directory, told = probed.probe.calls[-1]
    assert (kind, directory) == ("write", "the workdir")
    assert told == {
        "run": "told",
        "step": 2,
        "rollout_sums": "latents",
        "texts": "texts",
        "text_stats": "statistics",
    }


def test_after_the_last_step_the_texts_are_read_under_the_last_policy(hooks):
    probed = hooks()
    probed.on_train_end(
        RFGOState(mean_square=(1.0, 1.0), num_proxy_groups=3),
        "last params",
        last_step=None,
        timing=types.SimpleNamespace(steps=0),
        num_steps=5,
        updater=None,
        sampling=None,
    )
    (read, write) = probed.probe.calls
    assert read == ("read", "whole", "merged last params")
    assert write[2]["step"] == 5
    assert write[2]["rollout_sums"] is None
    (summary,) = probed.ctx.summaries
    assert summary["rfgo"]["proxy_groups"] == 3
    assert summary["rfgo"]["num_features"] == 2
    assert "probe_overhead" not in summary


def test_the_cost_of_a_probe_is_a_share_of_a_step_without_it(hooks, monkeypatch):
    """A step without the probe takes 10 s, 5 of them in updates."""
    seconds = {"no_probe": 2.0, "features": 3.0, "observer": 5.0}
    monkeypatch.setattr(
        stage.ProbeCallback, "_time_gradients", lambda *_, **__: seconds
    )
    probed = hooks()
    probed.on_train_end(
        probed.init_state(),
        "params",
        last_step=_begin(probed, 0),
        timing=Timing(steps=4, seconds={"rollout": 5.0, "update": 5.0, "probe": 2.0}),
        num_steps=5,
        updater=None,
        sampling=None,
    )
    (summary,) = probed.ctx.summaries
    overhead = {"features": 0.25, "observer": 0.75, "gradient_s": seconds}
    assert summary["probe_overhead"] == overhead


def test_an_arms_time_is_its_fastest_second_call(hooks, monkeypatch):
    """Other work slows down most trials of one arm, and the first call compiles."""
    seconds = {
        "no_probe": (2.0, 2.5, 9.0, 2.25, 2.0),
        "features": (8.0, 8.0, 8.0, 3.0, 8.0),
        "observer": (5.0, 6.0, 4.0, 5.0, 5.0),
    }
    now, calls = [0.0], collections.Counter()

    def gradient(params, batch, sampling, probe):
        assert (params, sampling) == ("params", "sampling")
        arm = "no_probe" if probe is None else "features"
        arm = "observer" if probe and probe.observer else arm
        trial, is_second = divmod(calls[arm], 2)
        calls[arm] += 1
        now[0] += seconds[arm][trial] if is_second else 0.1

    monkeypatch.setattr(stage, "split_minibatches", lambda whole, _: iter([whole]))
    monkeypatch.setattr(stage, "split_micro_batches", lambda first, _: [first])
    monkeypatch.setattr(stage.MicroBatchCut, "from_config", lambda _: None)
    monkeypatch.setattr(stage.time, "perf_counter", lambda: now[0])
    probed = hooks()
    found = probed._time_gradients(
        _begin(probed, 0),
        updater=types.SimpleNamespace(gradient=gradient),
        params="params",
        sampling="sampling",
    )
    assert found == {"no_probe": 2.0, "features": 3.0, "observer": 4.0}
