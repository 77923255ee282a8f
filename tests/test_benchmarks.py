"""The benchmark counts rightly, gives every side its turn, and runs our side."""

import dataclasses
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
    forward_flops,
    model_config,
    update_flops,
)
from benchmarks.job import JOBS, Job, reward
from benchmarks.ours import OurStep
from benchmarks.run import (
    format_table,
    measure_sides,
    parse_arguments,
    ratios_to_ours,
    summarize_steps,
)
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
import pathlib, sys
from benchmarks.channel import Channel
from benchmarks.job import Job
channel = Channel()
print("what a library says goes elsewhere")
name, path = sys.argv[1:]
channel.send({"job": channel.receive_job(Job).hidden_size})
while channel.wants_step():
    with pathlib.Path(path).open("a") as file:
        file.write(name)
    channel.send({"rollout_s": 1.0, "tokens": 4})
channel.send({"peak_rss_bytes": 1})
"""


def test_work_of_a_job_small_enough_to_count_by_hand():
    # A layer: 4 * (2*2 + 1*2 + 1*2 + 2*2) + 3*4*3 = 84 weights; the head: 5 * 4 = 20.
    # Norms: three of width 4.
    assert count_parameters(_BY_HAND) == 84 + 20 + 12
    # 2 prompts of 2 tokens, and 6 completions of which 2 tokens are read: 16 tokens.
    # Logits at 6 * 3 positions. A prompt's tokens see 1 + 2 keys, a completion's 3 + 4.
    products = 2 * 84 * 16 + 2 * 20 * 18
    attention = 4 * 2 * 2 * (2 * 3 + 6 * 7)
    assert forward_flops(_BY_HAND) == products + attention
    assert update_flops(_BY_HAND) == 3 * (products + attention)
    # Two decoded tokens read 104 weights each, the first one the head. A position has
    # 2 * 2 numbers: each time 2 prompts of 2; own positions 1, then 2, in 6 rows.
    assert decode_bytes(_BY_HAND) == 4 * (2 * 104 + 20 + 4 * (2 * 4 + 6 * 3))


@pytest.mark.parametrize(("size", "millions"), [("3M", 3.1), ("24M", 23.9)])
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
    assert job.vocabulary.index("<eos>") == job.eos_id == job.vocab_size
    assert "<eos>" not in " ".join(texts)


def test_the_reward_splits_groups_by_the_last_word():
    assert [reward(text) for text in ("w1 w20", "w2 w7")] == [1.0, 0.0]


def test_figures_are_medians_and_rates_follow_them():
    steps = [
        {"rollout_s": seconds, "verify_s": 1.0, "update_s": 4.0, "tokens": 8}
        for seconds in (2.0, 9.0, 1.0)
    ]
    found = summarize_steps(steps)
    assert (found["rollout_s"], found["step_s"]) == (2.0, 7.0)
    assert found["rollout_tokens_per_s"] == 4.0
    assert found["update_tokens_per_s"] == 2.0
    assert found["range"]["rollout_s"] == [1.0, 9.0]
    sampling_alone = summarize_steps([{"rollout_s": 2.0, "tokens": 8}])
    assert sampling_alone.keys().isdisjoint({"step_s", "update_tokens_per_s"})


def test_a_slow_spell_over_a_whole_round_does_not_move_the_ratio():
    ours = [{"rollout_s": seconds, "tokens": 8} for seconds in (1.0, 50.0, 1.0)]
    theirs = [{"rollout_s": seconds, "tokens": 8} for seconds in (3.0, 150.0, 3.0)]
    assert ratios_to_ours(theirs, ours) == {"rollout_s": 3.0}


def test_steps_of_unequal_work_are_not_compared():
    ours, theirs = ([{"rollout_s": 1.0, "tokens": tokens}] for tokens in (8, 9))
    with pytest.raises(ValueError, match=r"\[8, 9\] tokens are not the same work"):
        ratios_to_ours(theirs, ours)


def test_sides_take_turns(tmp_path):
    path = tmp_path / "turns"
    commands = {
        name: [sys.executable, "-c", _LOGGING_SIDE, name, str(path)] for name in "AB"
    }
    results = measure_sides(_BY_HAND, commands, 3)
    assert path.read_text() == "ABABAB"
    assert [result["side"] for result in results] == ["A", "B"]
    assert [result["job"] for result in results] == [_BY_HAND.hidden_size] * 2
    assert results[1]["times_ours"] == {"rollout_s": 1.0}


def test_a_side_that_dies_is_named():
    commands = {"broken": [sys.executable, "-c", "raise SystemExit(3)"]}
    with pytest.raises(RuntimeError, match=r"no answer from `.*SystemExit\(3\)`"):
        measure_sides(_BY_HAND, commands, 1)


def test_our_side_does_the_whole_job_and_compiles_nothing_once_warm():
    job = JOBS["tiny"]
    mesh = make_mesh(MeshConfig())
    # optax raises a float to an integer power, which strict promotion refuses.
    with jax.set_mesh(mesh), jax.numpy_dtype_promotion("standard"):
        ours = OurStep(job, mesh)
        ours.init_optimizer()
        ours.step()
        compiles = CompileCounter()
        steps = [ours.step(), ours.step()]
    assert compiles.count == 0
    assert (
        summarize_steps(steps)["tokens"]
        == job.num_prompts * job.group_size * job.new_tokens
    )


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


def test_the_table_marks_what_a_side_lacks():
    row = {
        "size": "3M",
        "side": "hf float32",
        "rollout_tokens_per_s": 4096.0,
        "rollout_s": 1.0,
        "rollout_mfu": 0.125,
        "times_ours": {"rollout_s": 2.0},
        "peak_rss_bytes": 3 << 20,
    }
    header, _, line = format_table([row]).splitlines()
    cells = dict(zip(header.split(" | "), line.split(" | "), strict=True))
    assert cells["rollout tok/s"] == "4,096"
    assert cells["update tok/s"] == "-"
    assert cells["rollout FLOP/s"] == "12.5%"
    assert cells["peak RSS"] == "3 MiB"
    assert cells["rollout time"] == "2.00 x ours"


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--sizes=3M,7T", "'7T' is none of tiny, 3M, 24M"),
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
    """One product is 2 * 3 * 4 * 8 = 192 FLOPs; a quarter of the latents speak."""
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
