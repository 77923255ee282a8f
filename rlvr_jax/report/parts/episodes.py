"""The report's section on episodes: turns, tool calls and environment failures.

The function returns the section, or None if the run has no data for it.
"""

from rlvr_jax.report.charts import BLUE, GREEN
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.sections import (
    Part,
    Section,
    draw_chart,
    make_legend,
    metric_line,
)
from rlvr_jax.report.tables import first_and_last_tenth, format_percent, mean


def episodes(run: RunArtifacts) -> Section | None:
    """Turns and tool calls per episode, over the steps."""
    lines = [
        metric_line(run, "environment/turns", label="turns", color=BLUE),
        metric_line(run, "environment/tool_calls", label="tool calls", color=GREEN),
    ]
    if len(lines[0].x) < 2:
        return None
    (turns, last_turns), (calls, last_calls) = (
        first_and_last_tenth(line.y) for line in lines
    )
    failures = mean(metric_line(run, "environment/failures").y)
    text = (
        f"An episode had {turns:.1f} turns and {calls:.1f} tool calls over the first "
        f"tenth of the steps, {last_turns:.1f} and {last_calls:.1f} over the last. In "
        f"{format_percent(failures)} of all episodes the environment gave no answer."
    )
    return Section(
        title="Turns and calls in an episode",
        text=text,
        figures=draw_chart("episodes", "An episode's turns and calls", lines),
        legend=make_legend(lines),
    )


PARTS = (Part(episodes, order=220),)
