"""The parts of a training step, and the values that they pass on, by the config."""

import dataclasses
import types

import jax
import numpy as np
import pytest

from rlvr_jax.config import Config, LossConfig, ProbeConfig, RFGOConfig, TrainConfig
from rlvr_jax.data import ProblemOutcome
from rlvr_jax.data.difficulty import init_difficulty
from rlvr_jax.metrics.doctor import DoctorState
from rlvr_jax.probe.sae import SAEProbeConfig
from rlvr_jax.run.throughput import StepTimer, Timing
from rlvr_jax.run.trainable import TrainableParams
from rlvr_jax.stages import trainer as stage
from rlvr_jax.stages.trainer_state import TrainerState
from rlvr_jax.types import Prompts, Rollouts
from tests.support.stand_ins import CONFIG, stand_in

PROBED = {"probe": SAEProbeConfig(num_problems=8, num_reference_texts=8)}


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Returns a function from a config to its trainer and its Updater's arguments."""
    made = []

    def updater(graphdef, objective, **settings):
        made.append({"graphdef": graphdef, "objective": objective, **settings})
        return "updater"

    def split(setup, init):
        return TrainableParams(
            setup=setup, init=lambda: f"copy of {init()}", abstract="shapes"
        )

    monkeypatch.setattr(stage, "Updater", updater)
    monkeypatch.setattr(stage, "split_trainable", split)
    monkeypatch.setattr(stage, "load_stage_params", lambda ctx, name: name)
    monkeypatch.setattr(stage.ProbeCallback, "open", lambda ctx, trainable: None)

    def make(config=CONFIG):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        with stand_in(folder, config) as found:
            return stage.Trainer.open(found.ctx), made[-1]

    return make


def _train(probe=CONFIG.probe, **changes):
    train = dataclasses.replace(CONFIG.train, **changes)
    return dataclasses.replace(CONFIG, train=train, probe=probe)


def test_the_update_is_rls_over_all_its_optimizer_steps(opened):
    """Five batches of two minibatches, two epochs each: the schedule has 20 steps."""
    trainer, made = opened(_train(num_epochs=2))
    assert made["optimizer"] == CONFIG.train.optimizer != CONFIG.sft.optimizer
    assert made["total_steps"] == 5 * 2 * 2
    assert made["seed"] == CONFIG.seed != 0
    assert made["graphdef"] == trainer.setup.graphdef
    assert made["probe"] is None


def test_rl_samples_and_scores_by_its_own_settings(opened):
    trainer, _ = opened()
    sampling = CONFIG.train.sampling
    assert trainer.sampling.temperature == np.float32(sampling.temperature)
    assert trainer.sampling.top_p == np.float32(sampling.top_p)
    assert sampling.temperature != CONFIG.eval.sampling.temperature


def test_each_batch_has_a_separate_key_from_the_seed(opened):
    trainer, _ = opened()
    other, _ = opened(dataclasses.replace(CONFIG, seed=8))
    stream = trainer.setup.stream_key("train")
    keys = set()
    for one in (trainer, other):
        for n in range(4):
            keys.add(tuple(jax.random.key_data(one.batch_key(np.uint32(n))).tolist()))
    assert len(keys) == 8
    found = jax.random.key_data(trainer.batch_key(np.uint32(3)))
    expected = jax.random.key_data(jax.random.fold_in(stream, 3))
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("changes", "has_reference"),
    [
        ({}, False),
        ({"loss": LossConfig(kl_coef=0.1)}, True),
        ({"rfgo": RFGOConfig(lambda_w=0.1, token_score="ref_diff")} | PROBED, True),
        ({"rfgo": RFGOConfig(lambda_p=0.1, features_of="reference")} | PROBED, True),
        ({"rfgo": RFGOConfig(lambda_w=0.1)} | PROBED, False),
    ],
)
def test_the_reference_is_the_policy_before_rl_where_something_reads_it(
    opened, changes, has_reference
):
    trainer, _ = opened(_train(**changes))
    assert trainer.reference == ("copy of sft" if has_reference else None)


def _estimates():
    return dataclasses.replace(init_difficulty(3), num_batches=2)


