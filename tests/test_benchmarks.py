"""The benchmark counts correctly, runs all sides in turn, and runs our side."""

import dataclasses
import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from benchmarks import probe
from benchmarks.counts import (
    count_parameters,
    decode_bytes,
    expected_tokens,
    forward_flops,
    length_law,
    model_config,
    update_flops,
)
from benchmarks.figures import (
    LengthLaw,
    check_equal_tokens,
    median_interval,
    ratios_to_ours,
    summarize_steps,
)
from benchmarks.job import JOBS, Job, reward, seconds_per_1k_tokens
from benchmarks.ours import OurStep
from benchmarks.run import format_table, measure_sides, parse_arguments
from benchmarks.sae import loader, memory
from benchmarks.sae.job import Job as AutoencoderJob
from job_jax.command import load_config
from job_jax.config import MeshConfig
from job_jax.mesh import make_mesh
from job_jax.metrics import CompileCounter
from rlvr_jax.config import Config
from rlvr_jax.models import Transformer
from rlvr_jax.probe import FeatureSelectionConfig, ProbeSAEConfig, SAEProbeConfig
from sae_jax.config import SAEConfig

_SMOKE = Path(__file__).parents[1] / "configs/smoke.py"

# Small enough to count by hand: P=2, G=3, S=2, T=3, D=4, F=3, N=2, K=1, H=2, V=5.
_BY_HAND = Job(
    num_layers=1,
    hidden_size=4,
    intermediate_size=3,
    num_heads=2,
    num_kv_heads=1,
    head_dim=2,
    vocab_size=5,
    num_prompts=2,
    group_size=3,
    prompt_tokens=2,
    new_tokens=3,
)

# Answers every step in one second, after writing its name into a file.
_LOGGING_SIDE = """
import os, pathlib, sys
from benchmarks.channel import Channel
from benchmarks.job import Job
channel = Channel()
print("what a library says goes elsewhere")
name, path, lengths = sys.argv[1], sys.argv[2], [int(n) for n in sys.argv[3:]]
size = channel.receive_job(Job).hidden_size
cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
channel.send({"job": size, "cache": cache, "first_step_s": 2.0 if name == "A" else 3.0})
while channel.wants_step():
    with pathlib.Path(path).open("a") as file:
        file.write(name)
    channel.send({"rollout_s": 1.0, "tokens": sum(lengths), "lengths": lengths})
channel.send({"peak_rss_bytes": 1})
"""


def test_work_of_a_job_small_enough_to_count_by_hand():
    # A layer: 4 * (2*2 + 1*2 + 1*2 + 2*2) + 3*4*3 = 84 weights; the head: 5 * 4 = 20.
    # Norms: three of width 4.
    assert count_parameters(_BY_HAND) == 84 + 20 + 12
    # 2 prompts of 2 tokens, and 2 tokens read of each of 6 completions: 16 tokens.
    # Logits at 6 * 3 positions. Tokens see 1 + 2 keys in prompts, 3 + 4 in completions.
    products = 2 * 84 * 16 + 2 * 20 * 18
    attention = 4 * 2 * 2 * (2 * 3 + 6 * 7)
    assert forward_flops(_BY_HAND) == products + attention
    assert update_flops(_BY_HAND) == 3 * (products + attention)
    adapters = dataclasses.replace(_BY_HAND, lora_rank=1)
    assert update_flops(adapters) == 2 * (products + attention)
    # Two decoded tokens read 104 weights each, the first only the head. A position has
    # 2 * 2 numbers: each time 2 prompts of 2; own positions 1, then 2, in 6 rows.
    assert decode_bytes(_BY_HAND) == 4 * (2 * 104 + 20 + 4 * (2 * 4 + 6 * 3))


def test_work_of_a_job_whose_rows_end_at_random():
    """One id in five ends a row: token 2 exists with chance 4/5, token 3 with 16/25."""
    job = dataclasses.replace(_BY_HAND, num_end_ids=1)
    second, third = 4 / 5, 16 / 25
    assert expected_tokens(job) == pytest.approx(6 * (1 + second + third))
    # 84 weights for prompts and tokens read; the head at every token.
    products = 2 * 84 * (4 + 6 * (second + third))
    products += 2 * 20 * 6 * (1 + second + third)
    attention = 4 * 2 * 2 * (2 * 3 + 6 * (3 * second + 4 * third))
    assert forward_flops(job) == round(products + attention)
    assert update_flops(job) == 3 * forward_flops(job)
    # Weights are read while any of 6 rows continues, a prompt while any of its 3 does.
    numbers = 20.0
    for own, goes_on in ((1, second), (2, third)):
        numbers += 104 * (1 - (1 - goes_on) ** 6)
        numbers += 4 * (2 * 2 * (1 - (1 - goes_on) ** 3) + 6 * own * goes_on)
    assert decode_bytes(job) == round(4 * numbers)
    # Lengths 1, 2 and 3 with chances 5/25, 4/25 and 16/25.
    mean = (5 * 1 + 4 * 2 + 16 * 3) / 25
    square = (5 * 1 + 4 * 4 + 16 * 9) / 25
    law = length_law(job)
    assert law.mean == pytest.approx(mean)
    assert law.variance == pytest.approx(square - mean**2)
    assert law.limit == 3


