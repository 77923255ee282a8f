"""The program reads every field of the config: no field is without effect.

Two whole runs in this process, one on generated problems and one on files, with
settings that enable the optional paths. A data set of the hub is opened separately. All
reads are recorded; a field that nothing reads has no effect.
"""

import dataclasses
import json
import types
from pathlib import Path

import datasets
import jax
import numpy as np
import pytest

from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import to_json
from rlvr_jax.config import (
    AdvantageConfig,
    Config,
    DifficultyConfig,
    DynamicSamplingConfig,
    EvalConfig,
    JudgeConfig,
    LogConfig,
    LoRAConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    RewardConfig,
    RFGOConfig,
    SamplingConfig,
    SFTConfig,
    TokenizerConfig,
    TrainConfig,
    VerifierConfig,
)
from rlvr_jax.config.difficulty import CURRICULA
from rlvr_jax.data import Pool
from rlvr_jax.data.curricula.mixture import Band
from rlvr_jax.environments import Calculator, Message
from rlvr_jax.environments.calls import answer_turns
from rlvr_jax.main import main
from rlvr_jax.probe import FeatureSelectionConfig, ProbeSAEConfig, SAEProbeConfig
from rlvr_jax.probe.rfgo_state import RFGOState
from rlvr_jax.rollouts.request import SampleRequest
from rlvr_jax.rollouts.sample import sample_completions
from rlvr_jax.rollouts.scores import score_completions
from rlvr_jax.run.setup import open_setup
from rlvr_jax.tasks import (
    ChainMix,
    CodeTask,
    FilesTask,
    FiniteFieldTask,
    HubTask,
    ProgramsTask,
    RecordConfig,
    WordProblemsTask,
)
from rlvr_jax.types import Problem
from rlvr_jax.verifiers import judge as judge_module
from rlvr_jax.verifiers.grader import Grader
from sae_jax.config import OptimizerConfig as SAEOptimizerConfig
from sae_jax.config import SAEConfig
from sae_jax.config import TrainConfig as SAETrainConfig
from tests.support.checkpoints import word_config, write_checkpoint
from tests.support.judge_server import says, serve
from tests.support.recording import knobs, record_reads

SAMPLING = SamplingConfig(max_new_tokens=24)
OPTIMIZER = OptimizerConfig(schedule="cosine")
DIFFICULTY = DifficultyConfig(num_samples=2, pool_size=8)
PROBE = SAEProbeConfig(
    num_problems=8,
    num_reference_texts=8,
    log_every=1,
    sae=ProbeSAEConfig(
        architecture=SAEConfig(latents=32, k=4),
        optimizer=SAEOptimizerConfig(warmup_steps=1),
        train=SAETrainConfig(steps=4, num_seeds=2, threshold_start_step=1),
        batch_size=32,
    ),
    features=FeatureSelectionConfig(
        method="reason_score", words=("answer",), min_seed_cosine=0.0
    ),
)
RFGO = RFGOConfig(
    lambda_w=0.5, lambda_p=0.1, correlation_window=1, min_correlation=-1.0
)


MODEL = ModelConfig(
    num_layers=1,
    hidden_size=16,
    intermediate_size=16,
    num_heads=1,
    num_kv_heads=1,
    head_dim=8,
)


def config(task, model=MODEL, lora=None, **sections):
    return Config(
        task=task,
        model=model,
        mesh=MeshConfig(cpu_devices=8),
        sft=SFTConfig(steps=1, batch_size=8, optimizer=OPTIMIZER),
        difficulty=DIFFICULTY,
        curriculum=Band(),
        dynamic_sampling=DynamicSamplingConfig(max_rounds=1),
        train=TrainConfig(
            steps=1,
            batch_size=8,
            group_size=2,
            optimizer=OPTIMIZER,
            advantage=AdvantageConfig(overhard_advantage="clip"),
            old_logprobs="trainer",
            loss=LossConfig(kl_coef=0.1, entropy_coef=0.01, top_entropy_quantile=0.5),
            lora=lora or LoRAConfig(),
            rfgo=RFGO,
            sampling=SAMPLING,
        ),
        eval=EvalConfig(
            num_problems=8,
            num_samples=2,
            k=(1, 2),
            batch_size=8,
            bootstrap_resamples=20,
            sampling=SAMPLING,
        ),
        checkpoint=CheckpointConfig(every=1),
        log=LogConfig(rollouts_every=1, trackers=("tests.support.trackers:Recorder",)),
        prompt_pad_multiple=32,
        completion_pad_multiple=24,
        **{"probe": PROBE} | sections,
    )