def _state(**changes):
    return TrainerState(
        **{
            "device": types.SimpleNamespace(params="params", step=np.int32(6)),
            "difficulty": _estimates(),
            "doctor": DoctorState(num_steps=4),
            "timing": Timing(steps=2),
            "rfgo": None,
        }
        | changes
    )


class Steps:
    """Stands in for a stage's steps, with or without a checkpoint."""

    def __init__(self, saved=None):
        self._saved = saved

    def resume_or_init(self, init, abstract):
        if self._saved is None:
            return init(), None
        return abstract(), self._saved


def _trainer_to_begin(monkeypatch, *, has_optimizer, num_batches=0):
    trainable = types.SimpleNamespace(init=lambda: "start", abstract="shapes")
    updater = types.SimpleNamespace(
        init=lambda params: f"new state of {params}",
        abstract_state=lambda shapes: f"state of {shapes}",
    )
    lineage = types.SimpleNamespace(has_optimizer=True) if has_optimizer else None
    monkeypatch.setattr(stage, "count_earlier_batches", lambda workdir: num_batches)
    monkeypatch.setattr(
        stage, "initial_difficulty", lambda ctx, pool: init_difficulty(3)
    )
    monkeypatch.setattr(
        stage, "load_start_state", lambda workdir, abstract: f"taken along: {abstract}"
    )
    return types.SimpleNamespace(
        trainable=trainable,
        updater=updater,
        probe=None,
        pool="pool",
        ctx=types.SimpleNamespace(workdir="workdir", lineage=lineage),
    )


def test_a_new_run_begins_with_a_new_optimizer_and_the_first_batch(monkeypatch):
    trainer = _trainer_to_begin(monkeypatch, has_optimizer=False)
    state = stage.resume_or_init(trainer, Steps())
    assert state.device == "new state of start"
    assert state.difficulty.num_batches == 0
    assert (state.doctor, state.timing) == (DoctorState(), Timing())
    assert state.pending == ()


def test_a_run_that_goes_on_from_another_asks_the_batches_after_its(monkeypatch):
    trainer = _trainer_to_begin(monkeypatch, has_optimizer=True, num_batches=17)
    state = stage.resume_or_init(trainer, Steps())
    assert state.device == "taken along: state of shapes"
    assert state.difficulty.num_batches == 17


def test_a_run_that_was_cut_begins_with_its_checkpoint(monkeypatch):
    trainer = _trainer_to_begin(monkeypatch, has_optimizer=True, num_batches=17)
    saved = _state().to_json()
    state = stage.resume_or_init(trainer, Steps(saved))
    assert state.device == "state of shapes"
    assert state.to_json() == saved
    assert state.difficulty.num_batches == 2


def _evaluating(monkeypatch, every):
    asked = []

    def evaluate(ctx, params, name, *, weight_version, after_batch):
        after_batch()
        asked.append((params, name, weight_version))
        return "graded"

    scores = {"pass@k": {1: {"mean": 0.25}, 4: {"mean": 0.5}}}
    monkeypatch.setattr(stage, "evaluate_held_out", evaluate)
    monkeypatch.setattr(stage, "summarize_completions", lambda config, graded: scores)
    trainer = types.SimpleNamespace(
        ctx="ctx",
        setup=types.SimpleNamespace(
            config=types.SimpleNamespace(eval=types.SimpleNamespace(every=every))
        ),
        trainable=types.SimpleNamespace(merge_frozen=lambda params: f"whole {params}"),
    )
    found = [stage.evaluate_if_due(trainer, _state(), step) for step in range(6)]
    return asked, found


def test_held_out_problems_are_sampled_after_every_third_step(monkeypatch):
    asked, found = _evaluating(monkeypatch, 3)
    assert [name for _, name, _ in asked] == ["eval at 3", "eval at 6"]
    assert {(params, version) for params, _, version in asked} == {("whole params", 6)}
    scores = {"eval/pass@1": 0.25, "eval/pass@4": 0.5}
    assert found == [{}, {}, scores, {}, {}, scores]


def test_without_an_interval_none_is_sampled(monkeypatch):
    assert _evaluating(monkeypatch, 0) == ([], [{}] * 6)


