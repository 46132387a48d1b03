"""A local HTTP server that answers as GitHub, GitLab and Jira document their APIs, with the troubles they have on bad days."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HTML = "<html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>"
OPEN = {"name": "To Do", "statusCategory": {"key": "new"}}
DONE = {"name": "Done", "statusCategory": {"key": "done"}}


class Tracker:
    """Issues by number. `bad_days`: answers given instead of (status, headers, text), or 'lost': done, but the answer never comes."""

    def __init__(self) -> None:
        self.issues: dict[int, dict[str, Any]] = {}
        self.bad_days: list[Any] = []
        self.requests: list[tuple[str, str]] = []
        self.token = "t0ken"
        self.page = 2
        self.required: dict[str, str] = {}
        self.transitions_to_done = True
        self.slow_s = 0.0
        self.lock = threading.Lock()
        self.url = ""

    @property
    def creates(self) -> int:
        return len(self.issues)

    def new(self, fields: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            number = len(self.issues) + 1
            issue = {"number": number, "iid": number, "id": str(number), "key": f"OPS-{number}", **fields}
            self.issues[number] = issue
        return issue


class Door(BaseHTTPRequestHandler):
    server: Any
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return

    def _any(self) -> None:
        length = int(self.headers.get("content-length", 0))
        raw = self.rfile.read(length)
        tracker: Tracker = self.server.tracker
        parts = urlsplit(self.path)
        tracker.requests.append((self.command, parts.path))
        with tracker.lock:
            trouble = tracker.bad_days.pop(0) if tracker.bad_days else None
        if isinstance(trouble, tuple):
            return self._answer(*trouble)
        if tracker.token not in (self.headers.get("authorization", "") + self.headers.get("private-token", "")) and (
            "Basic" not in self.headers.get("authorization", "") or tracker.token != "t0ken"
        ):
            return self._answer(401, {}, json.dumps({"message": "Bad credentials"}))
        body = json.loads(raw) if raw else {}
        status, headers, out = self._route(
            tracker, parts.path, {k: v[0] for k, v in parse_qs(parts.query).items()}, body
        )
        time.sleep(tracker.slow_s)
        if trouble == "lost":
            self.close_connection = True
            self.connection.close()
            return None
        return self._answer(status, headers, json.dumps(out) if out is not None else "")

    do_GET = do_POST = do_PUT = do_PATCH = _any

    def _answer(self, status: int, headers: dict[str, str], text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("content-type", "text/html" if text.startswith("<") else "application/json")
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", "0" if status == 204 else str(len(data)))
        self.end_headers()
        if status != 204:
            self.wfile.write(data)

    def _route(self, tracker: Tracker, path: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, str], Any]:
        if path.startswith("/repos/"):
            return github(tracker, self.command, path, query, body)
        if path.startswith("/api/v4/"):
            return gitlab(tracker, self.command, path, query, body)
        if path.startswith("/rest/api/3/"):
            return jira(tracker, self.command, path.removeprefix("/rest/api/3/"), body)
        return 404, {}, {"message": "Not Found"}


Reply = tuple[int, dict[str, str], Any]


def _paged(tracker: Tracker, found: list[dict[str, Any]], page: int) -> tuple[list[dict[str, Any]], bool]:
    return found[(page - 1) * tracker.page : page * tracker.page], len(found) > page * tracker.page


def github(tracker: Tracker, method: str, path: str, query: dict[str, str], body: Any) -> Reply:
    if method == "GET":
        wanted = set(query["labels"].split(","))
        found = sorted((i for i in tracker.issues.values() if wanted <= set(i["labels"])), key=lambda i: -i["number"])
        items, more = _paged(
            tracker, [{**i, "labels": [{"name": n} for n in i["labels"]]} for i in found], int(query["page"])
        )
        return 200, {"link": f'<{tracker.url}{path}?page=2>; rel="next"'} if more else {}, items
    if method == "POST":
        return 201, {}, tracker.new({"state": "open", **body})
    issue = tracker.issues[int(path.rsplit("/", 1)[1])]
    issue.update(body)
    return 200, {}, issue


def gitlab(tracker: Tracker, method: str, path: str, query: dict[str, str], body: Any) -> Reply:
    if method == "GET":
        found = [i for i in tracker.issues.values() if query["labels"] in i["labels"]]
        items, more = _paged(tracker, found, int(query["page"]))
        return 200, {"x-next-page": str(int(query["page"]) + 1) if more else ""}, items
    if method == "POST":
        return 201, {}, tracker.new({"state": "opened", **body, "labels": body["labels"].split(",")})
    issue = tracker.issues[int(path.rsplit("/", 1)[1])]
    event = body.pop("state_event", None)
    issue.update(body)
    if event:
        issue["state"] = {"close": "closed", "reopen": "opened"}[event]
    return 200, {}, issue


def jira(tracker: Tracker, method: str, path: str, body: Any) -> Reply:
    if path == "search/jql":
        label = re.search(r'labels = "([^"]+)"', body["jql"])
        assert label is not None
        found = [i for i in tracker.issues.values() if label[1] in i["fields"]["labels"]]
        page = int(body.get("nextPageToken", "1"))
        items, more = _paged(tracker, found, page)
        return 200, {}, {"issues": items, **({"nextPageToken": str(page + 1)} if more else {}), "isLast": not more}
    if path == "issue":
        missing = {name: why for name, why in tracker.required.items() if name not in body["fields"]}
        if missing:
            return 400, {}, {"errorMessages": [], "errors": missing}
        issue = tracker.new({"fields": {**body["fields"], "status": OPEN}})
        return 201, {}, {"id": issue["id"], "key": issue["key"], "self": ""}
    issue = next(i for i in tracker.issues.values() if i["key"] == path.split("/")[1])
    if path.endswith("/transitions"):
        offered = [{"id": "11", "name": "Reopen", "to": OPEN}]
        if tracker.transitions_to_done:
            offered.append({"id": "31", "name": "Done", "to": DONE})
        if method == "GET":
            return 200, {}, {"transitions": offered}
        issue["fields"]["status"] = next(item["to"] for item in offered if item["id"] == body["transition"]["id"])
        return 204, {}, None
    issue["fields"].update(body["fields"])
    return 204, {}, None


@contextmanager
def serve() -> Iterator[Tracker]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    server.tracker = Tracker()
    server.tracker.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.tracker
    finally:
        server.shutdown()
        server.server_close()


def state_of(tracker: Tracker, number: int = 1) -> str:
    """`open` or `closed`, whatever the tracker calls it."""
    issue = tracker.issues[number]
    if "fields" in issue:
        return "closed" if issue["fields"]["status"] is DONE or issue["fields"]["status"] == DONE else "open"
    return "closed" if issue["state"] == "closed" else "open"


def text_of(tracker: Tracker, number: int = 1) -> str:
    issue = tracker.issues[number]
    return json.dumps(issue.get("fields", issue), ensure_ascii=False)
