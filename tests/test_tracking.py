"""What a run gives its trackers, and how an unusable tracker is refused."""

import dataclasses
import json
import shutil
import subprocess
import sys
import types

import pytest

from job_jax.command import StoppedError
from job_jax.config_io import from_json, override, to_json
from job_jax.metrics_file import METRICS_FILE, read_lines
from job_jax.schema import ConfigError
from job_jax.trackers.base import Tracker, tracker_class
from job_jax.trackers.state import tracked_id
from job_jax.trackers.wandb import WandbTracker
from rlvr_jax import tracking
from rlvr_jax.config import Config, LogConfig, TrackingConfig
from rlvr_jax.report.run_files import read_run
from rlvr_jax.run.lineage import Lineage
from rlvr_jax.run.workdir import Workdir
from rlvr_jax.tracking import LineDescriber, RunTrackers, check_trackers
from tests.support.run_workdirs import make_workdir
from tests.support.trackers import Recorder

MADE = []


class Mine(Recorder):
    """A tracker of this test, found under this module's name."""

    def __init__(self, run):
        super().__init__(run)
        MADE.append(self)


MINE = f"{__name__}:Mine"


def with_trackers(*names, **settings):
    return Config(
        name="recipe",
        log=LogConfig(trackers=names, tracking=TrackingConfig(**settings)),
    )


@pytest.fixture
def workdir(tmp_path):
    """A finished run's directory with a current config."""
    MADE.clear()
    path = make_workdir(tmp_path / "bands_3", steps=40, sick_from=20)
    (path / "config.json").unlink()
    return Workdir(path, Config())


def track(config, workdir, lineage=None):
    """Tracks the workdir; returns the tracker with everything it received."""
    with RunTrackers(config, workdir, lineage) as trackers:
        trackers.open()
        trackers.finish()
    return MADE[-1]


def test_a_tracker_gets_config_lines_completions_alarms_and_results(workdir):
    config = with_trackers(MINE, project="p", mode="offline", table_rows=4)
    made = track(config, workdir)
    run, results = made.run, made.events[-2]
    assert (run.name, run.project, run.offline) == ("bands_3", "p", True)
    assert run.config == to_json(config)
    assert run.id == tracked_id(workdir.path)
    lines = read_lines(workdir.path / METRICS_FILE)
    assert [dataclasses.replace(x, samples=(), alarms=()) for x in made.lines] == lines
    # Completions of steps that saved some: the first four of six.
    samples = {line.step: line.samples for line in made.lines if line.samples}
    assert samples.keys() == {0}
    assert samples[0] == workdir.read_rollouts("train", 0)[:4]
    assert samples[0][0].keys() >= {"verdict", "reward", "completion"}
    # The doctor's alarms, at the steps at which it raised them.
    record = {"config": to_json(config)}
    (workdir.path / "config.json").write_text(json.dumps(record))
    alarms = {alarm.step: str(alarm) for alarm in read_run(workdir.path).alarms}
    assert alarms
    assert {line.step: line.alarms[0] for line in made.lines if line.alarms} == alarms
    assert results.num_lines == len(lines) == 20 + 40
    assert results.numbers["eval/after/pass@k/1/mean"] == pytest.approx(0.68, abs=0.2)
    assert "throughput/mfu" not in results.numbers
    assert [path.rsplit("/", 1)[1] for path in results.files] == ["summary.json"]


def test_results_hold_the_report_and_held_out_completions(workdir):
    (workdir.path / "report").mkdir(exist_ok=True)
    (workdir.path / "report" / "index.html").write_text("<!doctype html>")
    for step in (0, 3):
        workdir.write_rollouts("eval_after", step, [{"id": step}] * 3)
    results = track(with_trackers(MINE, table_rows=2), workdir).events[-2]
    assert results.tables == {"eval_after": [{"id": 3}] * 2}
    assert results.files[0] == str(workdir.path / "report" / "index.html")


def test_a_run_that_goes_on_from_another_names_it(workdir, tmp_path):
    first = track(with_trackers(MINE), workdir)
    lineage = Lineage(
        workdir=str(workdir.path), stage="train", step=20, has_optimizer=False
    )
    second = Workdir(tmp_path / "second", Config())
    shutil.copy(workdir.path / METRICS_FILE, second.path)
    config = with_trackers(MINE, name="named")
    made = track(config, second, lineage)
    assert made.run.id != first.run.id
    assert made.run.name == "named"
    assert made.run.parent == {
        "id": first.run.id,
        "workdir": str(workdir.path),
        "stage": "train",
        "step": 20,
    }
    # The parent is sent again after the first run is gone.
    shutil.rmtree(workdir.path)
    assert track(config, second, lineage).run.parent == made.run.parent


def test_results_are_lacking_until_every_tracker_has_them(workdir):
    config = with_trackers(MINE)
    assert RunTrackers(config, workdir, None).lack_results
    track(config, workdir)
    assert not RunTrackers(config, workdir, None).lack_results
    assert not RunTrackers(Config(), workdir, None).lack_results
    # A new start of the work makes them outdated.
    with RunTrackers(config, workdir, None) as trackers:
        trackers.open()
    assert RunTrackers(config, workdir, None).lack_results


@pytest.mark.parametrize(
    ("error", "failed"), [(StoppedError, False), (OSError, True), (None, False)]
)
def test_a_run_is_closed_as_failed_if_it_failed(workdir, error, failed):
    trackers = RunTrackers(with_trackers(MINE), workdir, None)
    try:
        with trackers:
            trackers.open()
            if error:
                raise error("no")
    except (StoppedError, OSError):
        pass
    assert MADE[-1].events[-1] == f"close failed={failed}"


