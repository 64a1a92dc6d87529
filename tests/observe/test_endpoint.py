"""The small server: it answers what it should, and strangers can't do much to it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from procsched.observe import endpoint as module
from procsched.observe.endpoint import Endpoint, HttpAnswer, HttpRequest, Listening, split_address

BOUND = 30.0


def answer(request: HttpRequest) -> HttpAnswer:
    if request.path == "/broken":
        raise RuntimeError("no")
    return HttpAnswer(200, [("Content-Type", "text/x")], f"{request.path} {request.query}".encode())


@pytest.fixture
def serve() -> Iterator[Callable[..., Listening]]:
    """Start to answer somewhere; by default as above, on any port."""
    started = []

    def serve(given: Callable[[HttpRequest], HttpAnswer] = answer, address: str = "127.0.0.1:0") -> Listening:
        listening = Listening("--it", address)
        started.append(Endpoint(listening, given, "test endpoint"))
        started[-1].start()
        return listening

    yield serve
    for endpoint in started:
        endpoint.stop()


@pytest.fixture
def here(serve: Callable[..., Listening]) -> Listening:
    return serve()


def ask(
    there: Listening, method: str = "GET", path: str = "/a?b=c", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", there.port, timeout=BOUND)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def say(there: Listening, words: bytes) -> bytes:
    """Whatever comes back to that."""
    with socket.create_connection(("127.0.0.1", there.port), timeout=BOUND) as connection:
        connection.sendall(words)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def drip(connection: socket.socket) -> None:
    """A byte every now and then."""
    begin = time.monotonic()
    while time.monotonic() - begin < BOUND:
        connection.sendall(b"x")
        time.sleep(0.01)


def test_it_answers_and_closes(here: Listening) -> None:
    status, headers, body = ask(here)
    assert (status, body) == (200, b"/a b=c")
    assert (headers["content-type"], headers["content-length"], headers["connection"]) == ("text/x", "6", "close")


def test_head_is_get_without_a_body(here: Listening) -> None:
    status, headers, body = ask(here, "HEAD")
    assert (status, headers["content-length"], body) == (200, "6", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"])
def test_other_methods_are_refused(here: Listening, method: str) -> None:
    status, headers, _body = ask(here, method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "words",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / x HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"\x00\xff" * 50 + b"\r\n\r\n",
    ],
)
def test_nonsense_is_refused(here: Listening, words: bytes) -> None:
    assert say(here, words).startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "192.0.2.1", "[2001::1]"]
)
def test_a_foreign_name_is_refused_on_loopback(here: Listening, host: str) -> None:
    """A page that had its own name point here asks by that name."""
    assert ask(here, Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:80", "127.1.2.3"])
def test_names_of_this_machine_are_taken(here: Listening, host: str) -> None:
    """With any port: there may be a tunnel in between."""
    assert ask(here, Host=host)[0] == 200


def test_elsewhere_any_name_is_taken(serve: Callable[..., Listening]) -> None:
    """What names a machine has for others, it doesn't know."""
    there = serve(address="0.0.0.0:0")
    assert not there.is_loopback
    assert ask(there, Host="metrics.example")[0] == 200


