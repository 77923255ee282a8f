"""The subcommand `features` and its part of the report, on worlds with known truth."""

import dataclasses
import json
import re

import numpy as np
import pytest

from job_jax.metrics import MetricsWriter
from rlvr_jax.analysis import read_run, write_report
from rlvr_jax.analysis.features.autoencoders import autoencoder_section
from rlvr_jax.analysis.features.command import main
from rlvr_jax.analysis.features.section import probe_sections
from rlvr_jax.probe.weight_noise import NoiseReadings
from tests.support.feature_worlds import World, write_features

EASY = {0: 1.8, 1: 0.4, 2: 1.8}
PLANTED = World(
    gain={"easy": EASY, "hard": {2: 1.8}},
    emerging={"easy": {3: 0.1}, "hard": {3: 0.1, 4: 0.1}},
)
# Another training of the same policy on the same texts: 5 and 6 instead of 0 and 2.
OTHER = World(
    gain={"easy": {5: 1.8, 6: 1.8}, "hard": {2: 1.8}},
    emerging={"easy": {3: 0.1}, "hard": {3: 0.1, 4: 0.1}},
)


def workdir(path, world=PLANTED, *, seed=0, band="hard", log_every=50, **written):
    """Writes a run with a probe: config and the probe's log."""
    path.mkdir()
    config = {
        "name": path.name,
        "seed": seed,
        "task": {"source": "finite_field", "modulus": 7},
        "train": {"steps": 100, "batch_size": 8, "group_size": 8}
        | {"curriculum": {"band": band}},
        "probe": {
            "max_unexplained_growth": 0.5,
            "max_splice_cost": 0.1,
            "log_every": log_every,
        },
    }
    record = {"config": config, "seed": seed, "device": "1 x cpu"}
    (path / "config.json").write_text(json.dumps(record))
    write_features(path, world, seed=seed, **written)
    return path