def test_completions_of_every_third_step_and_the_last_are_saved(tmp_path, monkeypatch):
    saved, shown = [], []
    monkeypatch.setattr(
        stage, "training_rows", lambda graded, step, **parts: (step, graded, parts)
    )
    ctx = types.SimpleNamespace(
        workdir=types.SimpleNamespace(
            write_rollouts=lambda *args: saved.append(args),
            write_token_stats=lambda *args: saved.append(args),
        ),
        writer=types.SimpleNamespace(
            write_samples=lambda *args, **more: shown.append((args, more))
        ),
    )
    trainer = types.SimpleNamespace(ctx=ctx, setup=types.SimpleNamespace(config=CONFIG))
    for step in range(CONFIG.train.steps):
        rollouts = types.SimpleNamespace(
            groups=types.SimpleNamespace(
                graded=[], rollouts=types.SimpleNamespace(lengths=f"lengths {step}")
            ),
            rewards=f"rewards {step}",
            advantages=f"advantages {step}",
            reward_parts=f"parts {step}",
        )
        result = types.SimpleNamespace(token_stats=f"tokens {step}")
        update = types.SimpleNamespace(result=result)
        stage.save_if_due(trainer, step, rollouts, update)
    assert [args[1] for args in saved if args[0] == "train"] == [0, 3, 4]
    assert [args for args in saved if args[0] != "train"] == [
        (step, f"tokens {step}") for step in (0, 3, 4)
    ]
    for (_, step, rows), (args, more) in zip(
        [args for args in saved if args[0] == "train"], shown, strict=True
    ):
        parts = {"rewards_PG": f"rewards {step}", "advantages_PG": f"advantages {step}"}
        assert rows == (step, [], parts | {"reward_parts": f"parts {step}"})
        assert args == ("train", step)
        assert more["histograms"]["histogram/advantage"] == f"advantages {step}"


def _next(monkeypatch, *, is_timed=True, staleness=0):
    """Returns the state after a step that solved problem 1 in one of two samples."""
    config = dataclasses.replace(
        CONFIG,
        difficulty=dataclasses.replace(CONFIG.difficulty, pool_size=3),
        train=dataclasses.replace(
            CONFIG.train,
            staleness=staleness,
            loss=LossConfig(tis_cap=2.0),
            max_logprob_mismatch=0.3,
        ),
        probe=ProbeConfig(max_unexplained_growth=0.4, max_splice_cost=0.2),
        log=dataclasses.replace(CONFIG.log, alarm_window=9),
    )
    checked = []

    def check(state, step, metrics, **settings):
        checked.append((state, step, dict(metrics), settings))
        return DoctorState(num_steps=state.num_steps + 1), ["an alarm"]

    monkeypatch.setattr(stage.doctor, "check_step", check)
    monkeypatch.setattr(
        stage, "rollout_metrics", lambda graded, **parts: {"rollout/k": parts["k"]}
    )
    rollouts = types.SimpleNamespace(
        groups=types.SimpleNamespace(graded=[]),
        rewards=None,
        advantages=None,
        has_signal=None,
        judged=None,
        reward_parts={"correctness": np.ones(2), "random": np.array([0.0, 1.0])},
        metrics={"curriculum/fallback": 0.5},
        outcomes=[
            ProblemOutcome(
                problem_index=1, num_correct=1, num_graded=2, answer_entropy=0.0
            )
        ],
        num_batches=3,
        sampled_tokens=100,
        trained_tokens=40,
    )
    update = stage.StepUpdate(
        result=types.SimpleNamespace(metrics={"loss/total": 1.0}, state="after"),
        rfgo="scales",
        probe_step=None,
        probe_metrics={"probe/l0": 8.0},
    )
    trainer = types.SimpleNamespace(setup=types.SimpleNamespace(config=config))
    timer = StepTimer()
    timer.lap("rollout")
    state = stage.next_state(trainer, _state(), 5, rollouts, update)
    metrics = stage.step_metrics(trainer, state, rollouts, update)
    state, alarms = stage.check_health(trainer, state, 5, metrics)
    state, seconds = stage.measure_time(
        trainer, state, rollouts, timer=timer, is_timed=is_timed
    )
    return state, metrics, seconds, alarms, checked


