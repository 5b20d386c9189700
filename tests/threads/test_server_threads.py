"""Threads of a LangGraph Server, over a loopback server that fails, lies and scripts its answers.

`tests/server/test_dev_server.py` has the tests of the real server.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import httpx
import pytest
from langgraph.checkpoint.serde.types import RESUME
from langgraph_sdk import get_client
from langgraph_sdk.client import SyncLangGraphClient

from langgraph_patch.errors import (
    EvidenceError,
    OptionError,
    StoreError,
    ThreadError,
    chain_of,
    is_store_failure,
)
from langgraph_patch.threads import LangGraphServer, repair_thread, scan_threads, undo_repair
from langgraph_patch.threads.opening import open_database

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


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited for, without waiting."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def reason(client: Any) -> str:
    """Why the only thread is unreadable."""
    [report] = scan_threads(client)
    assert report.status == "unreadable"
    return report.reason or ""


def scanned(client: Any, **options: Any) -> list[str]:
    """The ids of the threads that a scan reports on."""
    return [report.thread_id for report in scan_threads(client, **options)]


# --- requests -------------------------------------------------------------------------------


def test_e3_a_server_that_fails_ends_a_scan(server, client, pauses):
    """Also while older checkpoints are searched: otherwise its threads would be called damaged."""
    text = "LangGraph Server: it refuses all requests: check its URL and LANGGRAPH_API_KEY, or try"
    for status in (401, 429, 502, 503, 504):
        refusal = Reply({"detail": "no"}, status)
        search = lambda body, it=refusal: it if "checkpoint_id" in body["checkpoint"] else None
        for answer in (refusal, lambda body, s=search: s(body) or server.on_history(body)):
            server.answers["history"] = answer
            pauses.clear()
            with pytest.raises((StoreError, EvidenceError)) as raised:
                scanned(client)
            assert is_store_failure(raised.value)
            [error] = [e for e in chain_of(raised.value) if isinstance(e, StoreError)]
            assert str(error).startswith(text)
            assert str(error).endswith(f"again later ({status} {error_text(status)}: no).")
            assert pauses == ([1.0, 4.0, 16.0] if status in {429, 503} else [])


def error_text(status: int) -> str:
    """What HTTP calls a status."""
    return HTTPStatus(status).phrase


def test_a_thread_that_the_server_cannot_read_does_not_end_a_scan(server, client):
    """Its graph may be gone: it is unreadable and never healthy, and no URL is repeated."""
    text = "thread: http://bob:secret@host failed\n" + "x" * 1000
    for status in (403, 404, 409, 422, 500):
        server.answers["history"] = Reply({"detail": text}, status)
        found = reason(client)
        assert found.startswith(f"LangGraph Server: it refused the request ({status} ")
        assert "(its URL) failed" in found
        assert len(found) < 600


def test_e9_an_answer_for_another_thread_is_refused(server, client):
    """It would be called damaged, or healthy, by the state of the other one."""
    server.answers["history"] = [{**state(0, DAMAGED), "checkpoint": {"thread_id": "u", **ID}}]
    assert "was asked for thread 't' and answered for 'u'" in reason(client)
    server.answers = {"thread": {"thread_id": "u", "status": "idle"}}
    with pytest.raises(ThreadError, match="was asked for thread 't' and answered for 'u'"):
        scanned(client, thread_ids=["t"])


ID = {"checkpoint_id": "c0"}


def test_a_server_is_never_written_to(server, client):
    """Not with a client, not as a checkpointer, not by its URL: the error says what to do."""
    acts: list[Any] = [repair_thread, undo_repair]
    for target in (client, LangGraphServer(client)):
        for act in acts:
            with pytest.raises(ThreadError, match=r"Deploy the graph with with_patching.*database"):
                act(target, CONFIG)
    with pytest.raises(ThreadError, match="Deploy the graph with with_patching"):
        open_database(server.url, write=True)
    assert server.seen == []


def test_a_server_that_refuses_for_a_while_is_asked_again(server, client, pauses):
    """After the seconds that it names, but not after a day."""
    for status, named, waited in (
        (429, "7", [7.0, 7.0]),
        (503, "86400", [30.0, 30.0]),
        (503, "Sun, 22 Nov 2026 10:00:00 GMT", [1.0, 4.0]),
        (429, "", [1.0, 4.0]),
    ):
        refusals = [Reply(status=status, headers=(("retry-after", named),))] * 2
        server.answers["count"] = lambda _, refusals=refusals: refusals.pop() if refusals else 1
        pauses.clear()
        assert scanned(client) == ["t"]
        assert pauses == waited


def test_what_is_no_langgraph_server_is_named(server, client):
    """A login page, nothing, lists of other things, a redirect: one line says what is wrong."""
    server.answers["count"] = Reply(status=301, headers=(("location", "https://h"),))
    with pytest.raises(StoreError, match="with https where it needs that"):
        scanned(client)
    del server.answers["count"]
    for content in (
        b"<html>Log in</html>",
        b"null",
        b'["t1"]',
        b'[{"id": 3}]',
        b"\xff",
        b"[" * 99_999,
    ):
        server.answers["search"] = Reply(pieces=[content])
        with pytest.raises(
            StoreError, match=r"its answer is not the expected one .*URL of a L"
        ) as raised:
            scanned(client)
        assert "\n" not in str(raised.value)


def test_an_odd_thread_does_not_stop_a_scan(server, client):
    """It is unreadable, with a reason in words."""
    dated = {"checkpoint": {"checkpoint_id": "c"}, "created_at": "2026-01-01"}
    for odd in (
        3,
        {"values": 3},
        {"checkpoint": 3},
        dated,
        {"checkpoint": {"checkpoint_id": "c", "thread_id": "t"}},
        {**dated, "tasks": [3]},
    ):
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


def test_only_a_client_is_a_server(client):
    """The error names the value and what to pass; a server is taken as it is."""
    with pytest.raises(OptionError, match=r"a value .* is a str: expected a synchronous client"):
        LangGraphServer("http://127.0.0.1")
    assert scanned(LangGraphServer(client)) == scanned(client) == ["t"]
    with pytest.raises(OptionError, match=r"LangGraphClient is asynchronous: .*get_sync_client"):
        scan_threads(get_client(url="http://127.0.0.1"))


# --- threads --------------------------------------------------------------------------------


def test_every_page_is_read_in_any_order(server, client):
    """120 threads are more than one page; each is reported once, in the order of the ids."""
    server.answers["history"] = {}
    for ids in (IDS, IDS[::-1]):
        server.ids = list(ids)
        assert scanned(client) == IDS
    assert {tuple(body["select"]) for body in server.posted("search")} == {("thread_id",)}
    assert server.posted("search")[0]["sort_by"] == "thread_id"


def test_filters_choose_threads(server, client):
    """They are sent with each request for a list; without them nothing is."""
    filters: dict[str, Any] = {"metadata": {"mine": 1}, "status": "error"}
    scanned(LangGraphServer(client, **filters))
    for body in server.posted("count", "search"):
        assert {key: body[key] for key in filters} == filters
    server.seen.clear()
    scanned(LangGraphServer(client, metadata={}, status=None))
    assert all(not filters.keys() & body.keys() for body in server.posted("search"))


def test_a_thread_that_does_not_exist(server, client):
    """It is named in a scan; its id is quoted in the path."""
    server.answers["thread"] = server.answers["history"] = Reply("Thread not found", 404)
    for status in (404, 422):
        server.answers["thread"] = Reply({"detail": "Invalid thread ID"}, status)
        with pytest.raises(ThreadError, match="There is no thread 'a b'"):
            scanned(client, thread_ids=["a b"])


def test_pages_that_do_not_hold_all_threads_are_an_error(server, client):
    """They repeat, end early or are empty: the scan ends, and all is not well."""
    for page in (
        lambda _: IDS[:100],
        lambda body: IDS[body["offset"] : 100],
        lambda _: [],
    ):
        server.answers["search"] = lambda b, page=page: [{"thread_id": each} for each in page(b)]
        server.answers["count"] = 150
        with pytest.raises(
            ThreadError, match=r"listed \d+ of 150 threads, so some would be left o"
        ):
            scanned(client)
    assert len(server.seen) < 4000


def test_threads_that_are_deleted_meanwhile_hide_no_others(server, client):
    """The pages moved, so the scan ends; the next one reads all."""
    server.answers["history"] = {}
    for gone in (10, 110):

        def search(body: Any, gone: int = gone) -> Any:
            found = server.on_search(body)
            del server.ids[: gone if len(server.ids) == len(IDS) else 0]
            return found

        server.answers["search"], server.ids = search, list(IDS)
        with pytest.raises(ThreadError, match="so some would be left out: try again"):
            scanned(client)
        assert scanned(client) == IDS[gone:]


# --- pauses ---------------------------------------------------------------------------------


def is_answered(saved: Any) -> bool:
    """Whether a checkpoint has an answer among its pending writes."""
    return any(channel == RESUME for _, channel, _ in saved.pending_writes)


def run_at(second: float, **options: Any) -> dict[str, Any]:
    """A run, as the list of runs has it."""
    options = {"input": {}, "command": None, **options}
    return {"created_at": f"2026-01-01T00:00:{second:04.1f}+00:00", "kwargs": options}


def test_an_answer_counts_for_every_pause_before_it(server, client):
    """And for no later one: here the next message ended c1, c3 was answered, and c5 waits."""
    server.states = [state(each, (), *[ASKS] * (each % 2)) for each in range(6)]
    server.runs = [run_at(3.5, command={"resume": False}), run_at(1.5)]
    saver = LangGraphServer(client)
    expected = {f"c{each}": each in {1, 3} for each in range(5, -1, -1)}
    found = {saved.checkpoint["id"]: is_answered(saved) for saved in saver.list(CONFIG)}
    assert found == expected
    for name, answered in expected.items():
        exact = {"configurable": {"thread_id": "t", "checkpoint_id": name}}
        assert is_answered(saver.get_tuple(exact)) == answered
    server.seen.clear()
    assert not is_answered(
        saver.get_tuple({"configurable": {"thread_id": "t", "checkpoint_id": "c0"}})
    )
    assert not server.posted("runs")  # nobody was asked
    # Runs that are not shown may have been answers; a call is not said to be waiting then.
    server.states = [state(each, (), ASKS) for each in (1, 3)]
    server.runs = [run_at(2)] * 100
    assert [is_answered(saved) for saved in saver.list(CONFIG)] == [False, True]
    assert "limit=100" in server.posted("runs")[0]
    server.runs.pop()
    assert not any(map(is_answered, saver.list(CONFIG)))


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
        server.runs = [run_at(0) | {"status": run}] * (run is not None)
        assert [report.status for report in scan_threads(client)] == [found]
