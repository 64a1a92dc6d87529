"""Screen: the terminal while `run --live` shows there what goes on. In the parent.

::

    runs, log, print ─► fds 1, 2 ─► pipe ─► thread ─► lines ─► LiveApp's log        textual ─► the terminal, kept aside

What is written to stdout and stderr, by the parent and by the workers that inherit them, must not garble the screen: a
pipe stands in their place from before the first worker until the view has ended. Whole lines go to the view's log, and
those that it could no longer show are written out then.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from procsched.scheduler import ProcessScheduler

__all__ = ["Screen"]

_EVERY = 0.1
_MOST_LINES = 2000
_LONGEST = 10_000
_TERMINAL_RESET = "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m"
"""The usual screen, cursor and mouse: for a view that ended without a farewell."""


Work = Callable[[Callable[[str, float], None]], Any]
"""What goes on meanwhile. It is given a function that shows a sentence about the end, and how many seconds are left."""


class _Aside:
    """Work in a thread of its own; the main thread belongs to the terminal."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._outcome: list[Any] = []
        self._thread: threading.Thread | None = None

    def start(self, work: Work, tell: Callable[[str, float], None], over: Callable[[], object]) -> None:
        def working() -> None:
            try:
                self._outcome = [work(tell), None]
            except BaseException as failure:  # the main thread raises it
                self._outcome = [None, failure]
            self.ended.set()
            try:
                over()
            except RuntimeError:  # nobody listens any more, or not yet: then he looks
                pass

        self._thread = threading.Thread(target=working, name="procsched session", daemon=True)
        self._thread.start()

    def result(self) -> Any:
        """Waits for the end of it."""
        if self._thread is not None:
            self._thread.join()
        value, failure = self._outcome
        if failure is not None:
            raise failure
        return value


class Screen:
    """The terminal, taken over. Use ``with Screen.taken() as screen``."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._out, self._err = os.dup(1), os.dup(2)
        self.terminal: TextIO = open(os.dup(1), "w", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._attributes = _attributes_of(0)
        reader, writer = os.pipe()
        os.set_inheritable(writer, False)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(writer)
        self._thread = threading.Thread(target=self._read, args=(reader,), name="procsched screen", daemon=True)
        self._thread.start()

    @staticmethod
    def is_possible() -> bool:
        """Whether stdin and stdout are a terminal that can move its cursor."""
        try:
            return os.isatty(0) and os.isatty(1) and os.environ.get("TERM", "dumb") != "dumb"
        except OSError:
            return False

    @classmethod
    @contextmanager
    def taken(cls) -> Iterator[Screen]:
        """From before the first worker until after the last one: they inherit the pipe."""
        screen = cls()
        try:
            yield screen
        finally:
            screen._give_back()

    def lines(self) -> list[str]:
        """What has been written since."""
        taken = []
        while self._lines:
            taken.append(self._lines.popleft())
        return taken

    def live(self, scheduler: ProcessScheduler, title: str, stop: Callable[[], object], work: Work) -> Any:
        """Shows the live view in this thread while ``work`` goes on in another one; ends with it, with its value.

        A view that fails ends alone: its error is told, and ``work`` is waited for.
        """
        from procsched.observe.board import Board
        from procsched.observe.live import LiveApp

        board, session = Board(scheduler), _Aside()
        app = LiveApp(scheduler, board, title, stop, self.lines, session.ended)
        standard = sys.__stdout__, sys.__stderr__
        sys.__stdout__ = sys.__stderr__ = self.terminal  # type: ignore[misc,assignment]
        try:
            session.start(work, app.tell_of_the_end, lambda: app.call_from_thread(app.exit))
            app.run(mouse=False)
        except Exception as failure:
            self._lines.append(f"error: the live view has failed: {failure!r}; runs go on")
        finally:
            sys.__stdout__, sys.__stderr__ = standard  # type: ignore[misc]
            board.close()
        return session.result()

    def bars(self, scheduler: ProcessScheduler, work: Work) -> Any:
        """Shows a bar for each executing run under the lines of the log while ``work`` goes on; its value."""
        from procsched.cli.bars import Bars
        from procsched.observe.board import Board

        board, session = Board(scheduler), _Aside()
        try:
            with Bars(self.terminal) as bars:
                session.start(work, bars.tell_of_the_end, lambda: None)
                while not session.ended.wait(_EVERY):
                    bars.show(self.lines(), board.view())
                bars.show(self.lines(), None)
        finally:
            board.close()
        return session.result()

    def _read(self, reader: int) -> None:
        with open(reader, encoding="utf-8", errors="replace", newline="\n") as lines:
            for line in lines:
                self._lines.append(line.rstrip("\n")[:_LONGEST])

    def rescue(self) -> None:
        """The terminal as it was, without waiting for anybody: the program is about to end at once. Any thread."""
        os.dup2(self._out, 1)
        os.dup2(self._err, 2)
        _restore(0, self._attributes)

    def _give_back(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(self._out, 1)
        os.dup2(self._err, 2)
        os.close(self._out)
        os.close(self._err)
        self._thread.join(2.0)  # workers are gone, and with them the pipe's last writers
        _restore(0, self._attributes)
        try:
            self.terminal.close()
        except OSError:
            pass
        for line in self.lines():
            print(line, file=sys.stderr)


def _attributes_of(fd: int) -> list[Any] | None:
    try:
        import termios

        return termios.tcgetattr(fd)
    except (ImportError, OSError, termios.error):
        return None


def _restore(fd: int, attributes: list[Any] | None) -> None:
    if attributes is None:
        return
    import termios

    try:
        if termios.tcgetattr(fd) != attributes:  # the view has ended without putting it back
            termios.tcsetattr(fd, termios.TCSADRAIN, attributes)
            os.write(1, _TERMINAL_RESET.encode())
    except (OSError, termios.error):
        pass
