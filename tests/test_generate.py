"""Texts from a Hugging Face directory without a recipe: template and settings."""

import contextlib
import dataclasses
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import generate
from rlvr_jax.config import Config, EvalConfig
from rlvr_jax.models import load_hf
from rlvr_jax.probe.steering import SteerablePolicy, WrittenText
from rlvr_jax.probe.steering_flags import LatentStrengths
from rlvr_jax.run.prompts import has_chat_template, prompts_config, read_sampling
from rlvr_jax.sampler import generate as sample
from rlvr_jax.tokenizer.chat import render_chat
from rlvr_jax.tokenizer.huggingface import HuggingFaceTokenizer
from sae_jax.io import save
from sae_jax.sae import TSAE
from tests.support.checkpoints import CHATML, write_checkpoint

PROMPTS = ["What is 1 plus 2?", "What is 3 plus 0?"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("start") / "tiny")


@pytest.fixture
def command(directory, tmp_path, monkeypatch):
    """Returns a function that runs the command and returns the rows it wrote."""
    monkeypatch.setattr("rlvr_jax.run.load.start_jax", lambda mesh: None)

    def run(*flags, prompts=PROMPTS):
        asked = [f"--prompt={text}" for text in prompts]
        out = tmp_path / "out.jsonl"
        out.unlink(missing_ok=True)
        flags = (f"--checkpoint={directory}", *asked, f"--out={out}", *flags)
        code = generate.main(flags)
        lines = out.read_text().splitlines() if out.exists() else []
        return code, [json.loads(line) for line in lines]

    return run


def greedy(directory, text, max_new_tokens):
    """Returns the greedy continuation of a text, by the sampler alone."""
    tokenizer = HuggingFaceTokenizer(directory, has_chat_template=True)
    ids = [tokenizer.encode(text)]
    policy = load_hf(directory)
    policy.num_real_tokens = tokenizer.vocab_size  # the embedding has more rows
    rollouts = sample(policy, ids, max_new_tokens=max_new_tokens, temperature=0.0)
    return tokenizer.decode(np.asarray(rollouts.tokens)[0, : rollouts.lengths[0]])


def message(text):
    return render_chat(CHATML, [{"role": "user", "content": text}])


def test_a_prompt_is_a_message_and_its_answer_is_greedy(command, directory, capsys):
    code, rows = command("--max_new_tokens=6")
    assert code == 0
    assert [row["prompt"] for row in rows] == PROMPTS  # each once, as given
    expected = [greedy(directory, message(text), 6) for text in PROMPTS]
    assert [row["clean"]["text"] for row in rows] == expected
    said = capsys.readouterr()
    assert f"{directory}: chat template, greedy, at most 6 tokens\n" in said.err
    for text in PROMPTS:
        assert f"\nprompt: {text}\n" in said.out


def test_a_raw_prompt_is_unchanged(command, directory):
    _, rows = command("--max_new_tokens=6", "--raw")
    expected = [greedy(directory, text, 6) for text in PROMPTS]
    assert [row["clean"]["text"] for row in rows] == expected
    assert expected != [greedy(directory, message(text), 6) for text in PROMPTS]


def test_samples_differ_by_number_and_seed_and_repeat_with_the_same(command, capsys):
    def texts(*flags):
        flags = ("--max_new_tokens=8", "--num_samples=3", *flags)
        return [row["clean"]["text"] for row in command(*flags)[1]]

    first = texts("--temperature=1.5", "--top_p=0.9")
    line = "temperature 1.5, top-p 0.9, at most 8 tokens, seed 0"
    assert line in capsys.readouterr().err
    assert len(first) == 6
    assert len({*first}) > 3
    assert texts("--temperature=1.5", "--top_p=0.9") == first
    assert texts("--temperature=1.5", "--top_p=0.9", "--seed=1") != first
    # A top-p so small leaves only the likeliest token.
    assert len({*texts("--temperature=1.5", "--top_p=0.0001")[:3]}) == 1