def test_no_name_at_all_is_http_1_0(here: Listening) -> None:
    assert say(here, b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_broken_answer_is_one_line(here: Listening, caplog: pytest.LogCaptureFixture) -> None:
    """Here and there, and here but once; and the next one is answered."""
    for _ in range(3):
        assert ask(here, path="/broken")[0] == 500
    (record,) = caplog.records
    assert "RuntimeError('no')" in record.getMessage()
    assert record.exc_info is None
    assert ask(here)[0] == 200


# -- strangers -------------------------------------------------------------------------------------------------------


def test_headers_without_end_are_not_read(here: Listening) -> None:
    """It hears what it is told, or finds the door shut."""
    with contextlib.suppress(ConnectionError):
        assert say(here, b"GET / HTTP/1.1\r\nx: " + b"y" * 1_000_000).startswith(b"HTTP/1.1 431 ")
    assert ask(here)[0] == 200


def test_those_who_never_finish_make_room(here: Listening) -> None:
    """More connections than there are places, all half a question: whoever has a whole one is answered."""
    with contextlib.ExitStack() as hanging:
        for _ in range(2 * module.MOST_CONNECTIONS):
            connection = hanging.enter_context(socket.create_connection(("127.0.0.1", here.port), timeout=BOUND))
            connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert ask(here)[0] == 200
        assert _connections_of(here) <= module.MOST_CONNECTIONS
        assert [thread.name for thread in threading.enumerate()].count("test endpoint") == 1


def test_a_question_has_its_time(here: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """However regularly another byte of it comes."""
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    connection = socket.create_connection(("127.0.0.1", here.port), timeout=BOUND)
    with connection, pytest.raises(ConnectionError):
        drip(connection)


def test_those_who_never_read_have_their_time(serve: Callable[..., Listening], monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer larger than the kernel takes; then it is dropped, with what is left of it."""
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    asked = threading.Event()

    def much(request: HttpRequest) -> HttpAnswer:
        asked.set()
        return HttpAnswer(200, [], b"x" * 50_000_000)

    there = serve(much)
    with socket.create_connection(("127.0.0.1", there.port), timeout=BOUND) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert asked.wait(BOUND)
        threads = [thread for thread in threading.enumerate() if thread.name == "test endpoint"]
        deadline = time.monotonic() + BOUND
        while _connections_of(there) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not _connections_of(there)
        assert threads[0].is_alive()


def _connections_of(there: Listening) -> int:
    """In this process, on the server's side; not those that nobody has accepted."""
    import psutil

    return sum(
        found.laddr.port == there.port and found.status == psutil.CONN_ESTABLISHED
        for found in psutil.Process().net_connections("tcp")
    )


def test_answers_take_a_bounded_share(serve: Callable[..., Listening]) -> None:
    """What takes CPU is followed by a rest of several times as long, whoever asks."""
    spent = []

    def busy(request: HttpRequest) -> HttpAnswer:
        begin = time.thread_time()
        while time.thread_time() - begin < 0.01:
            pass
        spent.append(time.thread_time() - begin)
        return HttpAnswer(200, [], b"")

    there, begin = serve(busy), time.monotonic()
    clients = [threading.Thread(target=lambda: [ask(there) for _ in range(4)]) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert len(spent) == 16
    assert sum(spent[:-1]) * (1 + module.REST) <= time.monotonic() - begin


def test_it_ends_at_once_whoever_hangs_on() -> None:
    """Connections that ask, wait or read mustn't delay it; the port is free then."""
    listening = Listening("--it", "127.0.0.1:0")
    endpoint = Endpoint(listening, lambda request: HttpAnswer(200, [], b"x" * 50_000_000), "test endpoint")
    endpoint.start()
    with contextlib.ExitStack() as hanging:
        for words in (b"", b"GET / HT", b"GET / HTTP/1.1\r\n\r\n") * 5:
            connection = hanging.enter_context(socket.create_connection(("127.0.0.1", listening.port), timeout=BOUND))
            connection.sendall(words)
        deadline = time.monotonic() + BOUND
        while _connections_of(listening) < 15:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        begin = time.monotonic()
        endpoint.stop()
        assert time.monotonic() - begin < module.LAST_WORDS
        Listening("--it", f"127.0.0.1:{listening.port}").close()


def test_one_that_never_started_ends_too() -> None:
    listening = Listening("--it", "127.0.0.1:0")
    Endpoint(listening, answer, "test endpoint").stop()
    Listening("--it", f"127.0.0.1:{listening.port}").close()


# -- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("9464", ("127.0.0.1", 9464)),
        ("[::1]:0", ("::1", 0)),
        ("metrics.example:80", ("metrics.example", 80)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_an_address_is_read(text: str, meant: tuple[str, int]) -> None:
    assert split_address("--it", text) == meant


@pytest.mark.parametrize(
    "text", ["", ":", ":80", "host", "host:", "host:x", "host:65536", "::1:80", "http://host:80", "host:80/x", "a b:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """In one line, with an example."""
    with pytest.raises(ValueError, match=r"^--it needs HOST:PORT, such as [^\n]*$"):
        Listening("--it", text)


def test_a_port_in_use_is_one_line(here: Listening) -> None:
    with pytest.raises(OSError, match=rf"^--it 127\.0\.0\.1:{here.port}: address already in use$"):
        Listening("--it", f"127.0.0.1:{here.port}")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "x" * 70, "ä" * 70])
def test_an_address_that_cant_be_had_is_one_line(host: str) -> None:
    """Another machine's; a name that isn't one."""
    with pytest.raises(OSError, match=rf"^--it {host}:80: [^\n]+$"):
        Listening("--it", f"{host}:80")


def test_an_address_that_nobody_uses_is_given_back() -> None:
    """Something else may have gone wrong before it was needed."""
    listening = Listening("--it", "127.0.0.1:0")
    port = listening.port
    assert listening.url == f"http://127.0.0.1:{port}"
    del listening
    Listening("--it", f"127.0.0.1:{port}").close()
