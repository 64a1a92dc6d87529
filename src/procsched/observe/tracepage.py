"""TracePage: a trace as one page that needs nothing else: no network, no other file. Anywhere.

Texts of runs are data in it, never markup: JSON whose ``<`` are escaped, read by its script, shown as text.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from procsched.observe.tracefile import TracedRun, TraceFile

__all__ = ["page_of"]


def page_of(trace: TraceFile) -> str:
    """The page's text, to be written as UTF-8."""
    assets = files("procsched.observe") / "assets"
    page = (assets / "trace.html").read_text("utf-8")
    for name in ("timeline.css", "timeline.js"):
        page = page.replace(f"/*{name}*/", (assets / name).read_text("utf-8"))
    return page.replace("/*data*/", _harmless(json.dumps(_data_of(trace), separators=(",", ":"))))


def _harmless(text: str) -> str:
    """JSON that can't end its element, whatever is in it."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data_of(trace: TraceFile) -> dict[str, Any]:
    runs = trace.runs
    jobs = list(dict.fromkeys(run.job_id for run in runs))
    numbers = {job_id: number for number, job_id in enumerate(jobs)}
    lanes = {slot: lane for lane, slot in enumerate(trace.workers)}
    ends = [run.start + run.duration for run in runs]
    return {
        "begun": trace.begun,
        "span": max(ends, default=0.0) - min((run.start for run in runs), default=0.0),
        "lanes": list(trace.workers.values()),
        "jobs": jobs,
        "marks": [{"at": at, "lane": lanes.get(slot, -1), "name": name} for at, slot, name, _about in trace.marks],
        "counts": trace.counts,
        "runs": {
            "lane": [lanes[run.worker] for run in runs],
            "job": [numbers[run.job_id] for run in runs],
            "start": [round(run.start, 7) for run in runs],
            "end": [round(end, 7) for end in ends],
            "late": [round(run.lateness, 7) for run in runs],
            "bad": [int(is_bad(run)) for run in runs],
            "number": [run.number for run in runs],
            "attempt": [run.attempt for run in runs],
            "outcome": [run.outcome for run in runs],
            "error": [run.error for run in runs],
            "held": [run.held_by for run in runs],
        },
    }


def is_bad(run: TracedRun) -> bool:
    """Whether it ended in another way than by success."""
    return run.outcome != "succeeded"