@pytest.fixture
def word_problems(tmp_path):
    path = tmp_path / "words.jsonl"
    questions = [(a, b) for a in range(4) for b in range(4)]
    records = [
        {"question": f"{a}+{b}?", "answer": f"{a}\n#### {a + b}"} for a, b in questions
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    return str(path)


def run_episodes(whole, folder):
    """Returns a config of episodes after sampling them and reading its golds."""
    story = WordProblemsTask(largest=20, sft_steps=(1,), train_steps=(1,))
    tool = Calculator(max_turns=2, max_turn_tokens=8, largest_result=20)
    config = dataclasses.replace(
        whole,
        task=story,
        environment=tool,
    )
    called = Message(role="policy", text="<calc> 1 + 1 </calc>")
    answer_turns(tool, [(story.problems("eval", seed=0)[0], (called,))])
    tool.format_reply("")
    setup = open_setup(config, folder / "unused", stages=("sft", "train"))
    with setup.verifier, jax.set_mesh(setup.mesh):
        sample_completions(
            setup,
            SampleRequest(
                problems=setup.problems("train", 8),
                weights=setup.initial_params(),
                sampling=SAMPLING,
                num_samples=1,
                key=setup.stream_key("train"),
                weight_version=np.int32(0),
            ),
        )
    return config


@pytest.mark.usefixtures("restored_signals")
def test_every_field_of_the_config_is_read(
    tmp_path, monkeypatch, word_problems, capsys
):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "hub").mkdir()
    pack = tmp_path / "pack.json"
    pack.write_text('{"features": [{"feature_id": 1, "weight": -1}]}')
    mix = ChainMix(chain_lengths=(2,), types=("evaluation", "composition"))
    configs = {
        "chains": config(
            FiniteFieldTask(modulus=5, sft=mix, train=mix, eval=mix),
            model=dataclasses.replace(MODEL, rope_scaling="yarn", rope_factor=2.0),
        ),
        "words": config(
            FilesTask(
                train_path=word_problems,
                eval_path=word_problems,
                record=RecordConfig(
                    prompt_template="Question: {prompt}\nAnswer:",
                    chat_template="{% for m in messages %}{{ m.content }} {% endfor %}",
                    system_prompt="Add.",
                ),
            ),
            model=dataclasses.replace(
                MODEL,
                layer_types=("sliding",),
                sliding_window=8,
                rope_scaling="llama3",
                rope_factor=2.0,
            ),
            lora=LoRAConfig(rank=1, target_modules=("q_proj",)),
            tokenizer=TokenizerConfig(kind="sentencepiece", vocab_size=290),
            probe=dataclasses.replace(
                PROBE,
                features=FeatureSelectionConfig(
                    method="weights_file", weights_file=str(pack)
                ),
            ),
        ),
    }
    silent = set()
    with record_reads() as reads:
        for name, each in configs.items():
            record = tmp_path / f"{name}.json"
            record.write_text(json.dumps({"config": to_json(each)}))
            exit_code = main([f"--config={record}", f"--workdir={tmp_path / name}"])
            assert exit_code == 0, capsys.readouterr().err
        hub = HubTask(path=str(tmp_path / "hub"))
        for stage, split in (("train", "train"), ("eval", "test")):
            rows = datasets.Dataset.from_list([{"question": "1?", "answer": "#### 1"}])
            rows.to_parquet(tmp_path / "hub" / f"{split}.parquet")
            source = hub.problems(stage, seed=0)
        record = {"text": "?", "code": "f = abs", "test_list": ["assert f(1) == 1"]}
        (tmp_path / "code.jsonl").write_text(json.dumps(record))
        paths = {
            f"{side}_path": str(tmp_path / "code.jsonl") for side in ("train", "eval")
        }
        code = CodeTask(
            **paths, chat_template="{{ messages[1].content }}", system_prompt="Go."
        )
        programs = ProgramsTask()
        for task in (code, programs):
            assert [task.problems(stage, seed=0)[0] for stage in ("train", "eval")]
        # An existing autoencoder, and latents named by hand.
        named = FeatureSelectionConfig(method="list", latents=(1,))
        there = SAEProbeConfig(
            sae_path=str(tmp_path / "chains" / "sae"), features=named
        )
        there.check_before_run(
            dataclasses.replace(configs["chains"], probe=there), tokenize=str.split
        )
        # A proxy that follows the outcome; a run this short may not find one.
        sums = types.SimpleNamespace(
            num_informative_groups=2.0,
            moments=np.array([1.0, 1.0, 1.0]),
            moment_products=np.full((3, 3), 0.5),
            sum_squares=np.ones(1),
            num_tokens=1.0,
            proxy_groups=1,
        )
        state = RFGOState.init([1.0]).update(sums, RFGO, proxy_strength=0.1)
        assert state.is_proxy_on(RFGO)
        # A judge and a custom reward.
        asked = Problem(id="a", prompt="", gold="", verifier="judge", source="")
        names = ("judge", "tests.support.user_extensions:brevity")
        monkeypatch.setattr(judge_module, "_FIRST_BACKOFF_S", 0.001)
        with (
            serve(lambda _, n: says("SCORE: 7") if n > 1 else (500, "")) as endpoint,
            Grader(
                VerifierConfig(),
                JudgeConfig(url=endpoint.url, model="m", answer="score"),
            ) as grader,
        ):
            grader.open_verifier("judge").check_ready()
            grader.open_verifier("code")  # its jail's limits, which no run here uses
            assert grader([asked], ["7"])[0].status == "correct"
            reward = RewardConfig(names=names, weights=(1.0, 1.0))
            score_completions(
                reward, [asked], ["7"], judge=grader, seed=0, group_size=1
            )
        episodes = run_episodes(configs["chains"], tmp_path)
        # A checkpoint to start from, and the tokenizer in its directory.
        start = write_checkpoint(tmp_path / "hf")
        pretrained = word_config(start, Path(word_problems))
        with open_setup(pretrained, tmp_path / "unused", stages=("train",)).verifier:
            pass
        curricula = [CURRICULA.load(name)() for name in CURRICULA.names]
        for curriculum in curricula:
            pool = Pool(source, Config(difficulty=DIFFICULTY, curriculum=curriculum))
            for step in (0, 100):
                pool.next_batch(pool.initial(), step, 1)
    for each in (*configs.values(), episodes, hub, code, programs, *curricula):
        silent |= knobs(each) - reads
    assert silent == set()
