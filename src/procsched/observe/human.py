"""Numbers as people read them. Pure; anywhere."""

from __future__ import annotations

__all__ = ["count", "seconds", "size"]


def seconds(value: float) -> str:
    """A duration with three digits and the unit that suits it: ``"412 us"``, ``"1.32 s"``, ``"2 h 05 min"``."""
    if value < 0:
        return f"-{seconds(-value)}"
    if value < 0.9995e-3:
        return f"{value * 1e6:.0f} us"
    if value < 0.9995:
        return f"{_three_digits(value * 1e3)} ms"
    if value < 59.95:
        return f"{_three_digits(value)} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def size(value: int) -> str:
    """Bytes with a binary unit: ``"312 B"``, ``"1.5 MiB"``."""
    amount, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1000 or unit == "TiB":
            break
        amount /= 1024
    return f"{value} B" if unit == "B" else f"{_three_digits(amount)} {unit}"


def count(number: int, noun: str) -> str:
    """``"1 run"``, ``"2 runs"``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _three_digits(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
