r"""Problems from a data set on the Hugging Face hub, read through `datasets`.

GSM8K with a policy of half a million parameters, as in `gsm8k_tiny`. The recipe shows
how a data set on the hub becomes problems, not what a policy can learn from it. Without
network, give a folder that `datasets` can load (parquet files, or the output of
`save_to_disk`) instead of the hub's name.

Command:
    python -m rlvr_jax.main --config=hub --workdir=DIR
    python -m rlvr_jax.main --config=hub --workdir=DIR \
        --config.task.path=FOLDER --config.task.subset=

Needs the hub or a folder. We ran only folders with a few problems (in the tests).
"""

import dataclasses
from pathlib import Path

from job_jax.command import load_config
from rlvr_jax.config import Config
from rlvr_jax.tasks import HubTask


def get_config() -> Config:
    """Returns the recipe gsm8k_tiny with problems from the hub."""
    files = load_config(Path(__file__).with_name("gsm8k_tiny.py"), Config)
    task = HubTask(path="openai/gsm8k", subset="main")
    return dataclasses.replace(files, name="hub", task=task)
