r"""Problems of a data set of the Hugging Face hub, read through `datasets`.

GSM8K with a policy of half a million parameters, as in `gsm8k_tiny`: the recipe shows
how a data set of the hub becomes problems, not what can be learned from it. A folder
that `datasets` can load (parquet files, or one of `save_to_disk`) stands in for the
hub's name where there is no network.

Command:
    python -m rlvr_jax.main --config=configs/hub.py --workdir=DIR
    python -m rlvr_jax.main --config=configs/hub.py --workdir=DIR \
        --config.task.path=FOLDER --config.task.subset=

Needs the hub or such a folder. Only folders of a few problems were run (the tests).
"""

import dataclasses
from pathlib import Path

from job_jax.command import load_config
from rlvr_jax.config import Config
from rlvr_jax.tasks import HubTask


def get_config() -> Config:
    """Returns the recipe: gsm8k_tiny's, its problems from the hub."""
    files = load_config(Path(__file__).with_name("gsm8k_tiny.py"), Config)
    task = HubTask(path="openai/gsm8k", subset="main")
    return dataclasses.replace(files, name="hub", task=task)
