"""Settings of trackers, shared by all trackers of a run."""

import dataclasses
from typing import Annotated, Literal

from job_jax.config import NON_EMPTY
from job_jax.schema import ConfigSection, PositiveInt


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrackingConfig(ConfigSection):
    """How trackers show a run. Keys and servers: as each library reads them."""

    project: Annotated[str, NON_EMPTY] = "rlvr_jax"  # where trackers put runs
    name: str = ""  # of the run; "": the workdir's folder
    mode: Literal["online", "offline"] = "online"  # offline: nothing leaves the machine
    table_rows: PositiveInt = 64  # completions in the table of a step