def test_a_process_that_is_not_the_first_has_no_trackers(workdir, monkeypatch):
    monkeypatch.setattr(tracking, "is_primary", lambda: False)
    config = with_trackers("wandb", MINE)
    check_trackers(config)
    with RunTrackers(config, workdir, None) as trackers:
        trackers.open()
        trackers.finish()
    assert trackers.opened == ()
    assert MADE == []
    assert tracked_id(workdir.path) is None


def test_a_run_without_trackers_keeps_nothing_of_any(workdir):
    with RunTrackers(Config(), workdir, None) as trackers:
        trackers.open()
        trackers.finish()
    assert not (workdir.path / "tracking.json").exists()


def test_alarms_of_lines_that_a_tracker_has_are_not_raised_again(workdir):
    describe = LineDescriber(Config(), workdir)
    lines = read_lines(workdir.path / METRICS_FILE)
    alarms = [describe(line, True).alarms for line in lines]
    describe = LineDescriber(Config(), workdir)
    skipped = [describe(line, False) for line in lines[:90]]
    assert [line.alarms for line in skipped] == alarms[:90]
    assert not any(line.samples for line in skipped)
    assert [describe(line, True).alarms for line in lines[90:]] == alarms[90:]


def test_trackers_and_their_settings_are_of_the_command_line_and_of_config_json():
    config = override(
        Config(),
        {
            "log.trackers": f"wandb,{MINE}",
            "log.tracking.project": "chains",
            "log.tracking.mode": "offline",
        },
    )
    assert config.log.trackers == ("wandb", MINE)
    assert from_json(Config, to_json(config)) == config


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("wanbd", "unknown tracker 'wanbd'; did you mean 'wandb'?"),
        ("nowhere:Mine", "cannot import nowhere"),
        ("pathlib:Path", "is not a subclass of job_jax.trackers.base.Tracker"),
        ("wandb,wandb", "repeats one"),
    ],
)
def test_a_wrong_tracker_class_is_refused_when_the_config_is_made(names, said):
    with pytest.raises(ConfigError) as refused:
        override(Config(), {"log.trackers": names})
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_library_that_is_missing_is_refused_with_the_mend(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"pip install 'rlvr_jax\[{name}\]'"):
        check_trackers(with_trackers(name))


class FakeAuthenticationError(Exception):
    pass


class FakeWandb:
    """A fake of the library, with or without a login, and with a server's step."""

    errors = types.SimpleNamespace(AuthenticationError=FakeAuthenticationError)

    def __init__(self, *, logged_in=True, step=0):
        self.logged_in, self.step, self.calls = logged_in, step, []

    def login(self, **options):
        self.calls.append(("login", options))
        if isinstance(self.logged_in, Exception):
            raise self.logged_in
        return self.logged_in

    def init(self, **options):
        self.calls.append(("init", options))
        self.url = f"https://server/{options['id']}"
        return self

    def Settings(self, **options):  # noqa: N802
        return options


def fake_wandb(monkeypatch, **options):
    library = FakeWandb(**options)
    monkeypatch.setitem(sys.modules, "wandb", library)
    return library


def test_a_missing_login_is_refused_only_online(monkeypatch):
    library = fake_wandb(monkeypatch, logged_in=False)
    with pytest.raises(ConfigError, match=r"`wandb login`.*log.tracking.mode=offline"):
        check_trackers(with_trackers("wandb"))
    # It must not prompt at a terminal, because the run may have none.
    assert library.calls == [("login", {"prompt": False, "verify": False})]
    check_trackers(with_trackers("wandb", mode="offline"))
    library.logged_in = FakeAuthenticationError("WANDB_API_KEY invalid")
    with pytest.raises(ConfigError, match="WANDB_API_KEY invalid"):
        check_trackers(with_trackers("wandb"))


def test_online_the_server_says_where_a_run_continues(monkeypatch, workdir):
    library = fake_wandb(monkeypatch, step=7)
    config = with_trackers("wandb")
    trackers = RunTrackers(config, workdir, None)
    run = trackers._describe_run("wandb", trackers._state)
    tracker = WandbTracker(run)
    assert tracker.open() == 7
    ((_, options),) = library.calls
    assert (options["id"], options["resume"]) == (run.id, "allow")
    assert options["mode"] == "online"
    assert tracker.place == f"https://server/{run.id}"


def test_trackio_offline_is_refused_where_its_environment_sends_all(monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", object())
    offline = with_trackers("trackio", mode="offline")
    check_trackers(offline)
    monkeypatch.setenv("TRACKIO_SPACE_ID", "me/space")
    with pytest.raises(ConfigError, match=r"TRACKIO_SPACE_ID is set.*unset it"):
        check_trackers(offline)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(ConfigError, match=r"`hf auth login`"):
        check_trackers(with_trackers("trackio"))
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_secret")
    check_trackers(with_trackers("trackio"))


def test_a_run_without_trackers_imports_no_library_of_theirs():
    code = (
        "import sys, importlib, rlvr_jax.main, rlvr_jax.tracking, rlvr_jax.pipeline\n"
        "from job_jax.trackers.base import TRACKERS, tracker_class\n"
        "[tracker_class(name) for name in TRACKERS.names]\n"
        "print(sorted({'trackio', 'wandb', 'gradio'} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"


def test_names_of_ours_are_trackers():
    assert {tracker_class(name).__name__ for name in ("wandb", "trackio")} == {
        "WandbTracker",
        "TrackioTracker",
    }
    with pytest.raises(NotImplementedError):
        Tracker(None).log(None)
