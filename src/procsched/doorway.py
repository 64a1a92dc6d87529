"""Doorway: checks what the constructor and `schedule` are given, at once. Runs in callers' threads.

Each check says what was given, what is accepted, and gives an example.
"""

from __future__ import annotations

import enum
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from procsched.core.durations import duration_ns
from procsched.core.jobtable import default_options
from procsched.core.model import JobOptions, Timebase
from procsched.core.retry import Retry
from procsched.core.schedules import At, FixedDelay, Schedule

if TYPE_CHECKING:
    from procsched.core.durations import Duration

__all__ = [
    "check_descriptors",
    "check_instances",
    "check_platform",
    "job_options",
    "schedule_of",
    "seconds",
    "size_of",
    "whole",
    "worker_environment",
]

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_DESCRIPTORS_BESIDE = 32


def whole(value: object, what: str, *, least: int = 1, example: str = "4") -> int:
    """An int of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be a whole number such as {example}, not {value!r}")
    if value < least:
        raise ValueError(f"{what} must be greater than {least - 1}, not {value!r}")
    return value


def seconds(value: Duration | None, what: str) -> float | None:
    """A time to wait, zero included; None: for ever."""
    return None if value is None else duration_ns(value, what, zero=True) / 1e9


def size_of(value: object, what: str) -> int:
    """Bytes, as an int or text such as "512MiB" (units are powers of 1024)."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", value, re.IGNORECASE)
        if match is None:
            raise ValueError(f"{what} must be bytes, or text such as '512MiB' or '2GiB', not {value!r}")
        return whole(int(float(match[1]) * _UNITS[match[2].upper()]), what, example="'512MiB'")
    return whole(value, what, example="'512MiB'")


def schedule_of(when: object) -> Schedule:
    """The Schedule that ``when`` stands for; a datetime stands for `At`."""
    if isinstance(when, datetime):
        return At(when)
    if isinstance(when, Schedule):
        return when
    if isinstance(when, (int, float, timedelta, str)) and not isinstance(when, bool):
        raise TypeError(
            f"when={when!r} doesn't say whether it is a delay or a period: write After({when!r}), "
            f"FixedDelay({when!r}) or FixedRate({when!r})"
        )
    if isinstance(when, type):
        raise TypeError(f"when must be a Schedule, not the class {when.__name__}: give it its arguments")
    if isinstance(getattr(when, "timebase", None), Timebase) and hasattr(when, "first") and hasattr(when, "next"):
        return _adapted(when)
    raise TypeError(f"when must be a Schedule such as FixedRate('10s'), or an aware datetime, not {when!r}")


