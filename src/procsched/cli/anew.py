"""Anew: a task file is executed again, and the running scheduler is brought to what it says now. In the parent.

    SIGHUP, or a change of a file → load again, beside the old → compare with what is scheduled → renew workers → apply

Nothing is changed before all of it is known to work: the file loads, its ids are sound, everything can be sent to a
worker. A job is known by its id, and changed when its function's code, its schedule, its arguments or its options are.
What is unchanged isn't touched, and keeps its phase; but its next run, too, has the new code of whatever its function
calls, since every worker is replaced between runs. Workers get the code that was accepted here, and never read these
files by themselves: one that is broken, or half written, concerns no worker that starts meanwhile.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from procsched import sources, taskfile
from procsched.cli import loading
from procsched.cli.status import CommandFailed
from procsched.shipping import homes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from procsched.cli.selection import NotedScheduler, Plan
    from procsched.taskfile import TaskFile

__all__ = ["Reloader", "loading_anew", "watching"]

_log = logging.getLogger("procsched.cli")


class Reloader:
    """Brings a scheduler to what its task file says, whenever it is asked to. Thread-safe; one time after the other."""

    def __init__(self, scheduler: NotedScheduler, path: str) -> None:
        self._scheduler = scheduler
        self._path = path
        self._lock = threading.Lock()
        self._asked = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._known = scheduler.fingerprints

    def ask(self) -> None:
        """From anywhere; returns at once. What is asked for several times meanwhile is done once."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="procsched reload", daemon=True)
                self._thread.start()
        self._asked.release()

    def _run(self) -> None:
        while True:
            self._asked.acquire()
            while self._asked.acquire(blocking=False):
                pass
            try:
                _log.info("reloaded: %s", self.reload())
            except CommandFailed as failure:
                why = f"{failure.detail.rstrip()}\n{failure}" if failure.detail else str(failure)
                _log.error("%s wasn't reloaded, and nothing is changed:\n%s", self._path, why)
            except Exception:
                _log.exception("%s wasn't reloaded; please report this", self._path)

    def reload(self) -> str:
        """What has changed, in words. Raises `CommandFailed`; nothing is changed then."""
        scheduler, engine = self._scheduler, self._scheduler._engine
        with loading.telling_authors(self._path), loading_anew(self._path) as task_file:
            plans = self._plans(task_file)
            prints = {name: plan.fingerprint for name, plan in plans.items()}
            fresh = [name for name in plans if prints[name] != self._known.get(name)]
            gone = [name for name in self._known if name not in plans]
            for name in fresh:
                engine.pool.ship(plans[name].fn, plans[name].args, plans[name].kwargs)  # or raises, and says why
        engine.settings.sources = sources.noted()
        engine.renew_workers()
        for name in gone:
            self._cancel(name)
        added = 0
        for name in fresh:
            added += name not in self._known
            plan = plans[name]
            scheduler.schedule(plan.fn, plan.when, **{**plan.options, "id": name, "replace_existing": True})
        self._known = scheduler.fingerprints = prints
        kept = len(plans) - len(fresh)
        return f"{len(fresh) - added} changed, {added} added, {len(gone)} removed, {kept} unchanged"

    def _cancel(self, name: str) -> None:
        from procsched.errors import JobLookupError

        try:
            self._scheduler.cancel(name)
        except JobLookupError:
            pass  # it has ended by itself

    def _plans(self, task_file: TaskFile) -> dict[str, Plan]:
        from procsched.cli.selection import Catalogue

        catalogue = Catalogue()
        try:
            with loading.telling_authors(self._path):
                for definition in task_file.jobs:
                    definition.schedule_on(catalogue)
                if task_file.setup is not None:
                    task_file.setup(catalogue)
        finally:
            catalogue.shutdown(wait=False, cancel_futures=True)
        return catalogue.plans


@contextmanager
def loading_anew(path: str) -> Iterator[TaskFile]:
    """Executes a task file again, with the modules of the program that it imports, and gives what it defines now.

    Within the ``with`` block the new modules stand for the old ones; they stay if it ends well. Whatever is raised, by
    the file or in the block, puts the old ones back. Raises as `taskfile.load`.
    """
    before = sources.noted()
    name = taskfile.name_for(taskfile.checked_path(path))
    old = {key: sys.modules[key] for key in {*before, name} if key in sys.modules}
    for key in old:
        del sys.modules[key]
    importlib.invalidate_caches()
    after: dict[str, sources.Source] = {}
    sources.begin(after)
    try:
        yield taskfile.load(path)
    except BaseException:
        for key in after:
            sys.modules.pop(key, None)
        sys.modules.update(old)
        sources.begin(before)
        raise
    homes.forget({*before, *after})


@contextmanager
def watching(path: str, ask: Callable[[], None]) -> Iterator[None]:
    """Asks whenever a Python file in the task file's folder is saved. Needs the extra ``reload``."""
    from procsched.observe.extras import need

    watchfiles = need("watchfiles", "reload", "--reload")
    over = threading.Event()
    folder = os.path.dirname(os.path.realpath(path))

    def watch() -> None:
        only = watchfiles.PythonFilter()
        how = {"watch_filter": only, "stop_event": over, "debounce": 300, "raise_interrupt": False}
        for _changes in watchfiles.watch(folder, **how):
            ask()

    thread = threading.Thread(target=watch, name="procsched watch files", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5.0)
