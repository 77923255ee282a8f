"""A run, call by call, against independent oracles.

One run with every option on is traced, and every test recomputes a part of it by hand.
A run that makes the same mistake each time passes tests that compare it with itself,
but fails here.
"""

import collections
import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from scipy.special import betainc

from job_jax.checkpoint import StageCheckpoints, params_sha256
from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import to_json
from rlvr_jax.config import (
    AdvantageConfig,
    Config,
    DifficultyConfig,
    DynamicSamplingConfig,
    EvalConfig,
    FeatureSelectionConfig,
    LogConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    ProbeSAEConfig,
    RFGOConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.data import Loader
from rlvr_jax.data.curricula.variance import Variance
from rlvr_jax.main import main
from rlvr_jax.probe.sae import SAEProbeConfig
from rlvr_jax.rollouts.show import read_rows
from rlvr_jax.run.workdir import rollouts_file, saved_rollouts
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from sae_jax.config import OptimizerConfig as SAEOptimizerConfig
from sae_jax.config import SAEConfig
from sae_jax.config import TrainConfig as SAETrainConfig
from tests.support.command import completions, metrics, summary
from tests.support.policies import forward
from tests.support.tracing import traced

SFT, STEPS, P, G, POOL, T = 3, 4, 8, 4, 24, 24
KEPT = 43  # completions of stage difficulty, of 48
BUFFER, HARD, CAP, DECAY = 20, 0.4, 0.5, 0.7
MIX = ChainMix(chain_lengths=(1, 2))
SAMPLING = SamplingConfig(max_new_tokens=T)
OPTIMIZER = OptimizerConfig(learning_rate=3e-3, warmup_steps=0)
CONFIG = Config(
    name="traced",
    task=FiniteFieldTask(modulus=5, sft=MIX, train=MIX, eval=MIX),
    model=ModelConfig(
        num_layers=1,
        hidden_size=16,
        intermediate_size=16,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
    ),
    mesh=MeshConfig(cpu_devices=8),
    sft=SFTConfig(steps=SFT, batch_size=8, optimizer=OPTIMIZER),
    difficulty=DifficultyConfig(num_samples=2, pool_size=POOL, hard_below=HARD),
    curriculum=Variance(uniform_fraction=0.25),
    dynamic_sampling=DynamicSamplingConfig(max_rounds=2),
    train=TrainConfig(
        steps=STEPS,
        batch_size=P,
        group_size=G,
        overlong_buffer=BUFFER,
        old_logprobs="trainer",
        optimizer=OPTIMIZER,
        advantage=AdvantageConfig(overhard_advantage="clip", overhard_clip=CAP),
        loss=LossConfig(kl_coef=0.1),
        rfgo=RFGOConfig(lambda_w=0.5, lambda_p=0.1, scale_update_rate=0.25),
        sampling=SAMPLING,
    ),
    probe=SAEProbeConfig(
        num_problems=8,
        num_reference_texts=8,
        log_every=2,
        measure_overhead=False,
        sae=ProbeSAEConfig(
            architecture=SAEConfig(latents=32, k=4),
            optimizer=SAEOptimizerConfig(warmup_steps=1),
            train=SAETrainConfig(steps=4, num_seeds=1, threshold_start_step=1),
            batch_size=32,
        ),
        features=FeatureSelectionConfig(
            method="list", latents=(1, 2, 5), control="shuffled_weights"
        ),
    ),
    eval=EvalConfig(
        num_problems=8,
        num_samples=2,
        k=(1, 2),
        every=3,
        batch_size=8,
        bootstrap_resamples=20,
        sampling=SAMPLING,
    ),
    checkpoint=CheckpointConfig(every=1, max_to_keep=10),
    log=LogConfig(rollouts_every=1, difficulty_rollouts=KEPT),
    prompt_pad_multiple=32,
    completion_pad_multiple=T,
)

BANDS = ("easy", "medium", "hard", "unknown")
REWARD = {"correct": 1.0, "incorrect": 0.0}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The workdir of the traced run, and its trace."""
    folder = tmp_path_factory.mktemp("traced")
    return _done(folder / "run", folder)


def _done(workdir, folder):
    record = folder / "config.json"
    record.write_text(json.dumps({"config": to_json(CONFIG)}))
    with traced() as trace:
        assert main([f"--config={record}", f"--workdir={workdir}"]) == 0
    return workdir, trace


def _params(workdir, trace, stage, step):
    with (
        jax.set_mesh(trace.setup.mesh),
        StageCheckpoints(workdir / "checkpoints" / stage) as checkpoints,
    ):
        return checkpoints.restore_params(step, trace.setup.abstract_params())


def _saved(step):
    """Returns stage and step of the checkpoint at the start of a step of RL."""
    return ("train", step) if step else ("sft", SFT)


def _digest(workdir, trace, step):
    return params_sha256(_params(workdir, trace, *_saved(step)))


def _drawn(events):
    """Returns the rounds of a training step: its samples with their verdicts."""
    samples = [e for e in events if e.name == "sample" and e.group_size == G]
    judged = [e for e in events if e.name == "judge" and len(e.pairs) == P * G]
    return list(zip(samples, judged, strict=True))


def _groups(drawn):
    """Returns (problem id, statuses, row of the first completion, round) of each."""
    found = []
    for number, (_, judged) in enumerate(drawn):
        for p in range(P):
            group = slice(p * G, (p + 1) * G)
            (name,) = {problem.id for problem, _ in judged.pairs[group]}
            statuses = [verdict.status for verdict in judged.verdicts[group]]
            found.append((name, statuses, p * G, number))
    return found


def _learned_from(events):
    """Returns the groups in the order drawn, groups with a preference first.

    Which of too many are left out is drawn by seed and number of the first batch.
    """
    drawn = _drawn(events)
    groups = _groups(drawn)
    if len(drawn) == 1:
        return groups
    number = next(e.round for e in events if e.name == "ask")
    draw = np.random.default_rng((CONFIG.seed, number, 0x50))
    order = draw.permutation(len(groups)).tolist()
    split = [{"correct", "incorrect"} <= set(statuses) for _, statuses, *_ in groups]
    first = [i for i in order if split[i]][:P]
    rest = [i for i in order if not split[i]][: P - len(first)]
    return [groups[i] for i in sorted(first + rest)]


class Posteriors:
    """The pool by hand: Beta(1/2, 1/2); evidence fades at every visit."""

    def __init__(self, trace):
        self.counts = collections.defaultdict(lambda: [0.0, 0.0])
        for steps in trace.stage("difficulty"):
            (judged,) = [e for e in steps if e.name == "judge"]
            by_problem = collections.defaultdict(list)
            for (problem, _), verdict in zip(
                judged.pairs, judged.verdicts, strict=True
            ):
                by_problem[problem.id].append(verdict.status)
            self.visit(by_problem)

    def visit(self, by_problem):
        for name, statuses in by_problem.items():
            right, wrong = statuses.count("correct"), statuses.count("incorrect")
            if right + wrong:
                old = self.counts[name]
                self.counts[name] = [DECAY * old[0] + right, DECAY * old[1] + wrong]

    def after(self, drawn):
        by_problem = collections.defaultdict(list)
        for name, statuses, *_ in _groups(drawn):
            by_problem[name] += statuses
        self.visit(by_problem)

    def mean(self, name):
        right, wrong = self.counts[name]
        return (right + 0.5) / (right + wrong + 1.0)


def test_every_stage_samples_the_right_policy(whole):
    workdir, trace = whole
    before = _digest(workdir, trace, 0)
    assert {
        e.params for s in trace.stage("difficulty") for e in s if e.name == "sample"
    } == {before}
    assert {e.params for e in trace.of("encode")} == {before}
    steps = trace.stage("train")
    assert len(steps) == STEPS
    for step, events in enumerate(steps):
        now = _digest(workdir, trace, step)
        for sampled, _ in _drawn(events):
            assert (sampled.params, sampled.version) == (now, step)
        scored = [e for e in events if e.name == "score"]
        # Only the reference: one optimizer step a batch is on-policy.
        assert [e.params for e in scored] == [before]
        (stepped,) = [e for e in events if e.name == "step"]
        assert stepped.params == now
        assert stepped.after == _digest(workdir, trace, step + 1) != now
    # In mid-training the policy after that step; then the ones before and after RL.
    asked = [e for e in trace.of("sample") if e.group_size == 2][POOL // 8 :]
    after = [_digest(workdir, trace, n) for n in (3, 0, STEPS)]
    assert [e.params for e in asked] == after
    assert [e.version for e in asked] == [3, 0, STEPS]


def test_each_step_queries_its_curriculum_with_its_number(whole):
    """Batch after batch; the count of all earlier batches continues."""
    _, trace = whole
    asked = [
        (step, event.step, event.round)
        for step, events in enumerate(trace.stage("train"))
        for event in events
        if event.name == "ask"
    ]
    assert [of for of, _, _ in asked] == [told for _, told, _ in asked]
    assert [number for _, _, number in asked] == list(range(len(asked)))
    assert len(asked) > STEPS  # some steps drew again


def test_no_two_draws_share_a_key_but_evaluations(whole):
    _, trace = whole
    sampled = trace.of("sample")
    first = POOL // 8
    # The completions that fit the probe, and those it reads again: one key, because
    # their problems differ.
    difficulty, probe = sampled[:first], sampled[first : first + 2]
    evals = [e for e in sampled[first:] if e.group_size == 2]
    train = [e for e in sampled[first + 2 :] if e.group_size == G]
    assert len(train) > STEPS  # some step drew more than one batch
    assert len({e.key for e in train}) == len(train)
    (of_eval,) = {e.key for e in evals}
    (of_difficulty,) = {e.key for e in difficulty}
    (of_probe,) = {e.key for e in probe}
    others = {of_eval, of_difficulty, of_probe}
    assert len(others) == 3
    assert not others & {e.key for e in train}


def test_completions_are_judged_as_they_were_sampled(whole):
    _, trace = whole
    tokenizer = trace.setup.tokenizer
    for events in trace.stage("train"):
        for sampled, judged in _drawn(events):
            r = sampled.rollouts
            prompts = [
                list(tokenizer.encode_prompt(problem.prompt))
                for problem, _ in judged.pairs
            ]
            for b, (_, text) in enumerate(judged.pairs):
                row = b // G
                length = r.prompts.lengths[row]
                assert r.prompts.tokens[row, :length].tolist() == prompts[b]
                assert tokenizer.decode(r.tokens[b, : r.lengths[b]].tolist()) == text
            rows = r.tokens.reshape(P, G, -1)
            assert len(np.unique(rows[0], axis=0)) > 1  # samples of one group differ


def test_rewards_penalty_guard_and_the_unverified_by_hand(whole):
    """From the text of a completion to the advantage of its tokens."""
    workdir, trace = whole
    posteriors, guarded, held = Posteriors(trace), 0, 0
    for step, events in enumerate(trace.stage("train")):
        drawn = _drawn(events)
        groups = _learned_from(events)
        (stepped,) = [e for e in events if e.name == "step"]
        (batch,) = stepped.batches
        rewards, expected = [], []
        for name, statuses, row, number in groups:
            lengths = drawn[number][0].rollouts.lengths[row : row + G]
            known = [REWARD[s] for s in statuses if s != "unverified"]
            mean = sum(known) / max(len(known), 1)
            reward = np.array([REWARD.get(s, mean) for s in statuses])
            reward += np.clip((T - BUFFER - lengths) / BUFFER, -1, 0)
            judged = np.array([s != "unverified" for s in statuses])
            own, advantage = reward[judged], np.zeros(len(statuses))
            if judged.any() and own.std() > 1e-6:
                advantage[judged] = (own - own.mean()) / own.std()
            largest = np.abs(advantage).max()
            if posteriors.mean(name) < HARD and largest > CAP:
                advantage *= CAP / largest
                guarded += 1
            held += largest > CAP and posteriors.mean(name) >= HARD
            rewards.append(reward)
            expected.append(advantage)
        np.testing.assert_allclose(
            batch.advantages, np.ravel(expected), atol=1e-5, rtol=0
        )
        (row,) = [
            r for r in metrics(workdir) if (r["stage"], r["step"]) == ("train", step)
        ]
        assert row["reward/mean"] == pytest.approx(np.mean(rewards), abs=1e-5)
        assert row["reward/std"] == pytest.approx(np.std(rewards), abs=1e-5)
        statuses = [s for _, group, *_ in groups for s in group]
        for status in ("correct", "incorrect", "unverified"):
            share = statuses.count(status) / len(statuses)
            assert row[f"verdict/{status}"] == pytest.approx(share)
        split = [{"correct", "incorrect"} <= set(group) for _, group, *_ in groups]
        assert row["groups/nonzero_std"] == pytest.approx(np.mean(split))
        silent = [not advantage.any() for advantage in expected]
        assert row["advantage/zero_groups"] == pytest.approx(np.mean(silent))
        posteriors.after(drawn)
    assert guarded > 0 < held  # both kinds of group were met


def test_an_update_reads_the_groups_that_were_chosen(whole):
    _, trace = whole
    for events in trace.stage("train"):
        drawn = _drawn(events)
        (stepped,) = [e for e in events if e.name == "step"]
        (batch,) = stepped.batches
        # One optimizer step a batch is on-policy: no pass computes old logprobs.
        (reference,) = [e.found[0] for e in events if e.name == "score"]
        assert batch.on_policy.all()
        for p, (_, _, row, number) in enumerate(_learned_from(events)):
            r = drawn[number][0].rollouts
            for g in range(G):
                b, length = p * G + g, r.lengths[row + g]
                inside = slice(0, length)
                assert batch.lengths[b] == length
                np.testing.assert_array_equal(
                    batch.tokens[b, inside], r.tokens[row + g, inside]
                )
                np.testing.assert_array_equal(
                    batch.old_logprobs[b, inside], r.logprobs[row + g, inside]
                )
                assert (batch.loss_weights[b, inside] > 0).all()
                assert (batch.loss_weights[b, length:] == 0).all()
        width = batch.tokens.shape[1]
        np.testing.assert_array_equal(batch.ref_logprobs, reference[:, :width])


def test_a_probe_gets_the_verdicts_and_the_proxy_candidates(whole):
    _, trace = whole
    codes = {"incorrect": 0, "correct": 1, "unverified": 2}
    for events in trace.stage("train"):
        (stepped,) = [e for e in events if e.name == "step"]
        (batch,) = stepped.batches
        targets = batch.probe_targets
        statuses = [s for _, group, *_ in _learned_from(events) for s in group]
        assert targets.outcomes.tolist() == [codes[s] for s in statuses]
        silent_P = batch.advantages.reshape(P, G).std(axis=1) == 0
        wrong_P = (targets.outcomes.reshape(P, G) == 0).all(axis=1)
        may_PG = targets.proxy_eligible.reshape(P, G)
        assert not may_PG[~(silent_P & wrong_P)].any()


def _logprobs(params, trace, batch):
    """Returns [B, T] from the model, with prompt and completion in one row."""
    B, T_ = batch.tokens.shape
    S = batch.prompt_tokens.shape[1]
    rows, mask = np.zeros((B, S + T_), np.int32), np.zeros((B, S + T_), bool)
    starts = np.repeat(batch.prompt_lengths, G)
    for b, (start, length) in enumerate(zip(starts, batch.lengths, strict=True)):
        rows[b, :start] = batch.prompt_tokens[b // G, :start]
        rows[b, start : start + length] = batch.tokens[b, :length]
        mask[b, : start + length] = True
    with jax.set_mesh(trace.setup.mesh):
        logits = forward(trace.setup.graphdef, params, rows, mask)
    logprobs = np.asarray(jax.nn.log_softmax(logits))
    found = np.zeros((B, T_), np.float32)
    for b, (start, length) in enumerate(zip(starts, batch.lengths, strict=True)):
        places = np.arange(start - 1, start + length - 1)
        found[b, :length] = logprobs[b, places, batch.tokens[b, :length]]
    return found


def test_the_anchor_of_the_kl_is_the_policy_before_rl(whole):
    workdir, trace = whole
    params = _params(workdir, trace, *_saved(0))
    for step, events in enumerate(trace.stage("train")):
        (stepped,) = [e for e in events if e.name == "step"]
        (batch,) = stepped.batches
        expected = _logprobs(params, trace, batch)
        np.testing.assert_allclose(batch.ref_logprobs, expected, atol=1e-4, rtol=0)
        moved = np.abs(batch.ref_logprobs - batch.old_logprobs).max()
        assert (moved > 1e-3) == (step > 0)


def test_an_update_raises_what_was_better_than_its_group(whole):
    """To first order: advantage times the change of a log-probability, summed."""
    workdir, trace = whole
    for step, events in enumerate(trace.stage("train")):
        (stepped,) = [e for e in events if e.name == "step"]
        (batch,) = stepped.batches
        before, after = (
            _logprobs(_params(workdir, trace, *_saved(n)), trace, batch)
            for n in (step, step + 1)
        )
        gain_B = (after - before).sum(axis=1)
        assert (batch.advantages * gain_B).sum() > 0


def test_the_n_th_batch_of_sft_is_the_n_th_and_ends_its_solutions(whole):
    _, trace = whole
    setup = trace.setup
    source, tokenizer = setup.sources["sft"], setup.tokenizer
    seen = []
    for events in trace.stage("sft"):
        (stepped,) = [e for e in events if e.name == "step"]
        (batch,) = stepped.batches
        for b, length in enumerate(batch.lengths.tolist()):
            tokens = batch.tokens[b, :length].tolist()
            assert tokens[-1] == tokenizer.eos_id
            assert tokenizer.eos_id not in tokens[:-1]
            assert (batch.loss_weights[b, :length] > 0).all()
            assert (batch.loss_weights[b, length:] == 0).all()
            n = batch.prompt_lengths[b]
            seen.append(
                (
                    batch.prompt_tokens[b, :n].tolist(),
                    tokenizer.decode(tokens[:-1]),
                )
            )
        assert batch.loss_weights.sum() == pytest.approx(1.0)
    loader = Loader(source, batch_size=8, seed=CONFIG.seed)
    expected = [
        (list(tokenizer.encode_prompt(x.prompt)), x.solution)
        for step in range(SFT)
        for x in loader.next_batch(step)
    ]
    assert seen == expected
    assert len({tuple(prompt) for prompt, _ in seen}) > 16


def test_difficulty_is_what_the_verdicts_say(whole):
    workdir, trace = whole
    posteriors = Posteriors(trace)
    for events in trace.stage("train"):
        posteriors.after(_drawn(events))
    text = (workdir / "difficulty.jsonl").read_text()
    rows = {row["id"]: row for row in map(json.loads, text.splitlines())}
    assert len(rows) == POOL
    for name, (right, wrong) in posteriors.counts.items():
        assert rows[name]["posterior"]["alpha"] == pytest.approx(right + 0.5)
        assert rows[name]["posterior"]["beta"] == pytest.approx(wrong + 0.5)


def test_difficulty_keeps_its_first_completions_with_their_verdicts(whole):
    """24 problems in batches of 8, two samples each: files of 16, 16 and 11."""
    workdir, _ = whole
    files = [rollouts_file(workdir, "difficulty", step) for step in range(3)]
    assert [len(read_rows(file)) for file in files] == [16, 16, KEPT - 32]
    assert saved_rollouts(workdir)["difficulty"] == [0, 1, 2]
    kept = [row for file in files for row in read_rows(file)]
    text = (workdir / "difficulty.jsonl").read_text()
    found = {row["id"]: row for row in map(json.loads, text.splitlines())}
    correct = {row["id"]: 0 for row in kept[:-1]}  # the last problem lost a sample
    for row in kept[:-1]:
        correct[row["id"]] += row["verdict"] == "correct"
    assert len(correct) == 21
    for name, count in correct.items():
        assert found[name]["initial"]["c"] == count
    assert {row["stage"] for row in kept} == {"difficulty"}
    assert all(row["band"] in BANDS for row in kept)


def test_the_scale_follows_the_features_and_reshuffles(whole):
    workdir, trace = whole
    selection = json.loads((workdir / "sae" / "selection.json").read_text())
    square = np.array(selection["rms"]) ** 2
    keys = set()
    for step, events in enumerate(trace.stage("train")):
        (stepped,) = [e for e in events if e.name == "step"]
        features = stepped.features
        np.testing.assert_allclose(features.scale, np.sqrt(square), rtol=1e-5)
        keys.add(tuple(features.key.tolist()))
        sums = stepped.losses.feature_sums
        seen = sums.sum_squares / sums.num_tokens
        mixed = 0.75 * square + 0.25 * seen
        square = np.where(seen > 0, mixed, square)
        assert stepped.logged == (step % 2 == 0)
    assert len(keys) == STEPS
    assert not np.allclose(square, np.array(selection["rms"]) ** 2)


def test_the_control_puts_token_weights_in_an_order_of_the_key(whole):
    workdir, trace = whole
    updater, (batch,), sampling, probe = trace.last_update
    params = _params(workdir, trace, "train", STEPS)

    def gradient(seed):
        key = trace.setup.replicate(jax.random.key(seed))
        features = dataclasses.replace(probe.reasoning_features, key=key)
        inputs = dataclasses.replace(probe, reasoning_features=features)
        with jax.set_mesh(trace.setup.mesh):
            found, _ = updater.gradient(params, batch, sampling, inputs)
        return np.concatenate([np.ravel(x) for x in jax.tree.leaves(found)])

    np.testing.assert_array_equal(gradient(1), gradient(1))
    assert np.abs(gradient(1) - gradient(2)).max() > 1e-5


def test_a_run_that_goes_on_hands_each_step_what_it_would_have_had(
    whole, tmp_path_factory
):
    workdir, trace = whole
    folder = tmp_path_factory.mktemp("resumed")
    cut = folder / "run"
    shutil.copytree(workdir, cut)
    for step in range(3, STEPS + 1):
        shutil.rmtree(cut / "checkpoints" / "train" / str(step))
    told = summary(cut)
    del told["eval"], told["stages"]["train"], told["stages"]["eval"]
    (cut / "summary.json").write_text(json.dumps(told))
    _, resumed = _done(cut, folder)
    old, new = trace.stage("train")[2:], resumed.stage("train")
    assert len(old) == len(new) == 2
    for one, other in zip(old, new, strict=True):
        names = [e.name for e in other]
        assert [e.name for e in one][-len(names) :] == names
        for ours, theirs in zip(other, one[-len(names) :], strict=True):
            _same(ours.values, theirs.values)
    assert metrics(cut) == metrics(workdir)
    assert summary(cut)["params_sha256"] == summary(workdir)["params_sha256"]
    # The resumed part was not fresh.
    first = resumed.stage("train")[0]
    (doctor,) = [e for e in first if e.name == "doctor"]
    assert doctor.state != trace.of("doctor")[0].state


def _same(one, other):
    left, right = jax.tree.flatten_with_path(one)[0], jax.tree.leaves(other)
    for (path, x), y in zip(left, right, strict=True):
        name = jax.tree_util.keystr(path)
        if "time" in name or "seconds" in name or "_s'" in name:
            continue
        if dataclasses.is_dataclass(x):
            _same(vars(x), vars(y))
        elif isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, y, err_msg=name)
        else:
            assert x == y or (x, y) == (None, None), name


def test_bands_of_the_completions_are_those_before_the_step(whole):
    workdir, trace = whole
    posteriors = Posteriors(trace)
    text = (workdir / "difficulty.jsonl").read_text()
    lines = map(json.loads, text.splitlines())
    before_rl = {line["id"]: line["initial"] for line in lines}
    for step, events in enumerate(trace.stage("train")):
        rows = completions(workdir, f"train_{step:06}.jsonl.gz")
        groups = _learned_from(events)
        assert [r["id"] for r in rows[::G]] == [name for name, *_ in groups]
        assert [r["verdict"] for r in rows] == [s for _, g, *_ in groups for s in g]
        for row in rows[::G]:
            right, wrong = posteriors.counts[row["id"]]
            assert row["posterior_band"] == _band(right, wrong)
            initial = before_rl[row["id"]]
            if initial["n"]:
                expected = _initial_band(initial["c"] / initial["n"])
                assert row["band"] == initial["band"] == expected
            else:  # nothing was verified before RL
                assert row["band"] == row["posterior_band"]
        posteriors.after(_drawn(events))


def _initial_band(pass_rate):
    if pass_rate < HARD:
        return "hard"
    return "easy" if pass_rate > 0.9375 else "medium"


def _band(right, wrong):
    hard = betainc(right + 0.5, wrong + 0.5, HARD)
    easy = 1 - betainc(right + 0.5, wrong + 0.5, 0.9375)
    mass = {"easy": easy, "medium": 1 - easy - hard, "hard": hard}
    band = max(mass, key=mass.get)
    return band if mass[band] >= 0.8 else "unknown"
