"""Makes the pictures of the docs from examples/busy.py: ``python tests/pictures/make.py [NAME …]``.

Needs the extras ``tui`` and ``plot``, and Debian's chromium. Look at what has come out before you commit it.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=4000",
)  # fmt: skip


def procsched(*arguments: object) -> None:
    """The command, from this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    subprocess.run([sys.executable, "-m", "procsched", *map(str, arguments)], check=True, env=environment, timeout=120)


def photograph(page: Path, name: str, width: int, height: int, *, dark: bool = False) -> None:
    """A page, as a browser shows it."""
    with tempfile.TemporaryDirectory() as profile:
        scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        where = [f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--screenshot={PICTURES / name}"]
        command = ["chromium", *FLAGS, *scheme, *where, page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def history_and_trace() -> None:
    """A quarter of a minute of the example."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs, trace, page = folder / "runs.db", folder / "trace.json", folder / "trace.html"
        tasks = ROOT / "examples" / "busy.py"
        procsched("run", tasks, "--for", "15s", "--workers", 3, "--history", runs, "--trace", trace)
        procsched("history", runs, "--plot", PICTURES / "history.png")
        procsched("trace", trace, "--html", page)
        photograph(page, "trace.png", 1200, 380)
        photograph(page, "trace-dark.png", 1200, 380, dark=True)
        photograph(page, "trace-phone.png", 500, 520)


def live() -> None:
    """The terminal view after ten seconds, as it would be on 120 x 36 characters; and on the usual 80 x 24."""
    sys.path.insert(0, str(ROOT / "src"))
    asyncio.run(_live())


async def _live() -> None:
    from procsched import ProcessScheduler
    from procsched.cli.lines import LineFormatter
    from procsched.cli.output import Paint
    from procsched.observe.board import Board
    from procsched.observe.live import LiveApp

    lines: deque[str] = deque()
    handler = logging.Handler()
    handler.emit = lambda record: lines.extend(handler.format(record).split("\n"))  # type: ignore[method-assign]
    formatter = LineFormatter(Paint(io.StringIO()))
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    with ProcessScheduler(3) as scheduler:
        board = Board(scheduler)
        jobs = scheduler.load(ROOT / "examples" / "busy.py")
        formatter.make_room([job.id for job in jobs])

        def taken() -> list[str]:
            return [lines.popleft().replace(str(ROOT), "/srv/jobs") for _ in range(len(lines))]

        app = LiveApp(scheduler, board, "busy.py", lambda: None, taken)
        async with app.run_test(size=(120, 36)) as pilot:
            await pilot.pause(10)
            await pilot.press("down", "down")
            app.refresh_view()
            await pilot.pause(0.2)
            (PICTURES / "live.svg").write_text(app.export_screenshot(title="procsched run busy.py --live"))
        board.close()
        scheduler.shutdown(cancel_futures=True, timeout=1)


def dashboard() -> None:
    """After twenty seconds of the example: on a desk, in the dark, on a phone. Needs selenium and chromium-driver."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "procsched", "run", str(ROOT / "examples" / "busy.py"), "--workers", "3"]
    command += ["--dashboard", "127.0.0.1:8899", "--dashboard-token", "only-for-the-pictures"]
    program = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(3)
        shots = (("", (1280, 1000), False), ("-dark", (1280, 700), True), ("-phone", (500, 1000), False))
        for name, size, dark in shots:
            options = webdriver.ChromeOptions()
            options.binary_location = "/usr/bin/chromium"
            for flag in (*FLAGS[:-1], f"--window-size={size[0]},{size[1]}"):
                options.add_argument(flag)
            if dark:
                options.add_argument("--blink-settings=preferredColorScheme=0")
            browser = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
            browser.get("http://127.0.0.1:8899/?token=only-for-the-pictures")
            time.sleep(18 if not name else 4)
            browser.save_screenshot(str(PICTURES / f"dashboard{name}.png"))
            browser.quit()
    finally:
        program.terminate()
        program.wait(60)


MAKERS: dict[str, Callable[[], None]] = {"trace": history_and_trace, "live": live, "dashboard": dashboard}


if __name__ == "__main__":
    for chosen in sys.argv[1:] or MAKERS:
        MAKERS[chosen]()
