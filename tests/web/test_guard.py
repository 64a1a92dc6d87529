"""Who may see the dashboard, and who may do something there; what it shows is never markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from procsched import FixedRate, JobState, ProcessScheduler
from procsched.web.app import Dashboard
from procsched.web.serve import prepare

testclient = pytest.importorskip("starlette.testclient")

TOKEN = "a-token-of-some-length"
HERE = "http://127.0.0.1:8800"


@pytest.fixture
def scheduler() -> Iterator[ProcessScheduler]:
    with ProcessScheduler(1) as made:
        made.schedule(abs, FixedRate("1h", initial_delay="1h"), args=(1,), id="job")
        made.schedule(abs, FixedRate("1h", initial_delay="1h"), args=(1,), id='</script><b>"&')
        yield made
        made.shutdown()


@pytest.fixture
def app(scheduler: ProcessScheduler) -> Iterator[Dashboard]:
    made = Dashboard(scheduler, token=TOKEN, is_our_host=lambda host: host.split(":")[0] in ("127.0.0.1", "localhost"))
    yield made
    made.close()


@pytest.fixture
def stranger(app: Dashboard) -> Any:
    """Without a cookie."""
    return testclient.TestClient(app, base_url=HERE)


@pytest.fixture
def friend(stranger: Any) -> Any:
    """Who has followed the link."""
    assert stranger.get(f"/?token={TOKEN}", follow_redirects=False).status_code == 303
    return stranger


def key_of(client: Any) -> str:
    page = client.get("/").text
    about = re.search(r'data-about="([^"]*)"', page)
    assert about is not None
    return str(json.loads(about[1].replace("&quot;", '"').replace("&lt;", "<").replace("&amp;", "&"))["key"])


@pytest.mark.parametrize("path", ["/", "/assets/dashboard.js", "/api/state", "/api/events", "/nowhere"])
def test_without_the_link_there_is_nothing(stranger: Any, path: str) -> None:
    """Not even whether a page exists; and a wrong token is no token."""
    assert stranger.get(path).status_code == 401
    assert stranger.get(path, params={"token": TOKEN[:-1]}).status_code == 401
    assert stranger.get(path, headers={"Cookie": f"procsched={TOKEN}"}).status_code == 401
    assert stranger.get(path, headers={"Cookie": 'procsched="\\'}).status_code == 401


def test_the_link_gives_a_cookie_and_goes_on_without_the_token(stranger: Any) -> None:
    answer = stranger.get(f"/?token={TOKEN}", follow_redirects=False)
    assert answer.headers["location"] == "/" and TOKEN not in answer.headers["set-cookie"]
    assert "HttpOnly" in answer.headers["set-cookie"] and "SameSite=Strict" in answer.headers["set-cookie"]
    page = stranger.get("/")
    assert page.status_code == 200 and TOKEN not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"


def test_a_foreign_host_is_refused(friend: Any) -> None:
    """As of a web page that has its own name point to this machine."""
    assert friend.get("/api/state", headers={"Host": "evil.example"}).status_code == 421
    assert friend.get(f"/?token={TOKEN}", headers={"Host": "evil.example"}).status_code == 421


def test_deeds(friend: Any, scheduler: ProcessScheduler) -> None:
    """Run now, pause, resume, cancel, from the page itself."""
    headers = {"Origin": HERE, "X-Procsched-Key": key_of(friend)}

    def do(deed: str, body: Any = None) -> int:
        return int(friend.post(f"/api/jobs/{deed}", json=body or {"id": "job"}, headers=headers).status_code)

    job = scheduler.get_job("job")
    assert do("pause") == 200 and job.state is JobState.PAUSED
    assert do("resume") == 200 and job.state is JobState.SCHEDULED
    assert do("trigger") == 200
    assert do("cancel") == 200 and job.state is JobState.CANCELLED
    assert do("cancel") == 404 and do("dance") == 404
    assert do("pause", {"name": "job"}) == 400 and do("pause", ["x"]) == 400
    assert friend.post("/api/jobs/pause", content=b"x" * 10_000, headers=headers).status_code == 413


@pytest.mark.parametrize(
    "change",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": None}, {"Origin": "http://127.0.0.1:9999"},
        {"X-Procsched-Key": None}, {"X-Procsched-Key": "x"},
    ],
)  # fmt: skip
def test_what_comes_from_elsewhere_does_nothing(
    friend: Any, scheduler: ProcessScheduler, change: dict[str, Any]
) -> None:
    """Also with the cookie, which a browser might send along."""
    headers = {"Origin": HERE, "X-Procsched-Key": key_of(friend)} | change
    sent = {name: value for name, value in headers.items() if value is not None}
    assert friend.post("/api/jobs/cancel", json={"id": "job"}, headers=sent).status_code == 403
    assert scheduler.get_job("job").state is JobState.SCHEDULED
    assert friend.request("DELETE", "/api/jobs/cancel", headers=sent).status_code == 405


def test_read_only(scheduler: ProcessScheduler) -> None:
    app = Dashboard(scheduler, token=TOKEN, read_only=True)
    client = testclient.TestClient(app, base_url=HERE)
    client.get(f"/?token={TOKEN}")
    headers = {"Origin": HERE, "X-Procsched-Key": key_of(client)}
    assert client.post("/api/jobs/cancel", json={"id": "job"}, headers=headers).status_code == 403
    app.close()


def test_the_state_has_what_the_page_shows(friend: Any, scheduler: ProcessScheduler) -> None:
    """Runs that ended, once each; what is to come; ids as they are, in JSON."""
    assert scheduler.submit(abs, -1).result(30) == 1
    state = friend.get("/api/state").json()
    for _ in range(300):
        if state["runs"]:
            break
        state = friend.get("/api/state").json()
    assert [run[:3] for run in state["runs"]] == [[0, "abs", 1]] and state["seen"] == 1
    assert {job["id"] for job in state["jobs"]} >= {"job", '</script><b>"&'} and len(state["workers"]) == 1
    assert '</script><b>"&' not in friend.get("/").text


def test_it_can_be_mounted(scheduler: ProcessScheduler) -> None:
    """In an application of the user's: everything lies below, cookie included."""
    applications, routing = pytest.importorskip("starlette.applications"), pytest.importorskip("starlette.routing")
    app = Dashboard(scheduler, token=TOKEN)
    client = testclient.TestClient(applications.Starlette(routes=[routing.Mount("/jobs", app)]), base_url=HERE)
    answer = client.get(f"/jobs/?token={TOKEN}", follow_redirects=False)
    assert answer.headers["location"] == "/jobs/" and "Path=/jobs/" in answer.headers["set-cookie"]
    assert client.get("/jobs/").status_code == 200 and client.get("/jobs/assets/timeline.js").status_code == 200
    assert client.get("/jobs/assets/..%2ftrace.html").status_code in (401, 404)
    app.close()


@pytest.mark.parametrize("token", ["", "short"])
def test_a_token_that_can_be_guessed_is_refused(scheduler: ProcessScheduler, token: str) -> None:
    with pytest.raises(ValueError, match="16 characters"):
        Dashboard(scheduler, token=token)


def test_beyond_this_machine_it_asks_for_a_token() -> None:
    with pytest.raises(ValueError, match="reached from other machines"):
        prepare("0.0.0.0:0")
