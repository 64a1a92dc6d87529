"""Charts: pictures of runs, drawn by matplotlib (extra ``plot``). Anywhere; it never opens a window."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from procsched.core.model import Outcome
from procsched.observe import human
from procsched.observe.extras import need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from procsched.observe.tracefile import TraceFile
    from procsched.records import RunRecord

__all__ = ["draw_history", "draw_trace"]

_MOST_JOBS = 10
"""With colours of their own; more can't be told apart."""
_OTHERS = "others"
_FORMATS = (".png", ".svg", ".pdf")


def figure_for(path: str | os.PathLike[str], what: str, size: tuple[float, float]) -> Any:
    """A matplotlib Figure, without the module that opens windows.

    Raises:
        MissingExtra: matplotlib isn't installed.
        ValueError: The file's name doesn't say what kind of picture it is.
    """
    if os.path.splitext(os.fspath(path))[1].lower() not in _FORMATS:
        raise ValueError(f"{os.fspath(path)}: the name of a picture ends with {', '.join(_FORMATS)}")
    need("matplotlib", "plot", what).use("agg")
    return need("matplotlib.figure", "plot", what).Figure(figsize=size, dpi=110, layout="constrained")


def draw_history(records: Sequence[RunRecord], path: str | os.PathLike[str]) -> int:
    """Durations and lateness over time, a colour for each job, failures marked. Returns the number of runs in it.

    Raises:
        MissingExtra, OSError, ValueError: matplotlib is missing; the file can't be written; its name has a strange end.
    """
    figure = figure_for(path, "--plot", (10, 6))
    started = [record for record in records if record.started is not None]
    if not started:
        return 0
    counts: dict[str, int] = {}
    for record in started:
        counts[_name(record)] = counts.get(_name(record), 0) + 1
    named = sorted(counts, key=lambda name: (-counts[name], name))[:_MOST_JOBS]
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for axes, field, title in ((upper, "duration", "took"), (lower, "lateness", "late")):
        for number, name in enumerate([*sorted(named), _OTHERS]):
            runs = [r for r in started if (_name(r) == name if name != _OTHERS else _name(r) not in named)]
            if runs:
                colour = f"C{number}" if name != _OTHERS else "0.6"
                _dots(axes, runs, field, colour, f"{name} ({len(runs)})" if axes is upper else None)
        axes.set_yscale("log")
        axes.set_ylabel(title)
        axes.yaxis.set_major_formatter(lambda seconds, _position: human.seconds(seconds))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    bad = [record for record in started if record.outcome is not Outcome.SUCCEEDED]
    if bad:
        values = [max(record.duration, 1e-6) for record in bad]
        upper.scatter(
            [record.finished for record in bad], values, s=70, marker="x", color="crimson", linewidths=1.5,
            label=f"didn't succeed ({len(bad)})", zorder=3,
        )  # fmt: skip
    dates = need("matplotlib.dates", "plot", "--plot")
    locator = dates.AutoDateLocator()
    lower.xaxis.set_major_locator(locator)
    zone = started[0].finished.astimezone().tzinfo
    lower.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))
    upper.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize="small")
    figure.savefig(path)
    return len(started)


def _name(record: RunRecord) -> str:
    """Of its job, or its function for a call."""
    return record.job_id if record.generation else record.job_id.removesuffix(f"-{record.number}")


def _dots(axes: Any, runs: Sequence[RunRecord], field: str, colour: str, label: str | None) -> None:
    size = 14 if len(runs) < 2000 else 3
    values = [max(getattr(record, field), 1e-6) for record in runs]
    ends = [record.finished for record in runs]
    axes.scatter(ends, values, s=size, color=colour, label=label, linewidths=0, alpha=0.7)


def draw_trace(trace: TraceFile, path: str | os.PathLike[str]) -> None:
    """The timeline: a lane for each worker, a colour for each job, lateness before a run, failures marked.

    Raises: as `draw_history`.
    """
    lanes = list(trace.workers)
    figure = figure_for(path, "--png", (12, 1.6 + 0.42 * max(1, len(lanes))))
    axes = figure.subplots()
    counts: dict[str, int] = {}
    for run in trace.runs:
        counts[run.job_id] = counts.get(run.job_id, 0) + 1
    named = sorted(sorted(counts, key=lambda name: (-counts[name], name))[:_MOST_JOBS])
    for lane, slot in enumerate(lanes):
        runs = [run for run in trace.runs if run.worker == slot]
        late = [(run.start - run.lateness, run.lateness) for run in runs if run.lateness > 1e-3]
        axes.broken_barh(late, (lane + 0.28, 0.12), color="orange", alpha=0.35, linewidth=0)
        for name in [*named, _OTHERS]:
            own = [run for run in runs if (run.job_id == name if name != _OTHERS else run.job_id not in named)]
            colour = f"C{named.index(name)}" if name != _OTHERS else "0.6"
            bars = [(run.start, run.duration) for run in own]
            axes.broken_barh(bars, (lane - 0.36, 0.72), color=colour, linewidth=0.4)
        bad = [run for run in runs if run.outcome != "succeeded"]
        axes.scatter([run.start for run in bad], [lane - 0.42] * len(bad), s=28, marker="v", color="crimson", zorder=3)
    axes.set_yticks(range(len(lanes)), [trace.workers[slot] for slot in lanes])
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(lambda seconds, _position: human.seconds(seconds))
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    patch = need("matplotlib.patches", "plot", "--png").Patch
    shown = [*named, *([_OTHERS] if len(counts) > len(named) else [])]
    colours = [f"C{number}" for number in range(len(named))] + ["0.6"]
    legend = [patch(color=colour, label=name) for name, colour in zip(shown, colours, strict=False)]
    if legend:
        axes.legend(handles=legend, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize="small")
    figure.savefig(path)
