"""Formats results.json as Markdown; computes shares of a peak from saved numbers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.accelerator.roofline import Peaks, published_peaks

Record = Mapping[str, Any]
_STEP_PARTS = ("sampling", "scoring", "update")


def format_results(parts: Mapping[str, Record]) -> str:
    """Returns a section for each kind of measured part.

    Parts that failed or were skipped or interrupted are listed with the reason.
    """
    done = {name: part["result"] for name, part in parts.items() if "result" in part}
    sections = []
    if "machine" in done:
        sections.append(_machine(done["machine"]))
        peaks = peaks_of(done["machine"])
        for prefix, section in _SECTIONS.items():
            of_kind = {k: v for k, v in done.items() if k.startswith(prefix)}
            if of_kind:
                sections.append(section(of_kind, peaks))
    rest = [
        f"- {name}: {part['status']}"
        + (f", {part['reason']}" if "reason" in part else "")
        for name, part in parts.items()
        if "result" not in part
    ]
    if rest:
        sections.append("Not measured:\n\n" + "\n".join(rest))
    return "\n\n".join(sections) + "\n"


def peaks_of(machine: Record) -> Peaks:
    """Returns the data sheet's peaks of the device, or the measured ones if unknown."""
    measured = Peaks(flops=machine["peak_flops"], bytes_per_s=machine["bytes_per_s"])
    return published_peaks(machine["kind"]) or measured


def _machine(machine: Record) -> str:
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items())
    peaks = peaks_of(machine)
    source = "data sheet" if published_peaks(machine["kind"]) else "as measured"
    return (
        f"Device: {machine['devices']}. Peaks that shares refer to ({source}): "
        f"{_tera(peaks.flops)}, {_giga(peaks.bytes_per_s)}. Measured: "
        f"{_tera(machine['peak_flops'])} in the largest {machine['dtype']} product, "
        f"{_giga(machine['bytes_per_s'])} reading and writing an array. "
        f"Load before the run: {machine['load']:.1f}. {versions}."
    )


def _tests(done: Mapping[str, Record], peaks: Peaks) -> str:
    del peaks
    (result,) = done.values()
    counts = ", ".join(f"{count} {name}" for name, count in result["counts"].items())
    return f"Tests marked `gpu`: {counts or 'none ran'}."


def _attention(done: Mapping[str, Record], peaks: Peaks) -> str:
    del peaks
    (result,) = done.values()
    return _table(
        (
            "attention at the heads of",
            "kernel",
            "value error",
            "gradient error",
            "passed",
        ),
        (
            (
                case["shape"],
                case["kernel"],
                f"{case['value_error']:.1e}",
                f"{case['gradient_error']:.1e}",
                "yes" if case["passed"] else "NO",
            )
            for case in result["cases"]
        ),
    )


def _decoding(done: Mapping[str, Record], peaks: Peaks) -> str:
    columns = (
        *("decoding", "sequences", "rows at a time", "tokens", "tokens/s"),
        *("prompts, s", "decoding, s", "share of bandwidth", "compiling, s", "memory"),
    )
    return _table(columns, (_decoding_row(k, v, peaks) for k, v in done.items()))


def _decoding_row(name: str, result: Record, peaks: Peaks) -> Sequence[str]:
    whole, prompts = (result[key]["median_s"] for key in ("sample", "prefill"))
    decoding = whole - prompts
    return (
        name.split()[1],
        f"{result['sequences']:,}",
        f"{result['batch']:,}",
        f"{result['tokens']:,}",
        f"{result['tokens'] / whole:,.0f}",
        f"{prompts:.3f}",
        f"{decoding:.3f}",
        f"{result['bytes'] / peaks.bytes_per_s / decoding:.1%}",
        f"{result['sample']['compile_s'] + result['prefill']['compile_s']:.0f}",
        _memory(result["peak_memory"]),
    )


def _grpo(done: Mapping[str, Record], peaks: Peaks) -> str:
    columns = (
        *("GRPO step", "trained", "tokens", "sampling, s", "scoring, s", "update, s"),
        *("tokens/s", "MFU of sampling", "of scoring", "of the update"),
        *("probe's features", "all latents", "compiling, s", "memory"),
    )
    return _table(columns, (_grpo_row(k, v, peaks) for k, v in done.items()))


def _grpo_row(name: str, result: Record, peaks: Peaks) -> Sequence[str]:
    parts, tokens = result["parts"], result["tokens"]
    seconds = {part: timing["median_s"] for part, timing in parts.items()}
    step = seconds["sampling"] + seconds["update"]
    added = (
        seconds[f"update_with_{arm}"] / seconds["update"] - 1
        for arm in ("features", "observer")
    )
    return (
        name.split()[1],
        result["trained"],
        f"{tokens:,}",
        *(f"{seconds[part]:.3f}" for part in _STEP_PARTS),
        f"{tokens / step:,.0f}",
        *(
            f"{result['flops'][part] / seconds[part] / peaks.flops:.1%}"
            for part in _STEP_PARTS
        ),
        *(f"{share:+.1%}" for share in added),
        f"{sum(timing['compile_s'] for timing in parts.values()):.0f}",
        _memory(result["peak_memory"]),
    )


def _autoencoder(done: Mapping[str, Record], peaks: Peaks) -> str:
    (result,) = done.values()
    return _table(
        ("autoencoder", "width", "latents", "pairs/s", "dense FLOP/s", "memory"),
        (
            (
                case["kind"],
                f"{case['width']:,}",
                f"{case['latents']:,}",
                f"{case['pairs'] / case['steps']['median_s']:,.0f}",
                f"{case['flops'] / case['steps']['median_s'] / peaks.flops:.1%}",
                _memory(case["peak_memory"]),
            )
            for case in result["cases"]
        ),
    )


def _recipe(done: Mapping[str, Record], peaks: Peaks) -> str:
    del peaks
    (result,) = done.values()
    lines = [
        f"- stage {stage}: step {line['step']} after {line['time_s']:.0f} s"
        for stage, line in result["last"].items()
    ]
    ended = "to its end" if result["finished"] else "until it was stopped"
    return f"configs/smollm2.py, {ended}:\n\n" + "\n".join(lines)


# By the first word of the parts' names, in the order of the page.
_SECTIONS: dict[str, Callable[[Mapping[str, Record], Peaks], str]] = {
    "GPU tests": _tests,
    "attention": _attention,
    "decode": _decoding,
    "grpo": _grpo,
    "autoencoder": _autoencoder,
    "recipe": _recipe,
}


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---", *["--:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _tera(flops: float) -> str:
    return f"{flops / 1e12:,.3g} TFLOP/s"


def _giga(rate: float) -> str:
    return f"{rate / 1e9:,.0f} GB/s"


def _memory(count: int | None) -> str:
    return "-" if count is None else f"{count / 2**30:.1f} GiB"
