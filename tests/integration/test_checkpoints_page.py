"""The page about checkpoints: its examples run in a folder with a finished run."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/use/checkpoints.md"


def test_a_run_of_eight_devices_is_read_on_one(whole, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "smoke").symlink_to(whole)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    code = "\n".join(blocks).replace("train/6/", "train/4/")  # the run has 4 steps
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    change, state, hard = done.stdout.splitlines()
    assert float(change) > 0
    assert state == "4 (1, 16, 1, 16)"
    assert hard.startswith("[")
