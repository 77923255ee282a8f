"""What other tools find in our exports of a corpus with known answers."""

import gzip
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from sae_jax.data.shards import ShardWriter
from sae_jax.export import main
from sae_jax.io import load, save
from tests.support.sae_corpora import HOOK, WIDTH, copying, write_corpus


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("export")
    save(root / "sae", copying(), metadata={"k": 2, "model_name": "toy"})
    write_corpus(root / "data")
    write_corpus(root / "plain", factors=False)
    return root


def export(place, form: str, out, *more: str) -> int:
    argv = [f"--sae={place / 'sae'}", f"--format={form}", f"--out={out}", *more]
    return main(argv)


def with_data(place) -> str:
    return f"--activations={place / 'data'}"


def test_saelens_is_what_save_writes(place, tmp_path):
    assert export(place, "saelens", tmp_path / "out") == 0
    np.testing.assert_array_equal(
        load(tmp_path / "out").encoder, load(place / "sae").encoder
    )
    config = json.loads((tmp_path / "out" / "cfg.json").read_text())
    assert config["metadata"]["k"] == 2
    assert config["metadata"]["model_name"] == "toy"


def latents_of_corpus() -> np.ndarray:
    """Returns the corpus's latents [8, 6, 4]; special tokens are not read."""
    f = np.zeros((8, 6, WIDTH))
    step = np.arange(6) // 2
    f[:, np.arange(6), step] = 2
    f[:, np.arange(6), step + 1] += 1
    f[[2, 3, 6, 7], :, 3] += 3
    f[:, 0] = 0
    return f


def test_delphi_reads_back_every_activation(place, tmp_path):
    assert export(place, "delphi", tmp_path / "out", with_data(place)) == 0
    module = tmp_path / "out" / HOOK
    files = sorted(module.glob("*.safetensors"))
    dense = np.zeros((8, 32, WIDTH))
    covered = []
    for file in files:
        first, last = map(int, file.stem.split("_"))
        covered += range(first, last + 1)
        data = load_file(file)
        at = data["locations"].astype(int)
        assert data["locations"].dtype == np.uint16
        assert data["activations"].dtype == np.float16
        dense[at[:, 0], at[:, 1], at[:, 2] + first] = data["activations"]
        assert data["tokens"].shape == (8, 32)  # padded to whole windows of 32
        np.testing.assert_array_equal(
            data["tokens"][3, :7], [30, 31, 32, 33, 34, 35, 0]
        )
    assert covered == list(range(WIDTH))
    np.testing.assert_array_equal(dense[:, :6], latents_of_corpus())
    assert not dense[:, 6:].any()
    config = json.loads((module / "config.json").read_text())
    assert (config["model_name"], config["cache_ctx_len"]) == ("toy", 32)


def lines(path) -> list[dict]:
    with gzip.open(path) as file:
        return [json.loads(line) for line in file]


def test_neuronpedia_shows_each_latent_where_it_is_highest(place, tmp_path):
    assert export(place, "neuronpedia", tmp_path / "out", with_data(place)) == 0
    folder = tmp_path / "out" / "2-tsae"
    features = lines(folder / "features" / "batch-0.jsonl.gz")
    assert [feature["index"] for feature in features] == ["0", "1", "2", "3"]
    assert features[3]["maxActApprox"] == 4.0  # right and next to step 2
    assert features[0]["frac_nonzero"] == pytest.approx(1 / 5)
    assert features[1]["vector"] == [0, 1, 0, 0]
    assert {feature["layer"] for feature in features} == {"2-tsae"}
    contexts = lines(folder / "activations" / "batch-0.jsonl.gz")
    of_first = [c for c in contexts if c["index"] == "0"]
    assert len(of_first) == 8  # one per document
    shown = of_first[5]
    assert shown["tokens"] == ["50", "51", "52", "53", "54", "55"]
    assert shown["values"] == [0, 2, 0, 0, 0, 0]
    assert (shown["maxValue"], shown["maxValueTokenIndex"]) == (2, 1)
    assert len({context["id"] for context in contexts}) == len(contexts)


def test_neuronpedia_takes_the_tokens_from_a_vocabulary(place, tmp_path):
    vocabulary = tmp_path / "tokenizer.json"
    words = {f"<{i}>": i for i in range(76)}
    vocabulary.write_text(json.dumps({"model": {"vocab": words}}))
    more = (with_data(place), f"--vocabulary={vocabulary}")
    assert export(place, "neuronpedia", tmp_path / "out", *more) == 0
    contexts = lines(tmp_path / "out" / "2-tsae" / "activations" / "batch-0.jsonl.gz")
    assert contexts[0]["tokens"][:2] == ["<0>", "<1>"]


