"""Stage `train` by its parts: each runs once a step, on the previous part's result."""

import dataclasses
import json
import types

import pytest

from rlvr_jax.stages import train as stage
from tests.support.stand_ins import CONFIG, stand_in

STEPS = CONFIG.train.steps


@dataclasses.dataclass(frozen=True)
class State:
    """Stands in for a step's state after `done` steps."""

    done: int
    device: object
    checked: int = -1
    timing: str = "timing"
    difficulty: str = "difficulty"

    @property
    def doctor(self):
        return types.SimpleNamespace(num_steps=self.done)

    def to_json(self):
        return {"done": self.done}


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Returns the calls of a run of stand-ins, in order, and the context."""
    seen = []
    with stand_in(tmp_path) as found:
        ctx = found.ctx
        array = ctx.setup.replicate({"x": 1.0})
        trainer = types.SimpleNamespace(
            setup=ctx.setup,
            pool="pool",
            trainable=types.SimpleNamespace(frozen=()),
            end_probe=lambda *args, **more: seen.append(("end", args, more)),
        )

        def collect(trainer, state, step, *, timer):
            seen.append(("collect", state.done, step))
            return types.SimpleNamespace(step=step, sampled_tokens=9), state

        def update(trainer, state, step, rollouts, *, timer):
            seen.append(("update", state.done, step, rollouts.step))
            return types.SimpleNamespace(
                number=step, probe_step=f"probe {step}", messages=("of the probe",)
            )

        def after(trainer, state, step, rollouts, update):
            seen.append(("next", step, rollouts.step, update.number))
            return dataclasses.replace(state, done=step + 1)

        def measure(trainer, state, rollouts, update):
            seen.append(("metrics", state.done, rollouts.step, update.number))
            return {
                "reward/mean": 0.5,
                "groups/nonzero_std": 1.0,
                "rollout/length_mean": 3.0,
                "optimizer/skipped": 0.0,
                "curriculum/fallback": 0.0,
            }

        def check(trainer, state, step, metrics):
            seen.append(("check", state.done, step, metrics["reward/mean"]))
            return dataclasses.replace(state, checked=step), ["an alarm"]

        def time(trainer, state, rollouts, *, timer, is_timed):
            seen.append(("time", state.checked, rollouts.step, is_timed))
            return dataclasses.replace(state, timing=step_of(state)), {"time/x_s": 2.0}

        def step_of(state):
            return f"timing {state.done - 1}"

        def evaluate(trainer, state, step):
            seen.append(("evaluate", state.done, step))
            return {"eval/pass@1": 0.25}

        def save(trainer, step, rollouts, update):
            seen.append(("save", step, rollouts.step, update.number))

        monkeypatch.setattr(
            stage.Trainer, "open", lambda ctx: seen.append(("open",)) or trainer
        )
        monkeypatch.setattr(stage, "resume_or_init", _resume(array))
        monkeypatch.setattr(stage, "collect_step", collect)
        monkeypatch.setattr(stage, "update_policy", update)
        monkeypatch.setattr(stage, "next_state", after)
        monkeypatch.setattr(stage, "step_metrics", measure)
        monkeypatch.setattr(stage, "check_health", check)
        monkeypatch.setattr(stage, "measure_time", time)
        monkeypatch.setattr(stage, "evaluate_if_due", evaluate)
        monkeypatch.setattr(stage, "save_if_due", save)
        monkeypatch.setattr(
            stage, "write_difficulty", lambda *args: seen.append(("write", *args[1:]))
        )
        monkeypatch.setattr(stage.throughput, "summary", lambda *_, **__: {"mfu": 1})
        monkeypatch.setattr(stage, "count_band_moves", lambda *_: {})
        yield seen, ctx


def _resume(array):
    def resume(trainer, steps):
        device, saved = steps.resume_or_init(lambda: array, lambda: array)
        return State(saved["done"] if saved else 0, device)

    return resume


def test_a_step_learns_then_is_judged_and_saved_by_what_came_of_it(calls):
    seen, ctx = calls
    stage.train(ctx)
    expected = [("open",)]
    for step in range(STEPS):
        expected += [
            ("collect", step, step),
            ("update", step, step, step),
            ("next", step, step, step),
            ("metrics", step + 1, step, step),
            ("check", step + 1, step, 0.5),
            ("time", step, step, step > 0),
            ("evaluate", step + 1, step),
            ("save", step, step, step),
        ]
    assert seen[: len(expected)] == expected
    (name, (state, probe_step), more), written = seen[len(expected) :]
    assert (name, state.done, probe_step) == ("end", STEPS, f"probe {STEPS - 1}")
    assert more == {"num_steps": STEPS}
    assert written == ("write", "pool", "difficulty")
    assert ctx.workdir.read_summary()["throughput"] == {"mfu": 1}


def test_a_steps_measurements_are_in_its_line_of_metrics(calls):
    _, ctx = calls
    stage.train(ctx)
    lines = (ctx.workdir.path / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == STEPS
    for line in map(json.loads, lines):
        assert (line["eval/pass@1"], line["time/x_s"]) == (0.25, 2.0)


def test_what_the_probe_and_the_doctor_say_is_logged(calls, capsys):
    _, ctx = calls
    stage.train(ctx)
    shown = capsys.readouterr()
    for message in ("of the probe", "an alarm"):
        assert (shown.out + shown.err).count(message) == STEPS


def test_a_run_that_was_cut_does_the_steps_that_are_left(calls, monkeypatch):
    """Its first step compiles again, so that step is not timed."""
    seen, ctx = calls
    real = stage.collect_step

    def cut(trainer, state, step, *, timer):
        if step == 3:
            raise KeyboardInterrupt
        return real(trainer, state, step, timer=timer)

    monkeypatch.setattr(stage, "collect_step", cut)
    with pytest.raises(KeyboardInterrupt):
        stage.train(ctx)
    monkeypatch.setattr(stage, "collect_step", real)
    seen.clear()
    stage.train(ctx)
    steps = [call[1:] for call in seen if call[0] == "collect"]
    assert steps == [(3, 3), (4, 4)]
    timed = [call[-1] for call in seen if call[0] == "time"]
    assert timed == [False, True]


@pytest.mark.parametrize("frozen", [(), ("the base policy",)])
def test_frozen_weights_are_no_work_of_the_update(calls, monkeypatch, frozen):
    _, ctx = calls
    told = []
    stage.Trainer.open(ctx).trainable.frozen = frozen
    monkeypatch.setattr(
        stage.throughput, "summary", lambda _, **more: told.append(more["frozen"])
    )
    stage.train(ctx)
    assert told == [bool(frozen)]