class _Adapted(Schedule):
    """Somebody's object that does what a Schedule does, without being one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.timebase = inner.timebase

    def first(self, now: int) -> int | None:
        return self._inner.first(now)  # type: ignore[no-any-return]

    def next(self, planned: int, finished: int) -> int | None:
        return self._inner.next(planned, finished)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return repr(self._inner)


def _adapted(when: Any) -> Schedule:
    return _Adapted(when)


_USUAL = (None,) * 5


def job_options(
    schedule: Schedule,
    *,
    priority: object,
    max_instances: object,
    retry: object,
    pause_after_failures: object,
    timeout: Duration | None,
    warn_after: Duration | None,
    misfire_grace_time: Duration | None,
    tags: object,
) -> JobOptions:
    """The options of `schedule`, checked."""
    unusual = (retry, pause_after_failures, timeout, warn_after, misfire_grace_time)
    is_usual = unusual == _USUAL and tags == () and type(max_instances) is int and max_instances == 1
    if is_usual and isinstance(priority, int) and not isinstance(priority, bool):
        return default_options(int(priority))
    if isinstance(priority, bool) or not isinstance(priority, (int, enum.IntEnum)):
        raise TypeError(f"priority must be a Priority or an int (the smaller runs first), not {priority!r}")
    instances = whole(max_instances, "max_instances", example="1")
    check_instances(schedule, instances)
    if retry is not None and not isinstance(retry, Retry):
        raise TypeError(f"retry must be a Retry such as Retry(3, backoff='10s'), not {retry!r}")
    pause = None if pause_after_failures is None else whole(pause_after_failures, "pause_after_failures", example="5")
    return JobOptions(
        int(priority),
        instances,
        retry,
        pause,
        None if timeout is None else duration_ns(timeout, "timeout"),
        None if warn_after is None else duration_ns(warn_after, "warn_after"),
        None if misfire_grace_time is None else duration_ns(misfire_grace_time, "misfire_grace_time", zero=True),
        _tags(tags),
    )


def check_instances(schedule: Schedule, instances: int) -> None:
    """Raises where runs that overlap have no next slot."""
    if instances > 1 and isinstance(schedule, FixedDelay):
        raise ValueError("FixedDelay counts from the end of a run, so it can't be combined with max_instances > 1")


def _tags(tags: object) -> frozenset[str]:
    if isinstance(tags, str):
        raise TypeError(f"tags must be several labels, such as tags=[{tags!r}], not the text {tags!r}")
    if not isinstance(tags, Iterable):
        raise TypeError(f"tags must be labels such as ['nightly'], not {tags!r}")
    labels = frozenset(tags)
    for label in labels:
        if not isinstance(label, str):
            raise TypeError(f"a tag must be a str, not {label!r}")
    return labels


def check_callable_initializer(initializer: object, initargs: object) -> tuple[Callable[..., object], tuple[Any, ...]]:
    if not callable(initializer):
        raise TypeError(f"initializer must be a callable, not {initializer!r}")
    if not isinstance(initargs, (tuple, list)):
        raise TypeError(f"initargs must be a tuple of arguments, not {initargs!r}")
    return initializer, tuple(initargs)


def ship_initializer(initializer: Callable[..., object], initargs: tuple[Any, ...]) -> bytes:
    """Pickle of ``(initializer, initargs)``."""
    from procsched.shipping import blame, pickling
    from procsched.shipping.callables import refuse_what_never_runs

    refuse_what_never_runs(initializer)
    try:
        return bytes(pickling.dumps((initializer, initargs), protocol=5))
    except Exception as error:
        raise blame.not_shippable(initargs, {}, error) from error


def arguments(args: object, kwargs: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The ``args`` and ``kwargs`` of `schedule`, checked."""
    if type(args) is tuple and kwargs is None:
        return args, {}
    if isinstance(args, (str, bytes, Mapping)) or not isinstance(args, Iterable):
        raise TypeError(f"args must be a tuple of arguments, such as args=({args!r},), not {args!r}")
    if kwargs is None:
        return tuple(args), {}
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise TypeError(f"kwargs must be a dict with names as keys, not {kwargs!r}")
    return tuple(args), dict(kwargs)


def worker_environment(env: object, threads: object, workers: int, cores: int) -> dict[str, str]:
    """What is added to the environment of workers: the user's own, and the share of threads for numeric libraries.

    A variable that the user has set, in ``env`` or in the parent's environment, wins.
    """
    own: dict[str, str] = {}
    if env is not None:
        if not isinstance(env, Mapping):
            raise TypeError(f"env must be a dict of str to str, not {env!r}")
        for name, value in env.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"env must map str to str; {name!r}: {value!r} doesn't")
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"env: {name!r} can't be the name of an environment variable, or its value has a NUL")
            own[name] = value
    count = max(1, cores // workers) if threads is None else whole(threads, "threads_per_worker", example="1")
    shares = {name: str(count) for name in _THREAD_VARIABLES if name not in os.environ}
    return {**shares, **own}


def check_platform() -> None:
    """Raises on Windows, which isn't supported yet."""
    if sys.platform == "win32":
        raise OSError("procsched doesn't support Windows yet: its workers need process groups and signals of POSIX")


def check_descriptors(workers: int, spares: int) -> None:
    """Raises ValueError when this process may not open the descriptors that so many workers take."""
    import resource

    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    try:
        used = len(os.listdir(folder))
    except OSError:
        used = 3
    from procsched.pool.ends import DESCRIPTORS_PER_WORKER

    needed = (workers + spares) * DESCRIPTORS_PER_WORKER + _DESCRIPTORS_BESIDE
    if needed > soft - used:
        raise ValueError(
            f"{workers} workers need about {needed} file descriptors, but only {max(0, soft - used)} are left of the "
            f"{soft} that this process may open; raise the limit (ulimit -n) or use fewer workers"
        )
