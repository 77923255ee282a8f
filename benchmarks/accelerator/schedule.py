"""Runs parts one after another within a time budget, and saves how each ended."""

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.accelerator.parts import Part
from benchmarks.accelerator.results import Results
from job_jax.metrics import format_duration

_RESERVE_S = 5.0  # of the budget, to stop a process and to write the table

# Runs a part for at most this many seconds; returns its record, without its seconds.
Launch = Callable[[Part, float], dict[str, Any]]


class Schedule:
    """A time budget that starts now, and the results to save to."""

    def __init__(
        self,
        results: Results,
        *,
        budget_s: float,
        launch: Launch,
        clock: Callable[[], float],
        say: Callable[[str], None],
    ):
        self._results, self._launch = results, launch
        self._clock, self._say = clock, say
        self._end = clock() + budget_s - _RESERVE_S

    def run(self, parts: Sequence[Part]) -> None:
        """Runs the parts that have no final record and fit into the time left."""
        for number, part in enumerate(parts, 1):
            label = f"[{number}/{len(parts)}] {part.name}:"
            left = self._end - self._clock()
            if self._results.is_final(part.name):
                self._say(f"{label} saved already")
            elif part.skip:
                self._results.save(
                    part.name, {"status": "skipped", "reason": part.skip}
                )
                self._say(f"{label} skipped: {part.skip}")
            elif part.estimate_s > left:
                self._say(
                    f"{label} not started: it takes about {_duration(part.estimate_s)},"
                    f" but only {_duration(left)} is left; run the command again"
                )
            else:
                rest = sum(
                    each.estimate_s
                    for each in parts[number - 1 :]
                    if not each.skip and not self._results.is_final(each.name)
                )
                self._say(
                    f"{label} about {_duration(part.estimate_s)}; all that remains "
                    f"{_duration(rest)}; time left {_duration(left)}"
                )
                self._run_one(part, left)

    def _run_one(self, part: Part, left: float) -> None:
        start = self._clock()
        # This record remains if the process is killed.
        self._results.save(part.name, {"status": "interrupted"})
        record = self._launch(part, min(part.limit_s, left))
        if record["status"] == "stopped":  # its own limit, or the end of the budget
            by_limit = part.limit_s <= left
            record = {
                "status": "failed" if by_limit else "interrupted",
                "reason": (
                    f"it took longer than its limit of {_duration(part.limit_s)}"
                    if by_limit
                    else "the time was over"
                ),
            }
        seconds = round(self._clock() - start, 1)
        self._results.save(part.name, {**record, "seconds": seconds})
        reason = f": {record['reason']}" if "reason" in record else ""
        self._say(f"    {record['status']} after {_duration(seconds)}{reason}")


def _duration(seconds: float) -> str:
    return format_duration(max(0.0, seconds))