@pytest.mark.parametrize(
    ("stated", "settings"),
    [
        ({}, {"temperature": 0.0, "max_new_tokens": 128}),
        ({"eos_token_id": 2}, {"temperature": 0.0, "max_new_tokens": 128}),
        (
            {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_new_tokens": 32},
            {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_new_tokens": 32},
        ),
        ({"do_sample": True}, {"temperature": 1.0, "max_new_tokens": 128}),
        (
            {"do_sample": False, "temperature": 0.6, "top_p": 0.9},
            {"temperature": 0.0, "max_new_tokens": 128},
        ),
        (
            {"do_sample": True, "top_k": None, "top_p": 0.8},
            {"temperature": 1.0, "top_p": 0.8, "max_new_tokens": 128},
        ),
    ],
)
def test_the_sampling_settings_come_from_the_directory(tmp_path, stated, settings):
    assert read_sampling(tmp_path) == {"temperature": 0.0, "max_new_tokens": 128}
    (tmp_path / "generation_config.json").write_text(json.dumps(stated))
    assert read_sampling(tmp_path) == settings


def test_a_chat_template_is_found_in_either_file(tmp_path):
    assert not has_chat_template(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "x"}')
    assert not has_chat_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert has_chat_template(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "x"}')
    assert has_chat_template(tmp_path)


def test_a_cpu_is_one_device_and_one_layer_is_compiled(directory):
    config = prompts_config(
        directory, PROMPTS, sampling={}, num_samples=1, seed=5, is_chat=False
    )
    assert config.mesh.cpu_devices == 1
    assert config.model.scan_layers
    assert config.model.max_seq_len == 512  # all that config.json allows
    assert config.seed == 5


def test_texts_are_printed_as_each_batch_is_done(command, monkeypatch):
    """Eight devices take eight prompts at a time: nine are two batches."""
    events = []
    draw, show = SteerablePolicy.generate, generate._print_row
    monkeypatch.setattr(
        SteerablePolicy,
        "generate",
        lambda policy, batch: events.append(len(batch)) or draw(policy, batch),
    )
    monkeypatch.setattr(
        generate,
        "_print_row",
        lambda row, **options: events.append(row["prompt"]) or show(row, **options),
    )
    prompts = [f"What is {n} plus {n}?" for n in range(9)]
    assert command("--max_new_tokens=2", prompts=prompts)[0] == 0
    assert events == [8, *prompts[:8], 1, prompts[8]]


def test_latents_are_steered_without_a_recipe(command, tmp_path, capsys):
    tsae = TSAE.init(jax.random.key(0), width=16, latents=32)
    tsae = dataclasses.replace(tsae, encoder_bias=jnp.full(32, 5.0))  # all fire
    metadata = {"hook_name": "blocks.0.hook_resid_post"}
    save(tmp_path / "sae", tsae, metadata=metadata)
    sae = [f"--sae={tmp_path / 'sae'}", "--layers=0", "--max_new_tokens=6"]
    code, rows = command(*sae, "--steer=3:40,5:-40")
    assert code == 0, capsys.readouterr().err
    assert [row["prompt"] for row in rows] == PROMPTS
    assert rows[0]["steering"]["latents"][0]["strengths"] == {"3": 40.0, "5": -40.0}
    assert any(row["steered"]["text"] != row["clean"]["text"] for row in rows)
    _, clean = command("--max_new_tokens=6")
    assert [r["clean"] for r in clean] == [r["clean"] for r in rows]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--num_samples=2"], "num_samples=2 repeats one completion"),
        (["--prompts=none.txt"], "--prompt and --prompts both give prompts"),
        (["--first=2"], "--first counts held-out problems, and --prompt gives others"),
        (["--config.seed=1"], "--config.seed changes a config; add --config=FILE"),
        (["--top_p=0"], "top_p=0.0"),
    ],
)
def test_bad_flags_are_refused(command, capsys, flags, said):
    assert command(*flags)[0] == 2
    assert said in capsys.readouterr().err


def test_a_prompt_that_leaves_no_room_is_refused(command, capsys):
    long = "What is 1 plus 2?" * 9
    assert command("--max_new_tokens=480", prompts=[PROMPTS[0], long])[0] == 2
    said = "1 of 2 prompts leave no room for 480 new tokens in the 512 that the model"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "num_samples"),
    [({}, 4), ({"num_samples": 1}, 1), ({"temperature": 0.0}, 1)],
)
def test_flags_for_sampling_override_a_recipe_with_pass_at_k(given, num_samples):
    flags = generate.GenerateFlags(checkpoint="run", **given)
    config = dataclasses.replace(Config(), eval=EvalConfig(num_samples=4, k=(1, 4)))
    found = generate._override_settings(config, flags).eval
    assert (found.num_samples, found.k) == (num_samples, ())


def test_a_directory_has_no_problems(command, capsys):
    assert command(prompts=[])[0] == 2
    assert "has no problems to answer; add --prompt=TEXT" in capsys.readouterr().err


def test_texts_are_steered_in_the_scope_that_is_checked_and_recorded(monkeypatch):
    scopes = []

    class Scoped:
        def __init__(self, loaded):
            self.text = WrittenText(
                prompt="?", completion="", token_ids=(), finished=True, kl=0.0
            )

        def change_latents(self, *_, **__):
            return "an edit"

        def check_sham(self, asked, *edits, scope):
            scopes.append(scope)

        def steer(self, *edits, scope="completion"):
            scopes.append(scope)
            return contextlib.nullcontext()

        def generate(self, batch):
            return [self.text for _ in batch]

    monkeypatch.setattr(generate, "SteerablePolicy", Scoped)
    monkeypatch.setattr(
        generate, "load_fitting_sae", lambda *_, **__: SimpleNamespace(tsae=None)
    )
    config = SimpleNamespace(eval=SimpleNamespace(batch_size=2))
    loaded = SimpleNamespace(setup=SimpleNamespace(config=config))
    steering = [LatentStrengths(layer=0, sae="sae", strengths={3: 1.0})]
    values = SimpleNamespace(mode="add", scope="everywhere")
    rows = list(generate._write_texts(loaded, ["a", "b", "c"], steering, values))
    assert scopes == ["everywhere"] * 3  # the check, and two batches
    assert {row["steering"]["scope"] for row in rows} == {"everywhere"}
