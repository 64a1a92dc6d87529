"""What crosses between processes: what can't be sent, or read, or is too large, is the failure of one run."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from procsched import FixedDelay, NotShippable, Outcome, ProcessScheduler, RemoteError

Make = Callable[..., ProcessScheduler]


def raise_odd(kind: str) -> None:
    """Exceptions that pickle, and can't be rebuilt from what was pickled."""

    class TwoWords(Exception):
        def __init__(self, code: int, text: str) -> None:
            super().__init__(f"{code}: {text}")

    class KeywordOnly(Exception):
        def __init__(self, *, code: int) -> None:
            super().__init__(f"code {code}")

    class AsksItsArgument(Exception):
        def __init__(self, response: Any) -> None:
            super().__init__(f"status {response.status}")

    class Response:
        status = 404

    raise {
        "TwoWords": lambda: TwoWords(5, "five"),
        "KeywordOnly": lambda: KeywordOnly(code=5),
        "AsksItsArgument": lambda: AsksItsArgument(Response()),
    }[kind]()


def give(kind: str) -> Any:
    import threading

    unsendable = {
        "lock": threading.Lock,
        "generator": lambda: (n for n in range(3)),
        "file": lambda: open("/dev/null"),  # noqa: SIM115  (the point of it)
        "dict": lambda: {"inside": [threading.Lock()]},
    }
    return unsendable[kind]()


def nested(raises: bool) -> Any:
    """By value: 50,000 lists in each other."""
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    if raises:
        raise ValueError(deep)
    return deep


@pytest.mark.case("B17")
@pytest.mark.parametrize("kind", ["TwoWords", "KeywordOnly", "AsksItsArgument"])
def test_an_exception_that_cannot_be_rebuilt(two: ProcessScheduler, probe: Any, kind: str) -> None:
    """Its type's name, message and traceback arrive, by the Future and in the record; nobody else notices."""
    felt = probe(two)
    job = two.schedule(raise_odd, FixedDelay("20ms").times(2), args=(kind,))
    error = job.next_future().exception(30)
    assert isinstance(error, RemoteError) and kind in str(error)
    assert job.wait(30)
    texts = {"TwoWords": "5: five", "KeywordOnly": "code 5", "AsksItsArgument": "status 404"}
    for run in job.history:
        assert run.outcome is Outcome.FAILED and run.error is not None
        assert kind in run.error.type and run.error.message == texts[kind]
        assert "in raise_odd" in run.error.traceback
    felt.check()


@pytest.mark.case("B19")
@pytest.mark.parametrize(
    ("kind", "name"), [("lock", "lock"), ("generator", "generator"), ("file", "TextIO"), ("dict", "lock")]
)
def test_a_value_that_cannot_be_sent(one: ProcessScheduler, kind: str, name: str) -> None:
    """The run fails with the type in the message, in the worker that made it, which lives on."""
    pid = one.submit(give, kind)
    error = pid.exception(30)
    assert error is not None and name in str(error)
    assert one.submit(abs, -1).result(30) == 1 and one.stats().failed == 1 and one.stats().crashed == 0


@pytest.mark.case("B21")
@pytest.mark.parametrize("kind", ["socket", "lock", "nested"])
def test_an_argument_that_cannot_be_sent(one: ProcessScheduler, kind: str) -> None:
    """The call itself raises, naming argument and type; nothing is registered, and other jobs aren't touched."""
    other = one.schedule(abs, FixedDelay("1h", initial_delay="1h"), args=(1,))
    with socket.socket() as connection:
        bad = {"socket": connection, "lock": threading.Lock(), "nested": {"a": [{"b": threading.Lock()}]}}[kind]
        with pytest.raises(NotShippable, match=r"argument 2.*(socket|lock)"):
            one.schedule(print, FixedDelay(1), args=("fine", bad), id="bad")
    assert [job.id for job in one.get_jobs()] == [other.id] and other.stats.runs == 0


@pytest.mark.case("B22")
def test_an_argument_that_changes_afterwards(one: ProcessScheduler) -> None:
    """What was given is what every run gets: also when it couldn't be pickled any more."""
    data: dict[str, Any] = {"n": 5}
    job = one.schedule(len, FixedDelay("10ms").times(5), args=(data,))
    following = job.results()
    data["lock"] = threading.Lock()
    assert [future.result(30) for future in following] == [1] * 5


@pytest.mark.case("B24")
def test_a_value_nested_too_deep(one: ProcessScheduler) -> None:
    """RecursionError is the reason of that run; the same worker takes the next."""
    before = one.submit(__import__("os").getpid).result(30)
    error = one.submit(nested, False).exception(30)
    assert error is not None and "RecursionError" in f"{type(error).__name__} {error}"
    error = one.submit(nested, True).exception(30)
    assert error is not None and "ValueError" in f"{type(error).__name__} {error}"
    assert one.submit(__import__("os").getpid).result(30) == before


@pytest.mark.case("B25")
def test_large_results_of_workers_that_leave_at_once(make: Make, account: Any) -> None:
    """Each worker is replaced after every run, whatever the size of its result: none is lost, and the end comes."""
    scheduler = make(workers=2, max_tasks_per_child=1)
    sizes = [20_000, 200_000, 5_000_000] * 10
    futures = [scheduler.submit(bytes, size) for size in sizes]
    scheduler.shutdown()
    assert [len(future.result(0)) for future in futures] == sizes
    assert scheduler.stats().crashed == 0
    account(scheduler)


@pytest.mark.case("B26")
def test_a_huge_result_holds_up_nobody(two: ProcessScheduler, probe: Any) -> None:
    """300 MB, and the loop goes on beside it."""
    felt = probe(two)
    for _ in range(2):
        assert len(two.submit(bytes, 300 << 20).result(60)) == 300 << 20
    felt.check()


@pytest.mark.case("B26")
def test_no_room_in_the_parent_for_a_result(program: Any) -> None:
    """Its Future says so, with the size; the parent lives, and other runs go on."""
    done = program(
        """
        import resource
        with ProcessScheduler(workers=1) as s:
            s.submit(abs, 1).result()
            with open("/proc/self/statm") as file:
                pages = int(file.read().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (200 << 20), resource.RLIM_INFINITY))
            future = s.submit(bytes, 600 << 20)
            print(future.exception())
            print(s.submit(abs, -1).result(), s.health().ok)
        """
    )
    said, rest = done.stdout.splitlines()
    assert (done.returncode, rest) == (0, "1 True"), done.stderr
    assert "629145728 bytes" in said and "memory" in said
