"""Serves the dashboard for `run --dashboard`: uvicorn, in a thread of its own, on an address that was taken before."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from procsched.observe.endpoint import Listening
from procsched.observe.extras import need
from procsched.web.app import Dashboard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from procsched.scheduler import ProcessScheduler

__all__ = ["prepare"]

_log = logging.getLogger("procsched.cli")
_MOST = 64
"""Connections at once; each open page has one."""


def prepare(
    address: str, *, token: str | None = None, read_only: bool = False, title: str = "procsched"
) -> Callable[[ProcessScheduler], AbstractContextManager[None]]:
    """For `run --dashboard`: takes ``HOST:PORT`` at once, and gives what serves there.

    Raises:
        MissingExtra: starlette or uvicorn isn't installed.
        ValueError, OSError: The address makes no sense, or can't be had; beyond this machine without a token.
    """
    need("starlette", "web", "--dashboard")
    uvicorn = need("uvicorn", "web", "--dashboard")
    listening = Listening("--dashboard", address)
    if not listening.is_loopback and token is None:
        listening.close()
        raise ValueError(
            f"--dashboard {address} can be reached from other machines: choose a secret, "
            "PROCSCHED_DASHBOARD_TOKEN=... in the environment or --dashboard-token, and put TLS in front of it"
        )

    @contextmanager
    def opened(scheduler: ProcessScheduler) -> Iterator[None]:
        app = Dashboard(
            scheduler, token=token, read_only=read_only, is_our_host=listening.is_meant_by, title=title
        )
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", limit_concurrency=_MOST,
            timeout_graceful_shutdown=1, timeout_keep_alive=5, server_header=False, log_level="critical",
        )  # fmt: skip
        server = uvicorn.Server(config)
        sockets = [listening.socket]
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": sockets}, name="procsched dashboard", daemon=True
        )
        thread.start()
        given = "" if token is not None else f"/?token={app.token}"
        _log.info("dashboard at %s%s", listening.url, given)
        try:
            yield
        finally:
            app.close()
            server.should_exit = True
            thread.join(5.0)
            listening.close()

    return opened
