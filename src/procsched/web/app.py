"""The dashboard as an ASGI application (starlette, extra ``web``): a page, its feed, and what its buttons do.

Mount it in an application of your own, or let `run --dashboard` serve it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from procsched.errors import JobLookupError, ProcschedError
from procsched.observe.extras import need
from procsched.observe.feed import Feed
from procsched.web.guard import Guard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from procsched.scheduler import ProcessScheduler

__all__ = ["Dashboard"]

EVERY = 0.5
"""Seconds between two messages of the feed."""
_ASSETS = {
    "timeline.js": "text/javascript", "timeline.css": "text/css", "dashboard.js": "text/javascript",
    "dashboard.css": "text/css",
}  # fmt: skip
_DEEDS: dict[str, Callable[[Any], object]] = {
    "trigger": lambda job: job.run_now(),
    "pause": lambda job: job.pause(),
    "resume": lambda job: job.resume(),
    "cancel": lambda job: job.cancel(),
}
_LONGEST = 4096
"""Bytes of a deed's body."""


class Dashboard:
    """An ASGI application. ``Mount("/jobs", Dashboard(scheduler, token=...))``; `close` it when it is no longer served.

    Args:
        scheduler: What is shown.
        token: The secret that lets people in, in ``?token=``; by default a new one, see `token`.
        read_only: Nothing can be done there.
        is_our_host: Whether a Host header is one of this server's names; by default any, which is for applications that
            look at it by themselves. (Starlette has `TrustedHostMiddleware`.)
        title: Above the page.

    Raises:
        MissingExtra: starlette isn't installed.
        ValueError: The token is too short to be a secret.
    """

    def __init__(
        self,
        scheduler: ProcessScheduler,
        *,
        token: str | None = None,
        read_only: bool = False,
        is_our_host: Callable[[str], bool] = lambda host: True,
        title: str = "procsched",
    ) -> None:
        applications = need("starlette.applications", "web", "the dashboard")
        routing = need("starlette.routing", "web", "the dashboard")
        self._responses = need("starlette.responses", "web", "the dashboard")
        if token is not None and len(token) < 16:
            raise ValueError("the dashboard's token must have 16 characters or more: who guesses it is let in")
        self.token = token if token is not None else secrets.token_urlsafe(24)
        self._scheduler = scheduler
        self._read_only = read_only
        self._title = title
        self._feed = Feed(scheduler)
        self._assets = files("procsched.observe") / "assets"
        self.closing = False
        """Set when it is to end: open feeds do then."""
        routes = [
            routing.Route("/", self._page, methods=["GET"]),
            routing.Route("/assets/{name}", self._asset, methods=["GET"]),
            routing.Route("/api/state", self._state, methods=["GET"]),
            routing.Route("/api/events", self._events, methods=["GET"]),
            routing.Route("/api/jobs/{deed}", self._do, methods=["POST"]),
        ]
        self._guard = Guard(applications.Starlette(routes=routes), self.token, is_our_host, read_only=read_only)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._guard(scope, receive, send)

    def close(self) -> None:
        """Idempotent."""
        self.closing = True
        self._feed.close()

    async def _page(self, request: Any) -> Any:
        page = (self._assets / "dashboard.html").read_text("utf-8")
        about = {"key": self._guard.key, "readOnly": self._read_only, "title": self._title}
        harmless = json.dumps(about).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        return self._responses.HTMLResponse(page.replace("{about}", harmless))

    async def _asset(self, request: Any) -> Any:
        kind = _ASSETS.get(request.path_params["name"])
        if kind is None:
            return self._responses.PlainTextResponse("not found", 404)
        text = (self._assets / request.path_params["name"]).read_text("utf-8")
        return self._responses.Response(text, media_type=kind)

    async def _state(self, request: Any) -> Any:
        return self._responses.JSONResponse(await asyncio.to_thread(self._feed.since, 0))

    async def _events(self, request: Any) -> Any:
        last = request.headers.get("last-event-id", "")
        seen = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else 0
        return self._responses.StreamingResponse(self._messages(request, seen), media_type="text/event-stream")

    async def _messages(self, request: Any, seen: int) -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        while not self.closing and not await request.is_disconnected():
            try:
                state = await asyncio.to_thread(self._feed.since, seen)
            except ProcschedError:  # the scheduler has ended
                return
            seen = state["seen"]
            yield f"id: {seen}\ndata: {json.dumps(state)}\n\n".encode()
            await asyncio.sleep(EVERY)

    async def _do(self, request: Any) -> Any:
        deed = _DEEDS.get(request.path_params["deed"])
        if deed is None:
            return self._responses.JSONResponse({"error": "there is no such deed"}, 404)
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _LONGEST:
                return self._responses.JSONResponse({"error": "too long"}, 413)
        try:
            id = json.loads(body)["id"]  # noqa: A001
            job = self._scheduler.get_job(str(id))
            await asyncio.to_thread(deed, job)
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, JobLookupError):
                return self._responses.JSONResponse({"error": str(error)}, 404)
            return self._responses.JSONResponse({"error": "give a job's id"}, 400)
        except (ProcschedError, RuntimeError) as error:
            return self._responses.JSONResponse({"error": str(error)}, 409)
        return self._responses.JSONResponse({"ok": True})
