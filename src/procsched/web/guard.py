"""Guard: who may see the dashboard, and who may do something there. Pure ASGI; any thread.

| what | asks for |
|---|---|
| a Host header | a name of this machine, on a loopback address: a web page can have a name of its own point here |
| the link with the token | gives a cookie, HttpOnly and SameSite=Strict, and goes on without the token in the address |
| a page, a feed | the cookie |
| a deed (POST) | the cookie, the page's own key in a header, and an Origin that is ours |

Cookie and key are made from the token, and tell nothing of it. Comparisons take the same time, right or wrong.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["Guard"]

COOKIE = "procsched"
KEY = b"x-procsched-key"
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Guard:
    """Stands before an ASGI application."""

    def __init__(self, app: Any, token: str, is_our_host: Callable[[str], bool], *, read_only: bool) -> None:
        self._app = app
        self._token = token.encode()
        self._is_our_host = is_our_host
        self._read_only = read_only
        self._cookie = self._made("cookie")
        self.key = self._made("key")
        """What a page has to send with a deed."""

    def _made(self, what: str) -> str:
        return hmac.new(self._token, what.encode(), hashlib.sha256).hexdigest()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = {name.lower(): value for name, value in scope["headers"]}

        async def safely(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
            await send(message)

        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_our_host(host):
            await _answer(safely, 421, "This is not a name of the dashboard.")
            return
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if given and scope["method"] == "GET":
            await self._let_in(scope, safely, given)
            return
        if not self._has_cookie(headers.get(b"cookie", b"").decode("latin-1")):
            await _answer(safely, 401, "Open the link that the program has printed: it has the token that lets you in.")
            return
        if scope["method"] == "POST":
            refusal = self._refusal(scope, headers, host)
            if refusal:
                await _answer(safely, 403, refusal)
                return
        elif scope["method"] not in ("GET", "HEAD"):
            await _answer(safely, 405, "Only GET, HEAD and POST.")
            return
        await self._app(scope, receive, safely)

    async def _let_in(self, scope: Any, send: Any, given: str) -> None:
        if not hmac.compare_digest(given.encode(), self._token):
            await _answer(send, 401, "That is not the token.")
            return
        path = (scope.get("root_path", "") or scope["path"]).rstrip("/") + "/"
        cookie = f"{COOKIE}={self._cookie}; HttpOnly; SameSite=Strict; Path={path}"
        if scope.get("scheme") == "https":
            cookie += "; Secure"
        await _answer(send, 303, "", [(b"location", path.encode()), (b"set-cookie", cookie.encode())])

    def _has_cookie(self, text: str) -> bool:
        try:
            found = SimpleCookie(text).get(COOKIE)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self._cookie.encode())

    def _refusal(self, scope: Any, headers: dict[bytes, bytes], host: str) -> str:
        """Why a deed isn't done; empty: it may be."""
        if self._read_only:
            return "This dashboard is read-only."
        origin = headers.get(b"origin", b"").decode("latin-1")
        parts = urlsplit(origin)
        if not origin or parts.netloc != host or parts.scheme not in ("http", "https"):
            return "This comes from another page."
        if not hmac.compare_digest(headers.get(KEY, b""), self.key.encode()):
            return "This comes from a page without the key."
        return ""


async def _answer(send: Any, status: int, text: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    body = text.encode()
    about = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*about, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})