def test_the_geometric_job_makes_a_quarter_of_its_limit():
    job = JOBS["3M-geometric"]
    law = length_law(job)
    assert law.mean == pytest.approx(64 * (1 - (63 / 64) ** 256))
    assert 0.24 < law.mean / job.new_tokens < 0.25
    assert job.eos_ids == (504, 505, 506, 507, 508, 509, 510, 511)
    words = set(" ".join(job.prompt_texts()).split())
    assert words.isdisjoint(job.vocabulary[i] for i in job.eos_ids)
    assert [job.true_length(ids) for ids in ([1, 504, 2], [511], [1, 2])] == [2, 1, 2]


@pytest.mark.parametrize(
    ("size", "millions"),
    [("3M", 3.1), ("24M", 23.9), ("3M-vocab8192", 5.0), ("135M", 134.5)],
)
def test_a_size_holds_the_parameters_that_our_model_has(size, millions):
    job = JOBS[size]
    policy = nnx.eval_shape(
        lambda: Transformer(
            model_config(job), job.vocab_size, nnx.Rngs(jax.random.key(0))
        )
    )
    count = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(policy)))
    assert count_parameters(job) == count
    assert round(count / 1e6, 1) == millions


def test_every_side_reads_the_same_prompts_and_none_can_end_early():
    job = JOBS["3M"]
    texts = job.prompt_texts()
    assert texts == job.prompt_texts()
    assert [len(text.split()) for text in texts] == [64] * 8
    (eos_id,) = job.eos_ids
    assert job.vocabulary.index("<eos>") == eos_id == job.vocab_size
    assert "<eos>" not in " ".join(texts)


def test_the_reward_splits_groups_by_the_last_word():
    assert [reward(text) for text in ("w1 w20", "w2 w7", "")] == [1.0, 0.0, 0.0]


def test_figures_are_medians_and_rates_follow_them():
    steps = [
        {"rollout_s": seconds, "verify_s": 1.0, "update_s": 4.0, "tokens": 8}
        for seconds in (2.0, 9.0, 1.0)
    ]
    found = summarize_steps(steps)
    assert (found["rollout_s"], found["step_s"]) == (2.0, 7.0)
    assert found["rollout_tokens_per_s"] == 4.0
    assert found["update_tokens_per_s"] == 2.0
    assert found["seconds_per_1k_tokens"] == 1000 * 7 / 8
    assert found["range"]["rollout_s"] == [1.0, 9.0]
    sampling_alone = summarize_steps([{"rollout_s": 2.0, "tokens": 8}])
    assert sampling_alone.keys().isdisjoint({"step_s", "update_tokens_per_s"})


def test_rates_count_the_tokens_of_their_own_round():
    """2, 8 and 3 tokens a second; separate medians of seconds and tokens give 4."""
    steps = [
        {"rollout_s": seconds, "tokens": tokens}
        for seconds, tokens in ((4.0, 8), (1.0, 8), (2.0, 6))
    ]
    assert summarize_steps(steps)["rollout_tokens_per_s"] == 3.0
    assert summarize_steps(steps)["seconds_per_1k_tokens"] == 1000 / 3
    assert seconds_per_1k_tokens(steps[0]) == 500


def test_a_slow_spell_over_a_whole_round_does_not_move_the_ratio():
    ours = [{"rollout_s": seconds, "tokens": 8} for seconds in (1.0, 50.0, 1.0)]
    theirs = [{"rollout_s": seconds, "tokens": 8} for seconds in (3.0, 150.0, 3.0)]
    assert ratios_to_ours(theirs, ours) == {"rollout_s": [3.0, 3.0, 3.0]}


def test_ratios_are_of_seconds_a_token():
    """Twice the seconds for half the tokens are four times as slow."""
    ours, theirs = [{"rollout_s": 1.0, "tokens": 8}], [{"rollout_s": 2.0, "tokens": 4}]
    assert ratios_to_ours(theirs, ours) == {"rollout_s": [4.0]}


@pytest.mark.parametrize(
    ("n", "low", "high"),
    [(1, 1, 1), (2, 1, 2), (5, 1, 5), (8, 1, 8), (9, 2, 8), (20, 6, 15), (30, 10, 21)],
)
def test_interval_of_a_median_is_that_of_tables(n, low, high):
    """Ranks for 95 %, for example n=20, as in Conover, table of binomial ranks."""
    assert median_interval([*range(n, 0, -1)]) == [low, high]


