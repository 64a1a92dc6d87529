"""A board that is looked at twice a second, as the live view does it, without a terminal. A view of `views`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from procsched import ProcessScheduler
from procsched.observe.board import Board

__all__ = ["prepare"]


def prepare() -> Callable[[ProcessScheduler], AbstractContextManager[None]]:
    """Its opener."""

    @contextmanager
    def opened(scheduler: ProcessScheduler) -> Iterator[None]:
        board, over = Board(scheduler), threading.Event()

        def look() -> None:
            while not over.wait(0.5):
                json.dumps(board.view()._asdict(), default=str)

        looker = threading.Thread(target=look)
        looker.start()
        try:
            yield
        finally:
            over.set()
            looker.join()
            board.close()

    return opened
