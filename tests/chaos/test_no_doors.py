"""What the code never does, neither as it is written nor as it works: a shell, a port, a name, code from outside."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from programs import Program

import procsched

SOURCES = Path(procsched.__file__).parent

UNPICKLING = {
    "wire.py": "what it is made of, for both sides",
    "pool/decoding.py": "a value or an exception of a run, in the delivery thread",
    "worker/loop.py": "the parent's messages",
    "worker/runner.py": "functions and arguments",
    "sources.py": "in workers, the code of modules that the parent has accepted",
    "testing.py": "what `InlinePool(strict=True)` pickled",
}
"""The only files that unpickle, and what. The loop's are not among them."""

FORBIDDEN = {"os.system", "os.popen", "getoutput", "getstatusoutput", "eval", "exec", "shell=", "SharedMemory"}
FORBIDDEN |= {"mktemp", "mkstemp", "mkdtemp", "NamedTemporaryFile"}


def names_in(path: Path) -> set[str]:
    """Every name that the file uses, calls or imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            whole = ast.unparse(node)
            found |= {whole} if whole == "json.loads" else {node.attr, whole}
        elif isinstance(node, ast.ImportFrom):
            found |= {name for alias in node.names for name in (alias.name, f"{node.module}.{alias.name}")}
        elif isinstance(node, ast.keyword) and node.arg == "shell":
            found.add("shell=")
    return found


def test_only_these_files_unpickle() -> None:
    """The list is short enough to be read."""
    users = set()
    for path in SOURCES.rglob("*.py"):
        if names_in(path) & {"loads", "Unpickler", "procsched.wire.decode"}:
            users.add(str(path.relative_to(SOURCES)))
    assert users == set(UNPICKLING)


def test_no_shell_and_no_temporary_name() -> None:
    """Nothing is put together as a command, nothing gets a name that somebody could guess."""
    for path in SOURCES.rglob("*.py"):
        used = names_in(path) & FORBIDDEN
        assert not used, f"{path}: {used}"


WATCHED = """
    import json
    sys.seen = []  # functions travel by value: what they share has to be somewhere else

    def watch(event, arguments):
        seen = sys.seen
        if event in WATCHED:
            seen.append([event, repr(arguments)])
        if event == "open" and isinstance(arguments[0], str) and arguments[2] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            if arguments[0] not in ("/dev/null",):
                seen.append([event, repr(arguments)])

    WATCHED = {
        "socket.bind", "socket.connect", "socket.listen", "socket.sendto", "socket.gethostbyname", "socket.getaddrinfo",
        "os.system", "os.posix_spawn", "os.exec", "subprocess.Popen", "os.mkdir", "os.rename", "os.link", "os.symlink",
        "os.chmod", "os.chown", "tempfile.mkstemp", "tempfile.mkdtemp", "shutil.rmtree", "urllib.Request",
    }
    sys.addaudithook(watch)

    def begin():
        sys.seen = []
        sys.addaudithook(watch)

    def tell():
        return [entry for entry in sys.seen]

    with ProcessScheduler(workers=2, spare_workers=1, initializer=begin) as s:
        future = s.submit(bytes, 5_000_000)
        job = s.schedule(os.abort, After(0))
        job.wait(20)
        large = s.submit(len, bytes(5_000_000))
        assert len(future.result(20)) == large.result(20)
        inside = s.submit(tell).result(20)
        s.submit_after("1ms", logging.warning, "words").result(20)
    print(json.dumps([sys.seen, inside]))
"""


def test_no_port_no_file_no_program_while_it_works() -> None:
    """Of everything that Python's audit tells, parent and worker: nothing bound, connected, written or executed."""
    with Program(WATCHED) as program:
        outside, inside = json.loads(program.end()[0])
    assert outside == []
    assert inside == []


@pytest.mark.parametrize("deed", ["import socket; socket.socket().bind(('127.0.0.1', 0))", "open('/dev/full', 'w')"])
def test_the_watch_is_awake(deed: str) -> None:
    """It sees what it is there for, in a worker too."""
    source = WATCHED.replace("[entry for", f"exec({deed!r}) or [entry for")
    with Program(source) as program:
        _, inside = json.loads(program.end()[0])
    assert len(inside) == 1
