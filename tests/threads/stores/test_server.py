"""Threads of a LangGraph Server, over a loopback server that fails, lies and scripts its answers.

`tests/server/test_dev_server.py` has the tests of the real server.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import httpx
import pytest
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.types import Interrupt
from langgraph_sdk import get_client
from langgraph_sdk.client import SyncLangGraphClient

from langgraph_patch._langgraph.storage import NO_TASK
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads import open_database, repair_thread, scan_threads, undo_repair
from langgraph_patch.threads.stores.server import LangGraphServer, checkpoint_of, with_messages

CONFIG: Any = {"configurable": {"thread_id": "t"}}
IDS = [f"t{number:03}" for number in range(120)]


# --- a server -------------------------------------------------------------------------------


class Reply(NamedTuple):
    """An answer; its content comes in pieces, or is a JSON value."""

    value: Any = None
    status: int = 200
    pieces: Iterable[bytes] | None = None
    headers: tuple[tuple[str, str], ...] = ()


def state(number: int, messages: Any = (), *tasks: Any, source: str = "loop") -> dict[str, Any]:
    """The state of a checkpoint, as the API shows it."""
    names = [{"thread_id": "t", "checkpoint_id": f"c{each}"} for each in (number, number - 1)]
    return {
        "values": {"messages": list(messages)},
        "tasks": list(tasks),
        "checkpoint": names[0],
        "parent_checkpoint": names[1],
        "metadata": {"step": number, "source": source},
        "created_at": f"2026-01-01T00:00:{number:04.1f}+00:00",
    }


def task(**outcome: Any) -> dict[str, Any]:
    """A task of the node `tools`."""
    empty = {"result": None, "error": None, "interrupts": []}
    return {"id": "t", "name": "tools", "path": ["__pregel_pull", "tools"], **empty, **outcome}


ASKS = task(interrupts=[{"value": "sure?", "id": "i"}])
CALL = {"name": "f", "args": {}, "id": "c"}
DAMAGED = [
    {"type": "ai", "id": "a", "content": "", "tool_calls": [CALL]},
    {"type": "human", "id": "h", "content": "well?"},
]
RESULT = {"type": "tool", "id": "r", "content": "done", "tool_call_id": "c", "name": "f"}


class FakeServer(ThreadingHTTPServer):
    """A server with one damaged thread, `t`. It does what the real one does.

    `answers` has other answers by the path behind the thread: values, or functions of the body.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.ids, self.states, self.runs = ["t"], [state(0, DAMAGED)], []
        self.answers: dict[str, Any] = {}
        self.seen: list[tuple[str, Any, Any]] = []

    def posted(self, *names: str) -> list[Any]:
        """The bodies that were sent to these paths."""
        return [body for name, body, _ in self.seen if name in names]

    def answer(self, path: str, body: Any, headers: Any) -> Reply:
        """What it answers."""
        first, *rest = path.rpartition("/threads/")[2].split("/")
        name = "/".join(rest) or (first if first in {"count", "search"} else "thread")
        self.seen.append((name, body, headers))
        if name in self.answers:
            found = self.answers[name]
            found = found(body) if callable(found) else found
        else:
            found = getattr(self, f"on_{name.replace('/', '_')}")(body)
        return found if isinstance(found, Reply) else Reply(found)

    def on_count(self, _: Any) -> Any:
        return len(self.ids)

    def on_search(self, body: Any) -> Any:
        start = body.get("offset", 0)
        return [{"thread_id": each} for each in self.ids[start : start + body["limit"]]]

    def on_thread(self, _: Any) -> Any:
        return {"thread_id": "t", "status": "idle", "metadata": {"graph_id": "agent"}}

    def on_history(self, body: Any) -> Any:
        before = body["before"]["configurable"]["checkpoint_id"] if "before" in body else "d"
        older = [s for s in self.states if s["checkpoint"]["checkpoint_id"] < before]
        if wanted := body["checkpoint"].get("checkpoint_id"):
            older = [s for s in older if s["checkpoint"]["checkpoint_id"] == wanted]
        return older[::-1][: body["limit"]]

    def on_runs(self, _: Any) -> Any:
        return self.runs


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer takes 40 ms
    server: FakeServer

    def do_GET(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
        path, _, query = self.path.partition("?")
        reply = self.server.answer(path, body or query, self.headers)
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.end_headers()
        try:
            for piece in reply.pieces or [json.dumps(reply.value).encode()]:
                self.wfile.write(piece)
        except ConnectionError:  # the client has read enough
            self.close_connection = True

    do_POST = do_GET  # noqa: N815 - the name of the base class

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A running server."""
    with FakeServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield server
        server.shutdown()


@pytest.fixture
def client(server: FakeServer) -> Iterator[SyncLangGraphClient]:
    """A synchronous client, which does not try to connect again and again."""
    with httpx.Client(base_url=server.url) as http:
        yield SyncLangGraphClient(http)


def reason(client: Any) -> str:
    """Why the only thread is unreadable."""
    [report] = scan_threads(client)
    assert report.status == "unreadable"
    return report.reason or ""


def scanned(client: Any, **options: Any) -> list[str]:
    """The ids of the threads that a scan reports on."""
    return [report.thread_id for report in scan_threads(client, **options)]


# --- requests -------------------------------------------------------------------------------


def test_an_answer_for_another_thread_is_refused(server, client):
    """It would be called damaged, or healthy, by the state of the other one."""
    other = {"thread_id": "u", "checkpoint_id": "c0"}
    server.answers["history"] = [{**state(0, DAMAGED), "checkpoint": other}]
    assert "was asked for thread 't' and answered for 'u'" in reason(client)
    server.answers = {"thread": {"thread_id": "u", "status": "idle"}}
    server.states = [state(0, DAMAGED, task())]
    assert "was asked for thread 't' and answered for 'u'" in reason(client)


def test_a_server_is_never_written_to(server, client):
    """Not with a client, not as a checkpointer, not by its URL: the error says what to do."""
    acts: list[Any] = [repair_thread, undo_repair]
    for target in (client, LangGraphServer(client)):
        for act in acts:
            with pytest.raises(ThreadError, match=r"Deploy the graph with with_patching.*database"):
                act(target, CONFIG)
    assert server.seen == []


def test_what_is_no_langgraph_server_is_named(server, client):
    """A login page, nothing, lists of other things, a redirect: one line says what is wrong."""
    server.answers["count"] = Reply(status=301, headers=(("location", "https://h"),))
    with pytest.raises(ThreadError, match="with https where it needs that"):
        scanned(client)
    del server.answers["count"]
    expected = r"its answer is not the expected one .*URL of a L"
    for content in (b"<html>Log in</html>", b"null", b'["t1"]', b'[{"id": 3}]', b"[" * 99_999):
        server.answers["search"] = Reply(pieces=[content])
        with pytest.raises(ThreadError, match=expected) as raised:
            scanned(client)
        assert "\n" not in str(raised.value)


def test_an_odd_thread_does_not_stop_a_scan(server, client):
    """It is unreadable, with a reason in words."""
    named = {"checkpoint": {"checkpoint_id": "c", "thread_id": "t"}}
    dated = {**named, "created_at": "2026-01-01", "tasks": [3]}
    for odd in (3, {"values": 3}, {"checkpoint": 3}, named, dated):
        server.answers["history"] = [odd]
        assert "its answer is not the expected one" in reason(client)
    server.answers, server.states = {}, [state(0, [{"type": "human", "id": "h", "content": 7}])]
    assert "'content': 7" in reason(client)


# --- connections ----------------------------------------------------------------------------


def test_an_address_or_a_header_that_is_invalid(monkeypatch):
    """It is refused before anything is sent, and no secret is repeated."""
    for url, headers, error in (
        ("http://bob:secret@127.0.0.1", "", "put .* into the environment variable LANGGRAPH_HEA"),
        ("https://secret@host/path", "", "The URL holds a user or a password"),
        ("http://bob:secret/more@host", "", "or its port is no number"),
        ("http://127.0.0.1", "secret", "A line of LANGGRAPH_HEADERS is not a header"),
        ("http://127.0.0.1", "X-Key:\nsecret: 1", "expected `Name: value`"),
        ("http://127.0.0.1", ": secret", "expected `Name: value`"),
    ):
        monkeypatch.setenv("LANGGRAPH_HEADERS", headers)
        with pytest.raises(OptionError, match=error) as raised:
            open_database(url).__enter__()
        assert "secret" not in str(raised.value)


def test_every_request_has_the_headers_of_the_environment(server, monkeypatch):
    """As many as there are lines; a wrong key ends the scan."""
    monkeypatch.setenv("LANGGRAPH_HEADERS", "X-Tenant: 7:8\n\nX-Other: a b ")
    server.answers["count"] = Reply(status=401)
    with (
        open_database(f"{server.url}/@") as saver,
        pytest.raises(ThreadError, match="check its URL and LANGGRAPH_API_KEY"),
    ):
        scanned(saver)
    [(_, _, headers)] = server.seen
    assert (headers["x-tenant"], headers["x-other"]) == ("7:8", "a b")


def test_an_asynchronous_client_is_refused():
    """The error names the synchronous one."""
    with pytest.raises(OptionError, match=r"LangGraphClient is asynchronous: .*get_sync_client"):
        scan_threads(get_client(url="http://127.0.0.1"))


# --- threads --------------------------------------------------------------------------------


def test_a_thread_that_never_ran_is_healthy(server, client):
    """It has no checkpoint; one that does not exist is unreadable, in the words of the server."""
    server.answers["history"] = []
    assert [each.status for each in scan_threads(client)] == ["healthy"]
    server.answers["history"] = Reply({"detail": "Invalid thread ID"}, 422)
    [report] = scan_threads(client, thread_ids=["a b"])
    assert (report.thread_id, report.status) == ("a b", "unreadable")


def test_pages_that_do_not_hold_all_threads_are_an_error(server, client):
    """They repeat, end early as after a deletion, or are empty: the scan ends, all is not well."""
    for page in (lambda _: IDS[:100], lambda body: IDS[body["offset"] : 100], lambda _: []):
        server.answers["search"] = lambda b, page=page: [{"thread_id": each} for each in page(b)]
        server.answers["count"] = 150
        with pytest.raises(ThreadError, match=r"listed \d+ of 150 threads, so some would be left"):
            scanned(client)
    assert len(server.seen) < 4000


# --- pauses ---------------------------------------------------------------------------------


def test_an_open_call_at_the_end_may_still_get_its_result(server, client):
    """While a run is in progress, or the thread waits; a run that stopped at one was a success."""
    for tasks, status, run, found in (
        ([], "busy", "running", "damaged"),  # at its end
        ([task()], "busy", "running", "healthy"),
        ([ASKS], "interrupted", "error", "paused"),
        ([task()], "idle", "success", "paused"),  # a breakpoint
        ([task()], "error", "error", "damaged"),
        ([task()], "idle", None, "damaged"),
    ):
        server.states = [state(0, DAMAGED[:1], *tasks)]
        server.answers["thread"] = {"thread_id": "t", "status": status, "metadata": {}}
        server.runs = [{"status": run}] * (run is not None)
        assert [report.status for report in scan_threads(client)] == [found]


# --- checkpoints, as the API shows them ---------------------------------------------------


def sent(number: int, **outcome: Any) -> dict[str, Any]:
    """A task that a `Send` made."""
    return {**task(), "id": f"t{number}", "path": ["__pregel_push", number, False], **outcome}


def test_the_pending_writes_of_tasks():
    """Results, errors, interrupts, tasks without a write; the payload of a `Send` is not known."""
    several = {"messages": {"$writes": [[RESULT], [RESULT]]}, "n": {"$writes": [1], "and": 2}}
    read = checkpoint_of(
        state(
            1,
            (),
            sent(1, interrupts=[{"id": "i", "value": "well?"}], name="x"),
            sent(0, result={"messages": [RESULT]}),
            sent(2, error="kaput"),
            sent(3, result=several),
            sent(4, result={}),
            sent(5),
        )
    )
    done = with_messages([RESULT])
    assert read.pending_writes == [
        ("t1", INTERRUPT, [Interrupt(value="well?", id="i")]),
        (NO_TASK, RESUME, None),
        ("t0", "messages", done),
        ("t2", ERROR, "kaput"),
        ("t3", "messages", done),
        ("t3", "messages", done),
        ("t3", "n", several["n"]),
        ("t4", "__no_writes__", None),
    ]
    nodes = [(send.node, send.arg) for send in read.checkpoint["channel_values"][TASKS]]
    assert nodes[:3] == [("tools", None), ("x", None), ("tools", None)]
