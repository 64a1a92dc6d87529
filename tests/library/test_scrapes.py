"""A real scheduler, scraped over HTTP: while it works, when it is stuck, and when strangers hang on to it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from procsched import FixedRate, InternalError, ProcessScheduler, WorkerCrashed, figures
from procsched.observe import endpoint, metrics

EXAMPLES = Path(__file__).parents[2] / "examples"
BOUND = 30.0


@pytest.fixture
def served(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[..., tuple[ProcessScheduler, str]]]:
    """A scheduler with its metrics, as ``run --metrics`` has it, and the address of those."""
    caplog.set_level("INFO", "procsched.metrics")
    with contextlib.ExitStack() as stack:

        def served(**options: Any) -> tuple[ProcessScheduler, str]:
            opener = metrics.prepare("127.0.0.1:0")
            scheduler = ProcessScheduler(2, **options)
            stack.enter_context(opener(scheduler))
            stack.callback(scheduler.shutdown)
            found = re.search(r"metrics at (http://127\.0\.0\.1:\d+)/metrics", caplog.text)
            assert found is not None
            return scheduler, found[1]

        yield served


def get(url: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url + path, timeout=BOUND) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scraped(url: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by the name of the series, and its labels' values."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(get(url, "/metrics")[1]):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def fail() -> None:
    raise ValueError


def test_a_scrape_of_real_workers(served: Callable[..., tuple[ProcessScheduler, str]]) -> None:
    """What they did, what they use, and that one of them died; and every metric that the examples mention is there."""
    scheduler, url = served()
    scheduler.schedule(os.getpid, FixedRate("1ms").times(5), id="quick")
    scheduler.schedule(fail, FixedRate("1ms").times(2), id="bad")
    with pytest.raises(WorkerCrashed):
        scheduler.submit(os._exit, 3).result()
    assert scheduler.wait(BOUND)
    until(lambda: scraped(url)["procsched_workers"][("up",)] == 2)
    found = scraped(url)
    assert found["procsched_runs_total"]["quick", "succeeded"] == 5
    assert found["procsched_runs_total"]["bad", "failed"] == 2
    assert found["procsched_runs_total"]["_exit", "crashed"] == 1
    assert found["procsched_run_duration_seconds_count"][("quick",)] == 5
    assert found["procsched_worker_restarts_total"][("exit",)] == 1
    assert sum(found["procsched_worker_restarts_total"].values()) == 1
    assert all(bytes_ > 1 << 20 for bytes_ in found["procsched_worker_resident_memory_bytes"].values())
    assert len(found["procsched_worker_cpu_seconds_total"]) == 2
    assert found["process_start_time_seconds"]
    for name in ("grafana-dashboard.json", "prometheus-alerts.yml"):
        mentioned = set(re.findall(r"\b(?:procsched|process)_[a-z_]+", (EXAMPLES / name).read_text()))
        assert len(mentioned) > 5
        assert mentioned <= set(found), name


def test_health_over_http(served: Callable[..., tuple[ProcessScheduler, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Green before the first job and while it works; red while somebody keeps the loop from its lock; green again."""
    monkeypatch.setattr(figures, "STUCK", 0.2)
    monkeypatch.setattr(figures, "PATIENCE", 0.05)
    scheduler, url = served()
    assert get(url, "/healthz")[0] == 200
    scheduler.schedule(os.getpid, FixedRate("20ms"), id="tick")
    until(lambda: scheduler["tick"].stats.succeeded)
    status, body = get(url, "/healthz")
    assert (status, json.loads(body)["ok"]) == (200, True)
    with scheduler._engine.lock:
        until(lambda: get(url, "/healthz")[0] == 503)
        assert scraped(url)["procsched_healthy"][()] == 0
    until(lambda: get(url, "/healthz")[0] == 200)
    assert get(url, "/nothing")[0] == 404


def test_a_dead_loop_is_not_well(
    served: Callable[..., tuple[ProcessScheduler, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said until the program ends."""
    scheduler, url = served()
    scheduler.submit(os.getpid).result()

    def die() -> None:
        raise RuntimeError("on purpose")

    scheduler._engine.mailbox.post(die)
    with pytest.raises(InternalError):
        scheduler.wait(BOUND)
    assert get(url, "/healthz")[0] == 503
    assert scraped(url)["procsched_healthy"][()] == 0


def test_strangers_delay_no_run_and_no_end(caplog: pytest.LogCaptureFixture) -> None:
    """Hundreds of connections that say half a word, too much, or nothing: runs go on, and the end isn't late."""
    caplog.set_level("INFO", "procsched.metrics")
    opener = metrics.prepare("127.0.0.1:0")
    with contextlib.ExitStack() as strangers, ProcessScheduler(2) as scheduler:
        with opener(scheduler):
            port = int(re.search(r"metrics at http://127\.0\.0\.1:(\d+)/", caplog.text)[1])  # type: ignore[index]
            for number in range(300):
                connection = strangers.enter_context(socket.socket())
                connection.setblocking(False)
                with contextlib.suppress(OSError):  # beyond the kernel's queue they wait outside
                    connection.connect_ex(("127.0.0.1", port))
                    connection.send((b"", b"GET /met", b"x" * 60_000)[number % 3])
            assert [scheduler.submit(abs, -number).result(BOUND) for number in range(50)] == list(range(50))
            begin = time.monotonic()
        assert time.monotonic() - begin < endpoint.LAST_WORDS
    assert [record.message for record in caplog.records if record.levelname != "INFO"] == []


# -- examples ----------------------------------------------------------------------------------------------------------


def test_the_dashboard_is_one_that_grafana_loads() -> None:
    """A model with a variable for its source of data, which every panel uses; panels of one grid, each numbered."""
    model = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
    assert {"title", "schemaVersion", "panels", "templating", "time"} <= set(model)
    assert model["id"] is None
    variables = {variable["name"]: variable for variable in model["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    panels = model["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _y in cells) < 24
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            used = set(re.findall(r"\$(\w+)", target["expr"]))
            assert used <= {*variables, "__rate_interval"}, target["expr"]
            assert all(target["expr"].count(a) == target["expr"].count(b) for a, b in ("()", "{}", "[]"))
        assert panel["type"] == "row" or len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_every_metric_is_on_the_page() -> None:
    """And no other, under the name that it has in a scrape."""
    page = (EXAMPLES.parent / "docs" / "operating.md").read_text()
    suffixes = {"counter": "_total", "info": "_info"}
    names = {name + suffixes.get(kind, "") for name, (kind, _labels, _text) in metrics.METRICS.items()}
    assert set(re.findall(r"`(procsched_\w+)`", page)) == names


def test_the_alerts_are_rules() -> None:
    """Each with a name of its own, an expression, how bad it is and a line for people."""
    (group,) = yaml.safe_load((EXAMPLES / "prometheus-alerts.yml").read_text())["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names) > 5
    for rule in group["rules"]:
        assert rule["expr"].strip()
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert "\n" not in rule["annotations"]["summary"]