def test_steps_of_unequal_work_are_not_compared():
    with pytest.raises(ValueError, match=r"\[8, 9\] tokens are not the same work"):
        check_equal_tokens([{"tokens": 8}, {"tokens": 9}])
    check_equal_tokens([{"tokens": 8}, {"tokens": 8}])


def test_lengths_must_be_of_the_law_that_all_sides_share():
    """100 rows of variance 25: a standard error of 0.5; five of them are allowed."""
    law = LengthLaw(mean=10.0, variance=25.0, limit=13)
    for mean, fits in ((12.4, True), (12.6, False), (7.6, True), (7.4, False)):
        steps = [{"lengths": [mean] * 50}] * 2
        if fits:
            assert law.summarize_lengths(steps)["mean"] == pytest.approx(mean)
        else:
            with pytest.raises(ValueError, match=r"expected, are not the same work"):
                law.summarize_lengths(steps)
    found = law.summarize_lengths([{"lengths": [1, 2, 3]}, {"lengths": [13, 13]}])
    assert found == {
        "mean": 6.4,
        "quartile_1": 2,
        "median": 3,
        "quartile_3": 13,
        "at_limit": 0.4,
    }


def test_sides_take_turns(tmp_path):
    path = tmp_path / "turns"
    commands = {
        name: [sys.executable, "-c", _LOGGING_SIDE, name, str(path), "1", "3"]
        for name in "AB"
    }
    results = measure_sides(_BY_HAND, commands, 3)
    assert path.read_text() == "ABABAB"
    assert [result["side"] for result in results] == ["A", "B"]
    assert [result["job"] for result in results] == [_BY_HAND.hidden_size] * 2
    assert [result["cache"] for result in results] == [None, None]
    assert results[1]["times_ours"] == {
        "rollout_s": 1.0,
        "first_step_s": 1.5,
        "peak_rss_bytes": 1.0,
    }
    assert results[1]["times_ours_interval"] == {"rollout_s": [1.0, 1.0]}


def test_sides_whose_rows_end_at_random_are_compared_by_token(tmp_path):
    """A makes 4 tokens a second, B 8; an error if B's lengths break the law."""

    def measure(law, **options):
        commands = {
            name: [
                sys.executable,
                "-c",
                _LOGGING_SIDE,
                name,
                str(tmp_path / "t"),
                *rows,
            ]
            for name, rows in {"A": ("1", "3"), "B": ("3", "5")}.items()
        }
        return measure_sides(_BY_HAND, commands, 1, law=law, **options)

    law = LengthLaw(mean=3.0, variance=1.0, limit=5)
    ours, theirs = measure(law, cache=str(tmp_path))
    assert theirs["times_ours"]["rollout_s"] == 0.5
    assert (ours["lengths"]["mean"], theirs["lengths"]["at_limit"]) == (2.0, 0.5)
    assert ours["cache"] == str(tmp_path)
    with pytest.raises(ValueError, match=r"4\.0 tokens in the mean"):
        measure(dataclasses.replace(law, mean=2.0, variance=0.1))
    with pytest.raises(ValueError, match=r"\[4, 8\] tokens"):
        measure(None)


def test_a_side_that_dies_is_named():
    commands = {"broken": [sys.executable, "-c", "raise SystemExit(3)"]}
    with pytest.raises(RuntimeError, match=r"no answer from `.*SystemExit\(3\)`"):
        measure_sides(_BY_HAND, commands, 1)


@pytest.mark.parametrize("size", ["tiny", "tiny-geometric", "tiny-lora"])
def test_our_side_does_the_whole_job_and_compiles_nothing_once_warm(size):
    job = JOBS[size]
    mesh = make_mesh(MeshConfig())
    # optax raises a float to an integer power; strict promotion refuses that.
    with jax.set_mesh(mesh), jax.numpy_dtype_promotion("standard"):
        ours = OurStep(job, mesh)
        ours.init_optimizer()
        ours.step()
        compiles = CompileCounter()
        steps = [ours.step(), ours.step()]
    # Each new number of packed rows compiles one more program.
    assert compiles.count <= (job.group_size if job.num_end_ids else 0)
    assert len(steps[0]["lengths"]) == job.num_prompts * job.group_size
    assert steps[0]["tokens"] == sum(steps[0]["lengths"])
    if job.num_end_ids:
        length_law(job).summarize_lengths(steps)  # raises if they break the law
    else:
        assert {n for step in steps for n in step["lengths"]} == {job.new_tokens}


