"""Runs launchers with fake programs, which record how they are called."""

import pathlib
import shlex
import shutil
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
LAUNCH = ROOT / "launch"
RUN = ("--config=configs/smoke.py", "--workdir=/mnt/share/runs/x")
SLICE = ("--name=r", "--project=p", "--zone=z", "--nfs=10.0.0.2:/d")
TPU = (*SLICE, "--topology=v5e:4x4", *RUN)
GKE = ("--name=r", "--image=i:1", "--claim=c", "--topology=v5e:4x4", *RUN)

# Logs its name and arguments, then does what the next line of its file says.
_STAND_IN = """#!/bin/bash
echo "${0##*/} $*" >>"$STAGE/log"
for part in "$@"; do
  file="$STAGE/${0##*/}.$part"
  [[ -s "$file" ]] && line="$(head -n 1 "$file")" && sed -i 1d "$file" && eval "$line"
done
exit 0
"""


def stand_in(stage, *names):
    for name in names:
        (stage / name).write_text(_STAND_IN)
        (stage / name).chmod(0o755)


def script(stage, name, *lines):
    (stage / name).write_text("".join(f"{line}\n" for line in lines))


def launch(name, *args):
    return subprocess.run(
        [shutil.which("bash"), str(LAUNCH / name), *args],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def logged(stage, tool):
    """Returns the arguments that a fake program got, without flags."""
    lines = (stage / "log").read_text().splitlines()
    calls = [shlex.split(line)[1:] for line in lines if line.startswith(f"{tool} ")]
    return [[word for word in call if not word.startswith("-")] for call in calls]