def test_equal_data_give_equal_files(place, tmp_path):
    for name in ("a", "b"):
        assert export(place, "neuronpedia", tmp_path / name, with_data(place)) == 0
    files = [
        (tmp_path / name / "2-tsae" / "features" / "batch-0.jsonl.gz").read_bytes()
        for name in ("a", "b")
    ]
    assert files[0] == files[1]


def test_mechreward_rewards_what_right_rollouts_do(tmp_path):
    """Latent 3 is 3 higher in right rollouts; 0 to 2 do not vary over rollouts."""
    save(tmp_path / "sae", copying())
    write_corpus(tmp_path / "data", documents=32)
    assert export(tmp_path, "mechreward", tmp_path / "out", with_data(tmp_path)) == 1
    # All right rollouts are alike, and so are all wrong ones: no spread, so no effect.
    write_noisy(tmp_path / "noisy")
    more = f"--activations={tmp_path / 'noisy'}"
    assert export(tmp_path, "mechreward", tmp_path / "out", more) == 0
    pack = json.loads((tmp_path / "out" / "reasoning_pack.json").read_text())
    assert [f["feature_id"] for f in pack["helpful_features"]] == [3]
    assert [f["feature_id"] for f in pack["harmful_features"]] == [0]
    best = pack["helpful_features"][0]
    assert best["weight"] == 1.0
    assert best["effect_low"] > 0
    assert best["mean_correct"] > best["mean_wrong"]
    assert pack["harmful_features"][0]["weight"] == -1.0
    assert [f["feature_id"] for f in pack["features"]] == [3, 0]
    assert pack["model_name"] == "toy"


def write_noisy(path) -> None:
    """Writes 40 rollouts of 10 prompts: latent 3 marks right ones, latent 0 wrong."""
    rng = np.random.default_rng(0)
    with ShardWriter(
        path,
        width=WIDTH,
        layer=2,
        hook=HOOK,
        model="toy",
        roles=("response",),
        factors=("correct", "prompt"),
        dtype="float32",
    ) as out:
        for number in range(40):
            correct = number % 2
            x = 3 + rng.normal(size=(4, WIDTH))
            x[:, 3] += 2 * correct
            x[:, 0] -= 2 * correct
            x[:, 1:3] = 1.0
            out.add(
                x,
                token_ids=np.arange(4),
                roles=np.zeros(4, int),
                factors={
                    "correct": np.full(4, correct),
                    "prompt": np.full(4, number // 4),
                },
            )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--format=saelens", "--out=x"), "--sae is missing"),
        (("--sae=x", "--out=x"), "--format is missing"),
        (("--sae=x", "--format=saelen", "--out=x"), "saelens"),
        (("--sae=x", "--format=delphi", "--out=x"), "needs --activations=DIR"),
        (("--sae=x", "--format=saelens", "--uot=x"), "out"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(capsys, argv, message):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_nothing_is_written_over(place, tmp_path, capsys):
    (tmp_path / "mine").write_text("")
    assert export(place, "saelens", tmp_path) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_hook_is_stated_where_the_files_do_not_say_it(place, tmp_path, capsys):
    bare, out = tmp_path / "bare", tmp_path / "out"
    save(bare, load(place / "sae"))
    argv = ["--format=saelens", f"--out={out}", "--hook_name=blocks.1.hook_resid_post"]
    assert main([f"--sae={bare}", *argv]) == 0
    said = json.loads((out / "cfg.json").read_text())["metadata"]["hook_name"]
    assert said == "blocks.1.hook_resid_post"
    argv[1] = f"--out={tmp_path / 'other'}"
    assert main([f"--sae={out}", *argv]) == 0  # as in the files
    argv[2] = "--hook_name=blocks.2.hook_resid_post"
    argv[1] = f"--out={tmp_path / 'wrong'}"
    assert main([f"--sae={out}", *argv]) == 2
    assert "but the files say blocks.1.hook_resid_post" in capsys.readouterr().err
    assert not (tmp_path / "wrong").exists()


def test_data_without_outcomes_are_reported(place, tmp_path, capsys):
    more = f"--activations={place / 'plain'}"
    assert export(place, "mechreward", tmp_path / "out", more) == 2
    assert (
        "--outcome=correct: no such factor; the data have []" in capsys.readouterr().err
    )


def test_a_vocabulary_that_is_too_small_is_reported(place, tmp_path, capsys):
    vocabulary = tmp_path / "vocab.json"
    vocabulary.write_text('{"a": 0}')
    more = (with_data(place), f"--vocabulary={vocabulary}")
    assert export(place, "neuronpedia", tmp_path / "out", *more) == 1
    assert "beyond the vocabulary of 1" in capsys.readouterr().err


def test_help_names_every_format(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for name in ("saelens", "neuronpedia", "delphi", "mechreward", "--vocabulary"):
        assert name in out