def found_by(capsys, *arguments):
    assert main([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def line(output, *start):
    """Returns the words of the line that starts with these."""
    rows = [row.split() for row in output.splitlines()]
    return next(row for row in rows if row[: len(start)] == list(start))


def test_the_count_matrix_matches_the_planted_features(tmp_path, capsys):
    output = found_by(capsys, workdir(tmp_path / "run"))
    assert "step 100 against step 0" in output
    bare = re.sub(r" \([\d.e-]+\)", "", output)
    #                                prompts tokens tested mov str sup eme uni
    assert line(bare, "easy")[1:] == ["24", "4800", "59", "4", "2", "1", "1", "1"]
    assert line(bare, "hard")[1:] == ["24", "4800", "60", "3", "1", "0", "2", "1"]
    assert line(bare, "all")[1:4] == ["48", "9600", "60"]
    assert line(bare, "all")[-1] == "\u2013"
    assert "warning" not in output


def test_the_record_holds_each_claim_with_its_evidence(tmp_path, capsys):
    path = workdir(tmp_path / "run")
    output = found_by(capsys, path)
    assert output.endswith(f"written: {path}/features/dynamics.json\n")
    record = json.loads((path / "features/dynamics.json").read_text())
    assert record["steps"] == [0, 100]
    assert record["counts"]["easy"]["strengthened"] == 2
    assert record["thresholds"]["delta"] == 0.2
    assert len(record["sensitivity"]) == 7
    rows = {(row["band"], row["feature"]): row for row in record["features"]}
    first = rows["easy", 0]
    assert first["kinds"] == ["strengthened", "unique"]
    assert first["absent_elsewhere"] is True  # hard's interval is below 1.2
    value, low, high = first["ratio"]
    assert 1.2 < low < value < high < 2.4
    assert first["rollout_ratio"] == pytest.approx(value)  # the same sums in this world
    assert first["reward_weight"] == 0.75
    assert first["seed_cosine"] == pytest.approx(1.0, abs=1e-6)
    # Beyond all 20 draws of noise, as are two others of 59: rank 1 of 1 + 20 x 59.
    assert first["q"] == pytest.approx(59 / (1 + 20 * 59) / 3)
    mean, least, largest = first["noise_ratio"]
    assert 0.8 < least < mean < largest < low
    woken = rows["hard", 4]
    assert woken["kinds"] == ["emerging", "unique"]
    assert woken["ratio"] == [None, None, None]  # from silence
    assert woken["rate"][0] == 0.0
    assert woken["rate_interval"][0] < 0.1 < woken["rate_interval"][1]
    assert rows["easy", 1]["kinds"] == ["suppressed"]
    assert ("hard", 0) not in rows


def test_nothing_is_unique_to_the_only_band(tmp_path, capsys):
    path = workdir(tmp_path / "run", World(bands=("hard",), gain={"hard": {2: 1.8}}))
    output = found_by(capsys, path)
    assert line(output, "hard")[-1] == "\u2013"
    record = json.loads((path / "features/dynamics.json").read_text())
    assert [(r["band"], r["kinds"]) for r in record["features"]] == [
        ("hard", ["strengthened"]),
        ("all", ["strengthened"]),
    ]


def test_the_nulls_are_shown_next_to_the_claims(tmp_path, capsys):
    """Noise in these worlds moves features only by chance, and claims nothing."""
    path = workdir(tmp_path / "run")
    idle = workdir(tmp_path / "coin", World(emerging=PLANTED.emerging, gain={}))
    output = found_by(capsys, path, f"--null_runs={idle}")
    #                           draws drift      easy          hard
    beside = {
        name: " ".join(line(output, *name.split())[len(name.split()) :])
        for name in ("this run", "noise of equal drift", "coin")
    }
    assert beside["this run"].startswith("1 25 % 4 / 4 3 / 3")
    assert beside["noise of equal drift"].startswith("5 25 % 0 / 0 0 / 0")
    assert beside["coin"].startswith("1 25 % 1 / 1 2 / 2")  # with those emerging there
    assert "RL moved the residual stream of these texts by 25 % of its size" in output
    record = json.loads((path / "features/dynamics.json").read_text())
    labels = [null["label"] for null in record["nulls"]]
    assert labels == ["noise of equal drift", "noise of equal weight norm"]
    assert [len(null["draws"]) for null in record["nulls"]] == [5, 5]


def test_features_that_noise_moves_as_far_are_not_claimed(tmp_path, capsys):
    """If noise moves features 0 and 2 as far as RL does, they are not claimed."""
    path = workdir(tmp_path / "run")
    file = path / "features/noise_000100.npz"
    readings = NoiseReadings.load(file)
    rng = np.random.default_rng(0)
    for name, sums in readings.sums.items():
        if name != "before":
            sums[:, [0, 2]] *= rng.uniform(0.6, 2.4, size=2)
    readings.save(file)
    bare = re.sub(r" \([\d.e+-]+\)", "", found_by(capsys, path))
    assert line(bare, "easy")[4:] == ["4", "0", "1", "1", "0"]
    assert line(bare, "hard")[4:] == ["3", "0", "0", "2", "1"]


def test_nothing_is_unique_if_another_band_has_too_little_data(tmp_path, capsys):
    """Only hard gains 4; one easy prompt is too few to know about easy."""
    path = workdir(tmp_path / "run", dataclasses.replace(PLANTED, few={"easy": 1}))
    output = found_by(capsys, path)
    assert line(output, "hard")[-1] == "\u2013"
    assert "Band easy is left out: it has 1 texts, too few to find a change." in output
    record = json.loads((path / "features/dynamics.json").read_text())
    assert record["omitted"] == {"easy": 1}
    assert record["counts"]["hard"]["unique"] == 0
    assert not [r for r in record["features"] if "unique" in r["kinds"]]


def test_every_band_has_as_many_texts(tmp_path, capsys):
    path = workdir(tmp_path / "run", dataclasses.replace(PLANTED, few={"easy": 10}))
    output = found_by(capsys, path)
    assert line(output, "easy")[1:3] == line(output, "hard")[1:3] == ["10", "2000"]
    assert line(output, "all")[1:3] == ["34", "6800"]


def test_without_noise_nothing_is_claimed(tmp_path, capsys):
    path = workdir(tmp_path / "run")
    (path / "features/noise_000100.npz").unlink()
    assert "noise_000100.npz is missing" in refused(capsys, path)
    titles = {section.title: section for section in probe_sections(read_run(path))}
    assert "Which features RL changed" not in titles
    assert "is missing" in titles["How many features RL changed"].findings[0][1]


def test_cuts_and_step_are_taken_from_the_command(tmp_path, capsys):
    path = workdir(tmp_path / "run")
    strict = found_by(capsys, path, "--delta=0.99", "--step=50")
    assert "step 50 against step 0" in strict
    bare = re.sub(r" \([\d.e-]+\)", "", strict)
    assert line(bare, "easy")[4:] == ["1", "0", "0", "1", "0"]


def test_an_autoencoder_that_no_longer_fits_stands_first(tmp_path, capsys):
    path = workdir(tmp_path / "run", fve=(0.8, 0.78, 0.74))
    output = found_by(capsys, path)
    warning = output.index("warning: the autoencoder explains less")
    assert warning < output.index("strengthened")
    # The unexplained tenth has become 0.16: 60 % more, and 50 % is allowed.
    assert "FVE 0.900 at step 0, 0.840 now" in output
    steady = found_by(capsys, workdir(tmp_path / "steady", fve=(0.8, 0.78, 0.76)))
    assert "warning" not in steady


def test_completions_count_up_to_the_last_that_were_read(tmp_path, capsys):
    """The last step has only reference texts, so completions count up to step 50."""
    path = workdir(tmp_path / "run", fve=(0.8, 0.6, 0.8))
    file = path / "features/sae_fidelity.jsonl"
    lines = [json.loads(each) for each in file.read_text().splitlines()]
    kept = [each for each in lines if (each["step"], each["split"]) != (100, "rollout")]
    file.write_text("".join(json.dumps(each) + "\n" for each in kept))
    output = found_by(capsys, path)
    assert "FVE 0.800 at step 0, 0.600 now (own completions)" in output
    assert "(reference texts" not in output


def test_a_control_direction_is_named(tmp_path):
    path = workdir(tmp_path / "run")
    file = path / "sae/selection.json"
    selection = json.loads(file.read_text())
    assert not probe_sections(read_run(path))[0].text.startswith("This run read raw")
    # As the stage writes it: one weight, and the candidates that it covers.
    assert len(selection["latents"]) > 1
    one = {"control": "direction", "weights": [1.0], "rms": [1.0]}
    file.write_text(json.dumps(selection | one))
    section = probe_sections(read_run(path))[0]
    assert section.text.startswith("This run read raw")
    assert section.table is None
    # Without a chosen feature there can be no direction.
    none = {"latents": [], "weights": [], "refusal": "no feature was confirmed"}
    file.write_text(json.dumps(selection | one | none))
    text = probe_sections(read_run(path))[0].text
    assert text.startswith("None, and RFGO is off: no feature was confirmed")


def test_unmeasured_fidelity_is_reported_as_unknown(tmp_path, capsys):
    path = workdir(tmp_path / "run", fve=())
    assert "unclear whether the autoencoder still fits" in found_by(capsys, path)


def test_runs_own_features_are_those_no_other_training_gained(tmp_path, capsys):
    hard = workdir(tmp_path / "hard")
    easy = workdir(tmp_path / "easy", OTHER, band="easy")
    output = found_by(capsys, hard, easy)
    # On easy texts: 0, 2, 3 against 5, 6, 3; on hard texts the same three.
    assert line(output, "hard", "3,")[1:7] == ["3,", "own", "2", "3,", "own", "0"]
    assert line(output, "easy", "3,")[1:7] == ["3,", "own", "2", "3,", "own", "0"]
    record = json.loads((easy / "features/dynamics.json").read_text())
    own = {
        tuple(g["runs"]): g["unique_features"]["easy"] for g in record["seed_groups"]
    }
    assert own == {("hard",): [0, 2], ("easy",): [5, 6]}


def test_seeds_share_a_row_and_differ_by_chance_alone(tmp_path, capsys):
    """Four families of two equal seeds: more than one claim is unlikely."""
    runs = [workdir(tmp_path / f"seed{s}", seed=s) for s in (0, 1)]
    output = found_by(capsys, *runs)
    assert line(output, "seed0", "+", "seed1", "3,")[4:7] == ["own", "3", "3,"]
    apart = re.search(r"moved apart: easy (\d+), hard (\d+), all (\d+)", output)
    assert sum(map(int, apart.groups())) <= 1


def refused(capsys, *arguments):
    assert main([*map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


def test_a_run_without_features_names_the_switch(tmp_path, capsys):
    path = workdir(tmp_path / "run", steps=())
    assert "probe.log_every" in refused(capsys, path)
    assert probe_sections(read_run(path)) == []


def test_one_step_is_nothing_to_compare(tmp_path, capsys):
    path = workdir(tmp_path / "run", steps=(0,))
    assert "step 0 only" in refused(capsys, path)
    late = workdir(tmp_path / "late", steps=(50, 100))
    assert "no features of step 0 (logged: [50, 100])" in refused(capsys, late)


def test_an_unlogged_step_is_named_with_the_logged_ones(tmp_path, capsys):
    path = workdir(tmp_path / "run")
    assert "steps [0, 50, 100], not of 70" in refused(capsys, path, "--step=70")


def test_two_dictionaries_are_both_named(tmp_path, capsys):
    runs = [workdir(tmp_path / str(n), dictionary=n) for n in (0, 1)]
    error = refused(capsys, *runs)
    assert all(f"{run} with " in error for run in runs)
    assert "(60 latents)" in error
    digests = re.findall(r"with ([0-9a-f]{12})", error)
    assert len(set(digests)) == 2


def test_a_cut_that_makes_no_sense_is_bad_usage(tmp_path, capsys):
    assert "delta=1.5" in refused(capsys, workdir(tmp_path / "run"), "--delta=1.5")


def test_a_run_that_lost_its_autoencoder_says_so(tmp_path, capsys):
    path = workdir(tmp_path / "run")
    (path / "sae/sae_weights.safetensors").unlink()
    assert "sae/sae_weights.safetensors is missing" in refused(capsys, path)


def test_the_report_has_the_probes_sections(tmp_path):
    path = workdir(tmp_path / "run")
    made = {section.title: section for section in probe_sections(read_run(path))}
    assert list(made) == [
        "Which features go with correct answers",
        "How many features RL changed",
        "How many features change without learning",
        "Which features RL changed",
        "How well the autoencoder still fits the policy",
    ]
    reward, counted = (
        made["Which features go with correct answers"],
        made["How many features RL changed"],
    )
    assert [row[0] for row in reward.table.rows] == ["0", "9 (hardly fires)"]
    assert len(reward.figures) == 3
    assert set(reward.legend) == {"all", "easy", "hard"}
    assert [row[0] for row in counted.table.rows] == ["easy", "hard", "all"]
    assert counted.findings == []
    assert len(made["How well the autoencoder still fits the policy"].figures) == 4
    page = write_report(path).read_text()
    assert page.index("Which features go with correct answers") < page.index(
        "Which features RL changed"
    )


def test_level_and_contrast_of_reward_features(tmp_path):
    """Right tokens sum to 0.6, wrong to 0.4, half the tokens each: 1.2 - 0.8 of mu."""
    path = workdir(tmp_path / "run")
    reward = probe_sections(read_run(path))[0]
    of_0 = reward.table.rows[0]
    assert of_0[1:5] == ("0.750", "0.40 \u00b1 0.10", "0.001", "1.00")
    (fixed, own, contrast) = (
        [float(end) for end in cell.split(" \u2192 ")] for cell in of_0[5:8]
    )
    assert own == fixed
    assert contrast == pytest.approx([0.4 * end for end in own], rel=0.01)


def test_the_report_says_how_features_were_tested(tmp_path):
    text = probe_sections(read_run(workdir(tmp_path / "run")))[0].text
    assert "Of 58 latents that fire, 20 are found by another seed." in text
    assert (
        "chosen by their effect within 40 problems, and 2 were confirmed on 41" in text
    )
    assert "75 % have the same sign on both halves" in text


def test_a_seed_and_its_baseline_without_contrast_are_side_by_side(tmp_path):
    path = workdir(tmp_path / "run")
    run = read_run(path)
    assert autoencoder_section(run) is None
    replica = {
        "alpha": 0.1,
        "fve": 0.9216,
        "alive": {"high": 1.0, "low": 0.95, "all": 0.96},
        "relative_smoothness": {"high": 0.932, "low": 1.03, "all": 1.0},
        "autocorrelation": {"high": 0.309, "all": 0.07},
    }
    baseline = replica | {"alpha": 0.0, "autocorrelation": {"high": -0.136}}
    replicas = {"seed0": replica, "seed0_no_contrast": baseline}
    run = dataclasses.replace(run, summary={"tsae": {"replicas": replicas}})
    first, second = autoencoder_section(run).table.rows
    assert first == (
        *("seed0", "0.1", "0.922", "96 %"),
        *("0.932", "1.030", "0.309", "\u2013"),
    )
    assert (second[0], second[1], second[6]) == ("seed0_no_contrast", "0", "-0.136")


def test_without_features_the_report_says_that_rfgo_is_off_and_why(tmp_path):
    path = workdir(tmp_path / "run")
    file = path / "sae/selection.json"
    lists = ("latents", "weights", "rms", "effects", "effect_errors")
    empty = {name: [] for name in lists}
    selection = json.loads(file.read_text()) | empty | {"refusal": "none of 4 latents"}
    file.write_text(json.dumps(selection))
    reward, *others = probe_sections(read_run(path))
    assert reward.title == "Which features go with correct answers"
    assert reward.text.startswith("None, and RFGO is off: none of 4 latents. Of 58")
    assert {section.title for section in others} >= {"How many features RL changed"}


def test_rfgos_effect_is_drawn_if_it_was_logged(tmp_path):
    path = workdir(tmp_path / "run")
    with MetricsWriter(path) as writer:
        for step in range(4):
            values = {"rfgo/corr_reward": 0.3, "rfgo/weight_std": 0.1 + step}
            writer.write("train", step, values)
    charts = "".join(probe_sections(read_run(path))[0].figures)
    assert "Correlation of proxy and outcome" in charts
    assert "Deviation of token weights" in charts
    assert "Groups given a proxy reward" not in charts


def test_a_report_of_one_logged_step_has_no_dynamics(tmp_path):
    path = workdir(tmp_path / "run", steps=(0,))
    titles = [section.title for section in probe_sections(read_run(path))]
    assert titles == [
        "Which features go with correct answers",
        "How well the autoencoder still fits the policy",
    ]


def test_an_ill_fitting_autoencoder_is_a_finding_of_the_report(tmp_path):
    path = workdir(tmp_path / "run", fve=(0.8, 0.75, 0.6))
    made = {section.title: section for section in probe_sections(read_run(path))}
    findings = made["How many features RL changed"].findings
    assert len(findings) == 1
    assert findings[0][1].count("FVE") == 3
    assert "3 more in dynamics.json" in findings[0][1]  # two splits, three bands
    assert "FVE 0.900 at step 0, 0.700 now (reference texts" in findings[0][1]
