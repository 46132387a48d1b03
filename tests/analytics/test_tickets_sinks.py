"""One battery for every tracker: idempotent, found again, retried, errors that say what to do, no secret told."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analytics import tickets
from analytics.findings import Evidence, Finding, Window, finding_key
from analytics.tickets_http import Patience
from analytics.tickets_plan import CLOSED, Change, TicketSink, plan
from analytics.tickets_sinks import sink
from ingest.errors import BadSetting, Unavailable
from ingest.settings import Settings
from ingest.store import Store
from tests.analytics.trackers import HTML, Tracker, serve, state_of, text_of

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
REMOTE = ("github", "gitlab", "jira")


def finding(name: str = "a", **other: Any) -> Finding:
    base = Finding(
        key=finding_key("failure", name),
        kind="failure",
        subject={"service": "workers", "stage": "data_fetch", "tool": "search", "cluster": f"fc-{name}"},
        title=f"Tool-call timeout at data_fetch ({name})",
        cause="slow_dependency",
        severity="high",
        lost_seconds=100.0,
        lost_low=80.0,
        lost_high=120.0,
        share_of_e2e_p95=0.0,
        requests=50,
        users=20,
        evidence=(Evidence("share | of <requests>", 4.2, "%", 0.1),),
        recommendation="Give tools tiered timeouts.",
        effort="free",
        expected_saving_ms=2000.0,
        verify="Inject a delay.",
        trace_ids=("ab" * 16,),
        window=Window(NOW - timedelta(hours=24), NOW),
        first_seen=NOW - timedelta(hours=24),
        last_seen=NOW,
        query="SELECT 1",
    )
    return replace(base, **other)


@pytest.fixture
def tracker() -> Iterator[Tracker]:
    with serve() as running:
        yield running


class Naps:
    def __init__(self) -> None:
        self.taken: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


def make(
    name: str, tracker: Tracker, naps: Naps | None = None, folder: Path = Path("unused"), **other: Any
) -> TicketSink:
    address = {f"{item}_url": tracker.url for item in ("github", "gitlab", "jira")}
    settings = Settings(
        **{
            **address,
            "webhook_url": f"{tracker.url}/hook",
            "github_repo": "team/app",
            "github_token": "t0ken",
            "gitlab_project": "team/app",
            "gitlab_token": "t0ken",
            "jira_project": "OPS",
            "jira_user": "bot@example.com",
            "jira_token": "t0ken",
            **other,
        }
    )
    patience = Patience(attempts=3, first_wait_s=1.0, gap_s=0.0, sleep=naps or Naps())
    return sink(name, settings, folder, (lambda _: "team-tools", lambda _: ""), patience)


def opened(found: Finding | None = None, environment: str = "prod") -> Change:
    return plan([found or finding()], [], NOW, place=(environment, "x"))[0]


@pytest.mark.parametrize("name", REMOTE)
def test_a_change_sent_twice_makes_one_issue(name: str, tracker: Tracker) -> None:
    place = make(name, tracker)
    first = place.apply(opened())
    assert place.apply(opened()) == first
    assert tracker.creates == 1
    text = text_of(tracker)
    assert "Tool-call timeout" in text
    assert "team-tools" in text
    assert "stagescope-prod-failure-" in text


@pytest.mark.parametrize("name", REMOTE)
def test_an_unchanged_ticket_is_not_written_again(name: str, tracker: Tracker) -> None:
    place = make(name, tracker)
    place.apply(opened())
    tracker.requests.clear()
    place.apply(opened())
    written = [request for request in tracker.requests if request[0] != "GET" and not request[1].endswith("search/jql")]
    assert written == []


@pytest.mark.parametrize("name", REMOTE)
def test_close_and_reopen_the_same_issue(name: str, tracker: Tracker) -> None:
    place = make(name, tracker)
    change = opened()
    number = place.apply(change)
    closed = replace(change, action="close", ticket=replace(change.ticket, state=CLOSED))
    assert place.apply(closed) == number
    assert state_of(tracker) == "closed"
    assert place.apply(replace(change, action="reopen")) == number
    assert state_of(tracker) == "open"
    assert tracker.creates == 1


@pytest.mark.parametrize("name", REMOTE)
def test_environments_stay_apart(name: str, tracker: Tracker) -> None:
    place = make(name, tracker)
    assert place.apply(opened(environment="prod")) != place.apply(opened(environment="staging"))
    assert tracker.creates == 2


@pytest.mark.parametrize("name", REMOTE)
def test_it_is_found_behind_many_pages(name: str, tracker: Tracker) -> None:
    place = make(name, tracker)
    first = place.apply(opened())
    issue = tracker.issues[1]
    for _ in range(7):
        tracker.new({key: value for key, value in issue.items() if key not in ("number", "iid", "id", "key")})
    assert place.apply(opened()) == first


@pytest.mark.parametrize("name", REMOTE)
def test_too_many_requests_waits_as_told(name: str, tracker: Tracker) -> None:
    naps = Naps()
    tracker.bad_days = [(429, {"retry-after": "7"}, "{}"), (503, {}, HTML)]
    make(name, tracker, naps).apply(opened())
    assert 7.0 in naps.taken
    assert tracker.creates == 1


def test_github_says_too_fast_with_403(tracker: Tracker) -> None:
    naps = Naps()
    limited = (403, {"x-ratelimit-remaining": "0", "retry-after": "3"}, '{"message": "secondary rate limit"}')
    tracker.bad_days = [limited]
    make("github", tracker, naps).apply(opened())
    assert naps.taken == [3.0]


@pytest.mark.parametrize("name", REMOTE)
def test_an_answer_that_got_lost_after_creating_makes_no_second_issue(name: str, tracker: Tracker) -> None:
    tracker.bad_days = [None, "lost"]
    place = make(name, tracker)
    place.apply(opened())
    assert tracker.creates == 1
    place.apply(opened())
    assert tracker.creates == 1


@pytest.mark.parametrize("name", REMOTE)
def test_a_page_of_html_is_said_and_nothing_is_created_blindly(name: str, tracker: Tracker) -> None:
    tracker.bad_days = [None, (500, {}, HTML)]
    with pytest.raises(Unavailable, match="500"):
        make(name, tracker).apply(opened())
    tracker.bad_days = [(200, {}, HTML)]
    with pytest.raises(Unavailable, match=r"text/html instead of JSON: 502 Bad Gateway"):
        make(name, tracker).apply(opened())
    assert tracker.creates == 0


@pytest.mark.parametrize("name", REMOTE)
def test_an_expired_token_names_the_setting_and_tells_no_secret(name: str, tracker: Tracker) -> None:
    tracker.token = "renewed"
    with pytest.raises(BadSetting) as caught:
        make(name, tracker).apply(opened())
    assert f"STAGESCOPE_{name.upper()}_TOKEN" in str(caught.value)
    assert "401" in str(caught.value)
    assert "t0ken" not in str(caught.value)


def test_a_field_that_jira_requires_is_named_with_the_setting_that_gives_it(tracker: Tracker) -> None:
    tracker.required = {"customfield_10010": "Team is required."}
    with pytest.raises(BadSetting, match=r"STAGESCOPE_JIRA_FIELDS.*customfield_10010.*Team is required"):
        make("jira", tracker).apply(opened())
    given = make("jira", tracker, jira_fields='{"customfield_10010": {"value": "Core"}}')
    given.apply(opened())
    assert tracker.issues[1]["fields"]["customfield_10010"] == {"value": "Core"}


def test_a_jira_workflow_without_a_way_to_done_is_said(tracker: Tracker) -> None:
    place = make("jira", tracker)
    change = opened()
    place.apply(change)
    tracker.transitions_to_done = False
    with pytest.raises(BadSetting, match=r"done status \(offered: To Do\)"):
        place.apply(replace(change, ticket=replace(change.ticket, state=CLOSED)))


@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_what_people_wrote_around_our_block_stays(name: str, tracker: Tracker) -> None:
    place = make(name, tracker)
    change = opened()
    place.apply(change)
    field = "body" if name == "github" else "description"
    tracker.issues[1][field] = f"Paged at 3.\n\n{tracker.issues[1][field]}\nI am on it."
    place.apply(replace(change, ticket=replace(change.ticket, history=(*change.ticket.history, "more"))))
    assert tracker.issues[1][field].startswith("Paged at 3.")
    assert tracker.issues[1][field].endswith("I am on it.")
    assert tracker.issues[1][field].count("stagescope:begin") == 1


@pytest.mark.parametrize("name", REMOTE)
def test_three_senders_at_once_make_one_issue_each_problem(name: str, tracker: Tracker, tmp_path: Path) -> None:
    tracker.slow_s = 0.05
    found = [finding(item) for item in "abcd"]
    with Store.open(str(tmp_path / "store")) as store:
        threads = [
            threading.Thread(target=tickets.sync, args=(store, make(name, tracker), found), kwargs={"now": NOW})
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert tracker.creates == 4
        assert {item.external_id for item in tickets.read(store, "default", name)} == {
            str(issue["key"] if name == "jira" else issue["number"]) for issue in tracker.issues.values()
        }
        assert tickets.sync(store, make(name, tracker), found, now=NOW) == []


@pytest.mark.parametrize("name", REMOTE)
def test_a_crash_between_sending_and_recording_makes_no_second_issue(
    name: str, tracker: Tracker, tmp_path: Path
) -> None:
    class Crash(BaseException):
        """As if the process had gone."""

    class Dies:
        def __init__(self, inner: TicketSink) -> None:
            self.name, self._inner = inner.name, inner

        def apply(self, change: Change) -> str:
            self._inner.apply(change)
            raise Crash

    with Store.open(str(tmp_path / "store")) as store:
        with pytest.raises(Crash):
            tickets.sync(store, Dies(make(name, tracker)), [finding()], now=NOW)
        assert tickets.read(store, "default", name) == []
        done = tickets.sync(store, make(name, tracker), [finding()], now=NOW)
        assert [item.change.action for item in done] == ["open"]
        assert tracker.creates == 1


def test_a_tracker_that_is_away_loses_nothing(tracker: Tracker, tmp_path: Path) -> None:
    tracker.bad_days = [(503, {}, HTML)] * 3
    with Store.open(str(tmp_path / "store")) as store:
        first = tickets.sync(store, make("github", tracker), [finding()], now=NOW)
        assert "503" in first[0].problem
        second = tickets.sync(store, make("github", tracker), [finding()], now=NOW)
        assert second[0].external_id == "1"


def test_dry_run_sends_and_records_nothing(tracker: Tracker, tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store")) as store:
        done = tickets.sync(store, make("github", tracker), [finding()], now=NOW, dry_run=True)
        assert [item.change.action for item in done] == ["open"]
        assert tracker.requests == []
        assert tickets.read(store, "default", "github") == []


def test_a_setting_that_is_missing_is_named(tracker: Tracker) -> None:
    for name, wanted in (
        ("github", "GITHUB_REPO"),
        ("jira", "JIRA_PROJECT"),
        ("gitlab", "GITLAB_TOKEN"),
        ("webhook", "WEBHOOK_URL"),
    ):
        with pytest.raises(BadSetting, match=f"STAGESCOPE_{wanted}"):
            make(name, tracker, **{wanted.lower(): ""})
    with pytest.raises(BadSetting, match="STAGESCOPE_JIRA_FIELDS"):
        make("jira", tracker, jira_fields="[1]")
    with pytest.raises(BadSetting, match="files, jira, github"):
        make("bugzilla", tracker)
