"""Stage `eval`: which policy answers which problems, and how bands divide them."""

import collections

import numpy as np
import pytest

from rlvr_jax.data import Pool, ProblemOutcome
from rlvr_jax.data.difficulty_summary import difficulty_rows
from rlvr_jax.stages import eval as stage
from rlvr_jax.stages.difficulty import update_difficulty
from tests.support.stand_ins import CONFIG, name_policies, settings_of, stand_in

NUM_PROBLEMS, NUM_SAMPLES = 11, 2
LAST_VERSION = 10  # 5 batches of two optimizer steps


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Returns a run after RL that trained on problems 2, 5, 6 and 9 of the pool."""
    name_policies(monkeypatch, stage)
    monkeypatch.setattr(stage, "write_probe_noise", lambda ctx: None)
    monkeypatch.setattr(stage, "params_sha256", lambda params: f"sha of {params}")
    monkeypatch.setattr(
        stage, "summarize_memorization", lambda *args: _remember(found, args)
    )
    with stand_in(tmp_path) as found:
        _write_difficulty(found.ctx, asked=(2, 5, 6, 9))
        yield found


def _remember(run, args):
    setup, params, seen, fresh = args
    assert setup is run.ctx.setup
    return {
        "params": params,
        "seen": [p.id for p in seen],
        "fresh": [p.id for p in fresh],
    }


def _write_difficulty(ctx, *, asked):
    pool = Pool(ctx.setup.sources["train"], ctx.setup.config)
    estimates = pool.initial()
    for numbers, step in ((range(pool.size), -1), (asked, 3)):
        outcomes = [
            ProblemOutcome(
                problem_index=n, num_correct=1, num_graded=2, answer_entropy=0.0
            )
            for n in numbers
        ]
        estimates = update_difficulty(ctx.setup.config, estimates, outcomes, step=step)
    ctx.workdir.write_difficulty(
        difficulty_rows(
            estimates,
            pool.problem_ids(),
            pool.levels(),
            config=ctx.setup.config.difficulty,
        )
    )


def test_both_policies_answer_the_held_out_problems_on_the_same_keys(run):
    stage.evaluate(run.ctx)
    problems = run.ctx.setup.problems("eval", NUM_PROBLEMS)
    prompts = [run.prompt_of(problem) for problem in problems]
    batches = [prompts[:8], [*prompts[8:], *[prompts[8]] * 5]]
    assert [draw.prompts for draw in run.draws] == batches * 2
    asked = [(draw.policy, draw.version) for draw in run.draws]
    assert asked == [("sft", 0)] * 2 + [("train", LAST_VERSION)] * 2
    for draw in run.draws:
        assert draw.key == run.key_of("eval")
        assert draw.settings == settings_of(CONFIG.eval.sampling)
        assert draw.settings != settings_of(CONFIG.train.sampling)
        assert (draw.num_samples, draw.max_new_tokens) == (NUM_SAMPLES, 20)


def test_scores_and_the_gain_follow_the_verdicts_paired_by_problem(run):
    stage.evaluate(run.ctx)
    found = run.ctx.workdir.read_summary()["eval"]
    half = len(run.judged) // 2
    rates = [_pass_rates(run.judged[:half]), _pass_rates(run.judged[half:])]
    for when, by_problem in zip(("before", "after"), rates, strict=True):
        scores = found[when]["pass@k"]["1"]
        assert scores["mean"] == pytest.approx(np.mean(list(by_problem.values())))
    gains = [rates[1][name] - rates[0][name] for name in rates[0]]
    assert found["gain"]["pass@k"]["1"]["mean"] == pytest.approx(np.mean(gains))
    assert np.mean(gains) != 0


def _pass_rates(judged):
    """Returns the share of correct samples; unverified ones are not correct."""
    by_problem = collections.defaultdict(list)
    for name, _, status in judged:
        by_problem[name].append(status == "correct")
    return {name: np.mean(right) for name, right in by_problem.items()}


def test_both_are_cut_by_what_the_policy_before_rl_made_of_the_problems(run):
    stage.evaluate(run.ctx)
    first = run.judged[: len(run.judged) // 2]
    expected = {}
    for name in {name for name, *_ in first}:
        statuses = [status for other, _, status in first if other == name]
        verified = [s for s in statuses if s != "unverified"]
        right = verified.count("correct")
        if not verified:
            expected[name] = "unknown"
        elif right in (0, len(verified)):
            expected[name] = "easy" if right else "hard"
        else:
            expected[name] = "medium"
    assert len(set(expected.values())) > 2
    for when in ("before", "after"):
        rows = run.ctx.workdir.read_rollouts(f"eval_{when}", 0)
        assert {row["id"]: row["band"] for row in rows} == expected
        assert {(row["stage"], row["step"]) for row in rows} == {(f"eval_{when}", 0)}


def test_an_interrupted_evaluation_samples_only_the_missing_problems(run):
    stage.evaluate(run.ctx)
    whole = run.ctx.workdir.read_summary()
    kept = dict(whole, eval={"before": whole["eval"]["before"]})
    (run.ctx.workdir.path / "summary.json").unlink()
    run.ctx.workdir.update_summary(kept)
    asked = len(run.draws)
    stage.evaluate(run.ctx)
    assert [draw.policy for draw in run.draws[asked:]] == ["train"] * 2
    assert run.ctx.workdir.read_summary()["eval"] == whole["eval"]


def test_memorization_sets_what_rl_asked_beside_what_nobody_was_trained_on(run):
    """Stage `difficulty` tried all 20 of the pool; RL trained on four: three count."""
    stage.evaluate(run.ctx)
    found = run.ctx.workdir.read_summary()["eval"]
    pool = run.ctx.setup.problems("train", 20)
    held_out = run.ctx.setup.problems("eval", 12)
    for when, policy in (("before", "sft"), ("after", "train")):
        measured = found[when]["memorization"]
        assert measured["params"] == policy
        assert measured["seen"] == [pool[n].id for n in (2, 5, 6)]
        assert measured["fresh"] == [problem.id for problem in held_out]
    assert not {p.prompt for p in pool} & {p.prompt for p in held_out}


def test_the_digest_in_the_summary_is_of_the_policy_after_rl(run):
    stage.evaluate(run.ctx)
    assert run.ctx.workdir.read_summary()["params_sha256"] == "sha of train"


def test_held_out_scores_in_mid_training_stop_for_no_signal(run):
    """The caller passes the function that runs after each batch."""
    calls = []
    graded = stage.evaluate_held_out(
        run.ctx,
        "now",
        "eval at 2",
        weight_version=4,
        after_batch=lambda: calls.append(len(run.draws)),
    )
    assert calls == [1, 2]
    assert len(graded) == NUM_PROBLEMS * NUM_SAMPLES
    assert {(draw.policy, draw.version) for draw in run.draws} == {("now", 4)}
    assert [one.problem.id for one in graded[::NUM_SAMPLES]] == [
        problem.id for problem in run.ctx.setup.problems("eval", NUM_PROBLEMS)
    ]


@pytest.mark.parametrize(
    ("score", "text"),
    [
        ({"mean": 0.5, "low": 0.25, "high": 0.756}, "pass@2 50.0 % [25.0, 75.6]"),
        ({"mean": 0.5, "low": None, "high": None}, "pass@2 50.0 %"),
    ],
)
def test_an_evaluations_score_is_printed_with_its_interval(score, text):
    scores = {"pass@k": {"2": score, "4": score | {"mean": 1.0}}}
    assert stage.describe_score("after", scores) == f"eval after: {text}"