def test_alarms_have_the_limits_of_the_runs_config(monkeypatch):
    *_, ((*_, limits),) = _next(monkeypatch)
    assert (limits["total_steps"], limits["window"]) == (5, 9)
    assert (limits["max_logprob_mismatch"], limits["max_splice_cost"]) == (0.3, 0.2)


def test_the_next_state_knows_what_this_step_found(monkeypatch):
    state, metrics, _, alarms, ((before, step, told, _),) = _next(monkeypatch)
    assert (state.device, state.rfgo) == ("after", "scales")
    assert state.difficulty.num_batches == 2 + 3
    assert state.difficulty.mean.tolist() == [0.5, 0.5, 0.5]
    assert state.difficulty.gather([1]).cdf(0.5)[0] == pytest.approx(0.5)
    assert state.doctor == DoctorState(num_steps=5)
    assert (before, step) == (DoctorState(num_steps=4), 5)
    assert alarms == ["an alarm"]
    assert metrics["reward/correctness"] == 1.0
    assert metrics["reward/random"] == 0.5
    assert metrics["rollout/k"] == CONFIG.eval.ks
    assert (metrics["loss/total"], metrics["probe/l0"]) == (1.0, 8.0)
    assert told == metrics


def test_only_a_timed_step_counts_in_the_throughput(monkeypatch):
    state, *_ = _next(monkeypatch)
    assert state.timing.steps == 3
    assert state.timing.sampled_tokens == 100
    assert state.timing.trained_tokens == 40
    untimed, *_ = _next(monkeypatch, is_timed=False)
    assert untimed.timing == Timing(steps=2)


def test_overlap_is_reported_for_a_run_that_draws_ahead(monkeypatch):
    _, _, seconds, *_ = _next(monkeypatch)
    assert [*seconds] == ["time/rollout_s"]
    _, _, seconds, *_ = _next(monkeypatch, staleness=1)
    assert seconds["time/overlap_s"] == 0.0


@pytest.mark.parametrize("masks", [False, True])
def test_truncated_completions_are_left_out_where_the_loss_says_so(monkeypatch, masks):
    finished = np.array([True, False, True, True])
    rollouts = Rollouts(
        prompts=Prompts(
            tokens=np.ones((2, 1), np.int32),
            lengths=np.ones(2, np.int32),
            uid=np.arange(2, dtype=np.uint32),
        ),
        tokens=np.ones((4, 3), np.int32),
        lengths=np.full(4, 3, np.int32),
        logprobs=np.zeros((4, 3), np.float32),
        finished=finished,
        weight_version=np.int32(0),
    )
    sampled = types.SimpleNamespace(
        groups=types.SimpleNamespace(rollouts=rollouts),
        advantages=np.ones((2, 2), np.float32),
        bands=np.zeros(2, np.int32),
        external=None,
    )
    loss = LossConfig(mask_truncated=masks)
    setup = types.SimpleNamespace(
        config=Config(train=TrainConfig(loss=loss)), shard_batch=None
    )
    trainer = types.SimpleNamespace(
        setup=setup, probe=None, updater=None, reference=None, sampling=None
    )
    monkeypatch.setattr(stage, "run_updates", lambda *_, batch, **__: batch)
    state = types.SimpleNamespace(rfgo=None, device=None)
    update = stage.update_policy(trainer, state, 0, sampled, timer=StepTimer())
    batch = update.result
    if masks:
        assert batch.left_out.tolist() == (~finished).tolist()
    else:
        assert batch.left_out is None


@pytest.mark.parametrize(("share", "warned"), [(0.25, True), (0.0, False)])
def test_prompts_without_an_eligible_problem_are_warned_of(opened, share, warned):
    trainer, _ = opened()
    lines = stage.warn_of_fallback(trainer, _state(), {"curriculum/fallback": share})
    name = CONFIG.curriculum.tags()["name"]
    assert lines == warned * [
        f"warning: curriculum.name={name} found no eligible problem for 25 % of the "
        "prompts; they come from all 3 problems (before RL: easy 0, medium 0, hard 0, "
        "unknown 3)"
    ]
