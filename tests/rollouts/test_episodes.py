"""Episodes: which tokens are the policy's, their dependencies, and how they end."""

import dataclasses
import functools
import threading
import zlib
from typing import ClassVar

import jax
import numpy as np
import pytest
from flax import nnx

from job_jax.schema import ConfigError
from rlvr_jax.config import (
    Config,
    EnvironmentConfig,
    EvalConfig,
    LossConfig,
    ModelConfig,
    SamplingConfig,
    SFTConfig,
    TokenizerConfig,
    TrainConfig,
)
from rlvr_jax.environments import Environment, Reply
from rlvr_jax.learn.batches import batch_from_rollouts
from rlvr_jax.learn.logprobs import token_scores
from rlvr_jax.models import Transformer
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.rollouts import episodes
from rlvr_jax.rollouts.episodes import episode_metrics
from rlvr_jax.rollouts.graded import grade_completions
from rlvr_jax.rollouts.groups import ProblemGroups, select_groups
from rlvr_jax.rollouts.request import SampleRequest
from rlvr_jax.rollouts.sample import sample_completions, slot_metrics
from rlvr_jax.run.setup import RunSetup, open_setup
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from rlvr_jax.types import Verdict

P, G, T = 3, 4, 20
SAMPLING = SamplingConfig(max_new_tokens=T, temperature=0.9)
MIX = ChainMix(chain_lengths=(1,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Echo(Environment):
    """Answers with one to three words that the text decides, or ends the episode."""

    never_ends: bool = False

    def respond(self, problem, messages):
        said = messages[-1].text
        number = zlib.crc32(f"{problem.id} {said} {len(messages)}".encode())
        if number % 5 == 0 and not self.never_ends:
            return Reply(done=True)
        words = ("e0", "e1 e2", "then e3 e4")[number % 3]
        return Reply(text=words, tool_calls=len(words.split()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waiting(Echo):
    """Answers the last problem's first turns while others' second turns are drawn."""

    asked: ClassVar[threading.Event] = threading.Event()
    later_turn: ClassVar[threading.Event] = threading.Event()

    def respond(self, problem, messages):
        if problem.id.endswith(str(P - 1)) and len(messages) == 1:
            self.asked.set()
            assert self.later_turn.wait(2 * self.timeout_s)
        return super().respond(problem, messages)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Once(Environment):
    """Says nothing, and ends every episode."""

    def respond(self, problem, messages):
        return Reply(done=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Odd(Environment):
    """Fails in several ways, by the problem's number; ends the other episodes."""

    def respond(self, problem, messages):
        match int(problem.id.rpartition("-")[2]):
            case 0:
                return Reply(text="no such words")
            case 1:
                raise OSError("the tool is gone")
        verdict = Verdict(status="correct", reason="the environment says so")
        return Reply(done=True, verdict=verdict)


def _config(environment=None, **sections):
    return Config(
        task=FiniteFieldTask(modulus=5, sft=MIX, train=MIX, eval=MIX),
        environment=environment or Echo(),
        model=ModelConfig(
            num_layers=1,
            hidden_size=16,
            intermediate_size=16,
            num_heads=2,
            num_kv_heads=1,
            head_dim=8,
            max_seq_len=64,
        ),
        sft=SFTConfig(steps=0),
        train=TrainConfig(batch_size=8, group_size=G, sampling=SAMPLING),
        eval=EvalConfig(batch_size=8, sampling=SAMPLING),
        prompt_pad_multiple=16,
        **sections,
    )


@functools.cache
def _setup(environment, num_devices=1):
    """Returns weights, and a setup whose policy ends a turn with every third word."""
    devices = jax.devices()[:num_devices]
    setup = open_setup(
        _config(environment), "unused", stages=("train",), devices=devices
    )
    policy = Transformer(
        setup.config.model,
        setup.vocab_size,
        nnx.Rngs(0),
        eos_ids=tuple(range(1, setup.vocab_size, 3)),
    )
    graphdef, params = nnx.split(policy)
    return dataclasses.replace(setup, graphdef=graphdef), params


def _sampled(environment=None, problems=None, setup=None, **changed):
    own, params = _setup(environment or Echo())
    setup = setup or own
    problems = setup.problems("train", P) if problems is None else problems
    given = {
        "sampling": SAMPLING,
        "num_samples": G,
        "key": jax.random.key(1),
        "weight_version": np.int32(7),
        **changed,
    }
    with jax.set_mesh(setup.mesh):
        request = SampleRequest(problems=problems, weights=params, **given)
        rollouts = sample_completions(setup, request)
    return setup, problems, rollouts


def _rows(rollouts):
    return [
        (rollouts.tokens[b, :n].tolist(), rollouts.policy_mask[b, :n].tolist())
        for b, n in enumerate(rollouts.lengths.tolist())
    ]


def test_the_mask_is_what_the_environment_did_not_say():
    setup, _, rollouts = _sampled()
    assert (rollouts.lengths <= T).all()
    turns = set()
    for b, episode in enumerate(rollouts.episodes):
        ids, by_policy = [], []
        for message in episode.messages:
            is_policy = message.role == "policy"
            width = 0
            if not is_policy:
                width = len(setup.tokenizer.encode(message.text))
                assert (
                    setup.tokenizer.decode(
                        rollouts.tokens[b, len(ids) : len(ids) + width]
                    )
                    == message.text
                )
            else:
                rest = rollouts.policy_mask[b, len(ids) :]
                width = int(np.argmin(rest)) if not rest.all() else len(rest)
                width = min(width, int(rollouts.lengths[b]) - len(ids))
                said = rollouts.tokens[b, len(ids) : len(ids) + width]
                assert setup.tokenizer.decode(said) == message.text
            ids += [0] * width
            by_policy += [is_policy] * width
        assert len(ids) == rollouts.lengths[b]
        assert rollouts.policy_mask[b, : len(ids)].tolist() == by_policy
        assert not rollouts.policy_mask[b, len(ids) :].any()
        turns.add(episode.num_turns)
    assert len(turns) > 2
    assert not rollouts.logprobs[~rollouts.mask].any()
    assert (rollouts.logprobs[rollouts.mask] < 0).all()
    assert int(rollouts.weight_version) == 7


def test_the_scorer_finds_the_samplers_logprobs_at_the_policys_tokens():
    setup, _, rollouts = _sampled()
    batch = batch_from_rollouts(rollouts, np.zeros((P, G), np.float32))
    policy = nnx.merge(setup.graphdef, _setup(Echo())[1])
    scores = nnx.jit(token_scores, static_argnames="logits_chunk_size")(
        policy, batch, SamplingParams.from_config(SAMPLING), logits_chunk_size=0
    )
    mask = rollouts.mask
    assert 0 < mask.sum() < rollouts.lengths.sum()
    np.testing.assert_array_equal(np.asarray(batch.mask), mask)
    np.testing.assert_allclose(
        np.asarray(scores.logprobs)[mask], rollouts.logprobs[mask], rtol=0, atol=1e-5
    )


def test_an_episode_does_not_depend_on_its_neighbors():
    _, problems, base = _sampled()
    order = [2, 0]
    _, _, other = _sampled(problems=[problems[p] for p in order], batch_size=8)
    rows, others = _rows(base), _rows(other)
    for place, p in enumerate(order):
        for g in range(G):
            assert others[place * G + g] == rows[p * G + g]
            one = other.episodes[place * G + g]
            assert one == base.episodes[p * G + g]
    assert len({tuple(tokens) for tokens, _ in rows}) > P * G // 2
    # The environment is not called for problems that only fill up a batch.
    filler = other.episodes[len(order) * G :]
    assert {episode.num_turns for episode in filler} == {1}
    assert all(len(episode.messages) == 1 for episode in filler)


def test_a_mesh_draws_the_same():
    """Eight devices hold rows each, so problems are filled up to a multiple."""
    _, problems, base = _sampled()
    split, _ = _setup(Echo(), num_devices=8)
    assert split.mesh.size == 8
    _, _, spread = _sampled(problems=problems, setup=split, batch_size=8)
    assert _rows(spread)[: P * G] == _rows(base)
    np.testing.assert_allclose(spread.logprobs[: P * G], base.logprobs, atol=1e-5)


def test_a_later_turn_is_requested_as_its_row(monkeypatch):
    """By prompt, sample and the tokens so far; fillers are copies of the first row."""
    asked = []
    sample = RunSetup.sample

    def sampled(self, weights, prompts, *args, **settings):
        asked.append((jax.device_get(prompts), settings["num_samples"]))
        return sample(self, weights, prompts, *args, **settings)

    monkeypatch.setattr(RunSetup, "sample", sampled)
    _, _, rollouts = _sampled()
    (first, group), *later = asked
    assert (first.begun, group) == (None, G)
    assert later
    for turn, (prompts, group) in enumerate(later, 1):
        live = [b for b in range(P * G) if rollouts.episodes[b].num_turns > turn]
        assert group == 1
        assert len(prompts.lengths) == P * G
        rows = [*live, *[live[0]] * (P * G - len(live))]
        assert prompts.begun.sample.tolist() == [b % G for b in rows]
        assert prompts.uid.tolist() == [int(first.uid[b // G]) for b in rows]
        for at, b in enumerate(rows):
            S, length = int(first.lengths[b // G]), int(prompts.begun.length[at])
            own = prompts.tokens[at, : prompts.lengths[at]].tolist()
            assert own[:S] == first.tokens[b // G, :S].tolist()
            assert own[S:] == rollouts.tokens[b, :length].tolist()
            assert not rollouts.policy_mask[b, length - 1]
            assert rollouts.policy_mask[b, length]


def test_overlapped_halves_are_the_same_episodes():
    _, problems, whole = _sampled()
    _, _, halves = _sampled(Echo(overlap=True), problems)
    assert _rows(halves) == _rows(whole)
    assert halves.episodes == whole.episodes
    np.testing.assert_allclose(halves.logprobs, whole.logprobs, rtol=0, atol=1e-5)


def test_overlapped_halves_are_whole_on_every_device(monkeypatch):
    """On 8 devices, 16 of the 8 x 4 rows are drawn together."""
    sizes = []
    sample = RunSetup.sample

    def sampled(self, weights, prompts, *args, **settings):
        if prompts.begun is not None:
            sizes.append(len(prompts.lengths))
        return sample(self, weights, prompts, *args, **settings)

    monkeypatch.setattr(RunSetup, "sample", sampled)
    split, _ = _setup(Echo(overlap=True), num_devices=8)
    _, problems, base = _sampled()
    sizes.clear()
    _, _, spread = _sampled(problems=problems, setup=split, batch_size=8)
    assert _rows(spread)[: P * G] == _rows(base)
    assert set(sizes) == {16}


def test_one_half_is_answered_while_the_other_is_sampled(monkeypatch):
    sample = RunSetup.sample

    def sampled(self, weights, prompts, *args, **settings):
        if prompts.begun is not None:
            assert Waiting.asked.wait(5.0)
            Waiting.later_turn.set()
        return sample(self, weights, prompts, *args, **settings)

    monkeypatch.setattr(RunSetup, "sample", sampled)
    environment = Waiting(overlap=True, never_ends=True, timeout_s=5.0)
    _, _, rollouts = _sampled(environment)
    assert not any(episode.failed for episode in rollouts.episodes)


@pytest.mark.parametrize(("room", "goes_on"), [(2, False), (3, True)])
def test_a_reply_leaves_room_for_a_token_or_ends_the_episode(room, goes_on):
    row = episodes._Row(problem=None, number=0, goes_on=True)
    row.add_reply("e0 e1", [5, 6], room=room)
    assert row.goes_on == goes_on
    assert row.tokens == ([5, 6] if goes_on else [])
    assert len(row.messages) == goes_on


def test_another_key_draws_other_episodes():
    assert _rows(_sampled()[2]) != _rows(_sampled(key=jax.random.key(2))[2])
    assert _rows(_sampled()[2]) == _rows(_sampled()[2])


def test_an_episode_of_one_turn_is_the_completion_without_an_environment():
    setup, _ = _setup(Echo())
    plain = dataclasses.replace(
        setup, config=dataclasses.replace(setup.config, environment=EnvironmentConfig())
    )
    _, problems, alone = _sampled(setup=plain)
    _, _, first = _sampled(Once(), problems)
    assert first.finished.tolist() == alone.finished.tolist()
    np.testing.assert_array_equal(first.tokens, alone.tokens)
    np.testing.assert_array_equal(first.logprobs, alone.logprobs)
    assert alone.policy_mask is None
    assert first.mask.sum() == first.lengths.sum()


def test_turns_after_the_first_draw_by_the_index_in_the_episode():
    """Drawing in rounds equals drawing token by token; a turn limit only cuts."""
    _, _, free = _sampled()
    _, _, cut = _sampled(Echo(max_turn_tokens=4))
    seen = 0
    for b, (tokens, by_policy) in enumerate(_rows(free)):
        turn, longest = 0, 0
        for policy in by_policy:
            turn = turn + 1 if policy else 0
            longest = max(longest, turn)
        if longest <= 4:
            assert _rows(cut)[b] == (tokens, by_policy)
            seen += 1
    assert 0 < seen < P * G
    assert not cut.finished[cut.lengths == 4].all()


def test_tokens_and_turns_bound_an_episode():
    """An episode ends unfinished when its tokens or its turns are used up."""
    endless = Echo(never_ends=True, max_turns=2)
    _, _, rollouts = _sampled(endless)
    assert not rollouts.finished.any()
    turns = [episode.num_turns for episode in rollouts.episodes]
    assert max(turns) == 2
    for episode in rollouts.episodes:  # no reply after the last turn
        assert episode.messages[-1].role == "policy"
        assert episode.verdict is None
    _, _, longer = _sampled(Echo(never_ends=True, max_turns=50))
    assert longer.lengths.max() <= T
    assert longer.lengths.max() >= T - 3
    assert max(episode.num_turns for episode in longer.episodes) > 2


def test_a_failure_ends_its_episode_unverified_and_no_other():
    setup, problems, rollouts = _sampled(Odd())
    graded = grade_completions(setup, problems, rollouts)
    reasons = {}
    for one in graded:
        if one.episode.failed or one.finished:
            number = int(one.problem.id.rpartition("-")[2])
            reasons.setdefault(number, set()).add(
                (one.verdict.status, one.verdict.reason)
            )
    ((status, reason),) = reasons.pop(0)
    assert status == "unverified"
    assert reason.startswith(
        "environment: the reply 'no such words' has the word 'no', which is not among "
        f"the {setup.tokenizer.vocab_size} words of this policy: <pad> <eos> "
    )
    assert reasons == {
        1: {("unverified", "environment: OSError: the tool is gone")},
        2: {("correct", "the environment says so")},
    }
    failed = [episode.failed for episode in rollouts.episodes]
    assert episode_metrics([rollouts])["environment/failures"] == np.mean(failed)
    assert not rollouts.finished[np.array(failed)].any()


def test_the_verifier_reads_what_the_policy_said_alone():
    setup, problems, rollouts = _sampled()
    seen = []

    class Grading:
        def __call__(self, problems, texts):
            seen.extend(texts)
            return [Verdict(status="incorrect")] * len(texts)

    setup = dataclasses.replace(setup, verifier=Grading())
    graded = grade_completions(setup, problems, rollouts)
    for text, one, (tokens, by_policy) in zip(
        seen, graded, _rows(rollouts), strict=True
    ):
        own = [t for t, mine in zip(tokens, by_policy, strict=True) if mine]
        assert text.split() == setup.tokenizer.decode(own).split()
        line = one.to_json("train", 0)
        assert line["completion"] == text
        assert [m["role"] for m in line["messages"]][:1] == ["policy"]
        assert len(line["messages"]) == len(one.episode.messages)


def test_metrics_count_turns_calls_and_the_environments_tokens():
    _, _, rollouts = _sampled()
    found = episode_metrics([rollouts, rollouts])
    outside = int((~rollouts.policy_mask[:, :]).sum()) - int(
        (T - rollouts.lengths).sum()
    )
    assert outside > 0
    assert found["environment/tokens"] == outside / (P * G)
    assert found["environment/turns"] == np.mean(
        [e.num_turns for e in rollouts.episodes]
    )
    # Every word of Echo's is a call, also a word that did not fit.
    assert found["environment/tool_calls"] >= outside / (P * G)
    assert episode_metrics([dataclasses.replace(rollouts, episodes=None)]) == {}
    slots = slot_metrics([rollouts])
    drawn = float(rollouts.slot_steps)
    assert slots["rollout/wasted_tokens"] == drawn - rollouts.mask.sum()
    assert 0 < slots["rollout/occupancy"] < 1


def test_groups_that_are_chosen_keep_their_masks():
    setup, problems, rollouts = _sampled()
    graded = grade_completions(setup, problems, rollouts)
    right = {"status": "correct"}

    def groups(numbers, good):
        rows = [
            dataclasses.replace(one, verdict=Verdict(status="incorrect"))
            for one in graded
        ]
        rows[good * G] = dataclasses.replace(rows[good * G], verdict=Verdict(**right))
        return ProblemGroups(
            problem_index=np.array(numbers), rollouts=rollouts, graded=rows
        )

    rounds = [groups([0, 1, 2], 1), groups([3, 4, 5], 2)]
    chosen = select_groups(rounds, 2, np.random.default_rng(0))
    masks = rollouts.policy_mask.reshape(P, G, T)
    np.testing.assert_array_equal(
        chosen.rollouts.policy_mask.reshape(2, G, T), masks[[1, 2]]
    )


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        (
            {
                "train": TrainConfig(
                    staleness=1,
                    loss=LossConfig(tis_cap=2.0),
                    old_logprobs="trainer",
                    sampling=SAMPLING,
                )
            },
            "train.staleness=1",
        ),
        (
            {
                "train": TrainConfig(
                    loss=LossConfig(external_traces="rl_plus"), sampling=SAMPLING
                )
            },
            "external_traces=rl_plus",
        ),
        ({"tokenizer": TokenizerConfig(stop_strings=("e0",))}, "stop_strings"),
    ],
)
def test_what_goes_with_no_environment_is_refused_in_one_line(sections, why):
    config = _config()
    with pytest.raises(ConfigError, match=why) as error:
        dataclasses.replace(config, **sections)
    assert "\n" not in str(error.value)
    dataclasses.replace(config, environment=EnvironmentConfig(), **sections)


def test_a_reply_template_needs_a_place_for_the_reply():
    with pytest.raises(ConfigError, match=r"\{reply\}"):
        Echo(reply_template="<user>")
    assert Echo(reply_template="<u> {reply} </u>").format_reply("a {x}") == (
        "<u> a {x} </u>"
    )
