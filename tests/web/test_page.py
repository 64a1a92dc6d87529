"""``run --dashboard``: the real page of a real program, in a real browser where there is one."""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

Fixture = Callable[..., Any]
TASKS = """
@job(FixedRate("100ms"), id="<b>bold</b>")
def steady(): pass

@job(After(0))
def dies():
    import logging, os
    logging.getLogger("app").warning("<i>last words</i>")
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def page(start: Fixture, write: Fixture) -> Iterator[tuple[Any, str]]:
    """A program that serves it, and the link."""
    program = start("run", write(TASKS), "--workers", 1, "--dashboard", "127.0.0.1:0")
    program.wait_for("crashed")
    found = re.search(r"dashboard at (http://127\.0\.0\.1:\d+/\?token=\S+)$", program.stderr, re.MULTILINE)
    assert found is not None, program.stderr
    yield program, found[1]
    program.signal(2)
    assert program.end() == 0


def test_state_and_feed(page: tuple[Any, str]) -> None:
    """By the link; messages come, each run in one of them; a reconnect goes on where it was. The end doesn't wait."""
    _program, link = page
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    base = link.partition("?")[0]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(base + "api/state", timeout=30)
    with opener.open(link, timeout=30) as response:
        assert response.url == base and b"dashboard.js" in response.read()
    numbers: list[int] = []
    seen = ""
    for _ in range(2):
        request = urllib.request.Request(base + "api/events", headers={"Last-Event-ID": seen} if seen else {})
        with opener.open(request, timeout=30) as feed:
            for _ in range(3):
                state, seen = message_of(feed)
                numbers += [run[2] for run in state["runs"] if run[1] == "<b>bold</b>"]
    assert len(numbers) > 5 and numbers == list(range(1, len(numbers) + 1))
    assert state["failures"][0]["error"]["logs"] == ["app: <i>last words</i>"]


def message_of(feed: Any) -> tuple[dict[str, Any], str]:
    """The next one, with its id."""
    number = ""
    for line in feed:
        if line.startswith(b"id: "):
            number = line[4:].strip().decode()
        elif line.startswith(b"data: "):
            return json.loads(line[6:]), number
    raise AssertionError("the feed has ended")


def test_what_it_loads_is_small(page: tuple[Any, str]) -> None:
    """Page, styles and scripts together stay below 200 kB, and nothing comes from elsewhere."""
    _program, link = page
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    text = opener.open(link, timeout=30).read().decode()
    base = link.partition("?")[0]
    parts = [opener.open(base + name, timeout=30).read() for name in re.findall(r'(?:src|href)="(assets/[^"]+)"', text)]
    assert len(parts) == 4 and len(text) + sum(map(len, parts)) < 200_000
    assert "http" not in re.sub(rb"http://www\.w3\.org/2000/svg", b"", b"".join(parts)).decode()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """Debian's chromium, driven by selenium, where both are there."""
    webdriver = pytest.importorskip("selenium.webdriver")
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("needs Debian's chromium and chromium-driver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
    for flag in flags.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


def until(look: Callable[[], Any]) -> Any:
    """What it gives, once it is true."""
    end = time.monotonic() + 30
    while not (found := look()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found


def test_in_a_browser(page: tuple[Any, str], browser: Any) -> None:
    """Runs come, a job is paused by its button, the crash has its last words; what looks like markup is text."""
    program, link = page
    browser.get(link)

    def text(where: str) -> str:
        return str(browser.execute_script("return document.getElementById(arguments[0]).innerText", where))

    until(lambda: "<b>bold</b>" in text("jobs"))
    assert "token" not in browser.current_url
    before = browser.execute_script("return runs.length")
    until(lambda: browser.execute_script("return runs.length") > before + 3)
    assert "dies #1 crashed" in text("failures")
    browser.execute_script("document.querySelector('#failures details').open = true")
    assert "app: <i>last words</i>" in text("failures")
    assert browser.execute_script("return document.querySelectorAll('#jobs b, #failures i').length") == 0
    browser.execute_script("document.querySelector('[data-deed=pause]').click()")
    until(lambda: "paused" in text("jobs"))
    program.wait_for("<b>bold</b> is paused")
    assert text("link") == "live"
    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert errors == []
