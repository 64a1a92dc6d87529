"""procsched beside its peers and the bare limits: ``python tests/benchmarks/compare.py [subject ...]``.

Prints a markdown table per subject; with ``--write`` they go into ``docs/performance.md`` as well. Trust ratios, not
absolute figures: what stands in one table was measured in turn, within a few minutes.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time

import provenance
from harness import Plan

SUBJECTS = [
    "calls",
    "lengths",
    "recurring",
    "lateness",
    "views",
    "cancelling",
    "overstay",
    "million",
    "idle",
    "restart",
    "arrays",
    "orphans",
    "importing",
    "fairness",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("subjects", nargs="*", metavar="subject", help=f"of: {', '.join(SUBJECTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="a smoke test, its figures mean nothing")
    parser.add_argument("--rounds", type=int, default=None, help="of every side, in turn (3; in quick mode 1)")
    parser.add_argument("--seconds", type=float, help="to watch what is idle or unfair (65 and 30; in quick mode 1)")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    if unknown := set(options.subjects) - set(SUBJECTS):
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    if options.write and options.quick:
        parser.error("figures of --quick mean nothing: they aren't written")
    rounds = options.rounds or (1 if options.quick else 3)
    plan = Plan(options.quick, rounds, options.seconds or (1.0 if options.quick else None))
    broken: list[str] = []
    print(provenance.machine())
    for name in options.subjects or SUBJECTS:
        subject = importlib.import_module(name)
        print(f"{subject.TITLE} ({name})", file=sys.stderr, flush=True)
        noise, begin = provenance.Noise(), time.monotonic()
        tables = subject.tables(plan)
        text = "\n".join(table.markdown() for table in tables)
        broken += [f"{name}: {what}" for table in tables for what in table.broken]
        command = " ".join(["tests/benchmarks/compare.py", name, *_given(options)])
        text += f"\n{provenance.line(command, noise, time.monotonic() - begin)}\n"
        print(f"\n## {subject.TITLE}\n\n{text}", flush=True)
        if options.write:
            provenance.write(name, text)
    if options.write:
        provenance.write("machine", provenance.machine())
    for what in broken:
        print(f"broken: {what}", file=sys.stderr)
    return 1 if broken else 0


def _given(options: argparse.Namespace) -> list[str]:
    words = ["--quick"] if options.quick else []
    words += [f"--rounds {options.rounds}"] if options.rounds else []
    words += [f"--seconds {options.seconds:g}"] if options.seconds else []
    return words


if __name__ == "__main__":
    sys.exit(main())