@pytest.mark.exhaustive
def test_every_arm_of_the_probe_benchmark_takes_the_same_gradient():
    config = dataclasses.replace(
        load_config(_SMOKE, Config),
        probe=SAEProbeConfig(
            sae=ProbeSAEConfig(architecture=SAEConfig(latents=64, k=4)),
            features=FeatureSelectionConfig(num_features=3),
        ),
    )
    with jax.set_mesh(make_mesh(MeshConfig())):
        arms = probe.ProbeStep(config).arms()
        plain, columns, dictionary = (
            jax.device_get(arms[name]())
            for name in ("no_probe", "features", "observer")
        )
    for other in (columns, dictionary):
        jax.tree.map(np.testing.assert_array_equal, plain[0], other[0])
    assert plain[1].feature_sums is None
    tokens = columns[1].feature_sums.num_tokens
    assert dictionary[1].latent_sums.statistics.tokens.sum() == tokens > 0


def test_the_table_marks_missing_values_of_a_side():
    row = {
        "size": "3M",
        "side": "hf float32",
        "rollout_tokens_per_s": 4096.0,
        "rollout_s": 1.0,
        "rollout_mfu": 0.125,
        "times_ours": {"rollout_s": 2.0, "peak_rss_bytes": 0.5},
        "peak_rss_bytes": 3 << 20,
    }
    header, _, line = format_table([row]).splitlines()
    titles, values = (row.strip("| ").split(" | ") for row in (header, line))
    cells = dict(zip(titles, values, strict=True))
    assert cells["rollout tok/s"] == "4,096"
    assert cells["update tok/s"] == "-"
    assert cells["rollout FLOP/s"] == "12.5%"
    assert cells["peak RSS"] == "3 MiB"
    assert cells["rollout time"] == "2.00 x ours"
    assert cells["peak memory"] == "0.50 x ours"
    assert cells["first step s, cached"] == "-"


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--sizes=3M,7T", "'7T' is none of tiny, tiny-geometric, tiny-lora, 3M,"),
        ("--peers=tunix", "'tunix' is none of hf, trl"),
        ("--peers=hf", "--peer_python"),
        ("--repeats=0", "give at least 1"),
    ],
)
def test_bad_usage_is_refused_in_plain_words(flag, message, capsys):
    with pytest.raises(SystemExit) as exit_code:
        parse_arguments([flag])
    assert exit_code.value.code == 2
    assert message in capsys.readouterr().err


def test_peers_run_by_their_own_python():
    options = parse_arguments(
        ["--peers=hf,trl", "--peer_python=other/python", "--quick"]
    )
    assert options.sizes == ["3M"]
    ours, *theirs = options.commands().values()
    assert ours[0] == sys.executable
    assert {command[0] for command in theirs} == {"other/python"}
    assert len(theirs) == 3
    assert dataclasses.replace(options, peers=[]).commands().keys() == {"ours float32"}


def test_work_of_an_autoencoder_step_counted_by_hand():
    """One product is 2 * 3 * 4 * 8 = 192 FLOPs; a quarter of the latents are active."""
    flops = AutoencoderJob(width=4, latents=8, k=2, batch_size=3).matmul_flops()
    assert flops == {"dense": 5 * 192, "needed": 192 + 192}


@pytest.mark.parametrize("kind", ["batchtopk", "temporal"])
def test_our_autoencoder_side_trains_and_compiles_nothing_more(kind):
    job = AutoencoderJob(width=8, latents=32, k=2, batch_size=64)
    command = [sys.executable, "-m", "benchmarks.sae.ours", kind]
    (ours,) = measure_sides(job, {"ours": command}, 2)
    assert ours["tokens"] == 64
    assert ours["compiles"] == 0
    assert ours["update_s"] > 0


def test_the_loader_is_timed_beside_a_batch_that_stays(capsys, monkeypatch):
    """Checks only that both kinds ran and are kept apart, not how long they took."""
    # JAX has already started with the devices that all tests share.
    monkeypatch.setattr(loader, "configure_cpu", lambda config: None)
    for buffer in (0, 2048):
        asked = ["--size=tiny", "--tokens=200000", "--rounds=2"]
        assert loader.main([*asked, f"--buffer_tokens={buffer}"]) == 0
        _check_loader_record(capsys)


def _check_loader_record(capsys):
    record = json.loads(capsys.readouterr().out)
    held, from_disk = (record["step_s"][name] for name in ("held", "from_disk"))
    assert min(held, from_disk) > 0
    assert (
        record["ratio"]["low"] <= record["ratio"]["median"] <= record["ratio"]["high"]
    )


def test_the_memory_of_a_training_run_is_read(capfd):
    assert memory.main(["--tokens=200000", "--buffer_tokens=32768"]) == 0
    record = json.loads(capfd.readouterr().out)
    assert record["tokens"] == 200_000
    assert max(record["own_memory_gib"]["at_quarters"]) > 0
    assert record["own_memory_gib"]["most"] < 20
