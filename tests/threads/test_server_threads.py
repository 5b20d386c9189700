"""Threads of a LangGraph Server, over a loopback server that fails, lies and scripts its answers.

`tests/server/test_dev_server.py` has the tests of the real server.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, repeat, takewhile
from typing import Any, NamedTuple

import httpx
import pytest
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.serde.types import RESUME
from langgraph.graph import add_messages
from langgraph_sdk import get_client
from langgraph_sdk.client import SyncLangGraphClient

from langgraph_patch.errors import MessagesError, OptionError, ThreadError
from langgraph_patch.threads import (
    LangGraphServer,
    ascan_threads,
    aundo_repair,
    repair_thread,
    scan_threads,
    server_client,
    undo_repair,
)
from langgraph_patch.threads.opening import open_database
from support.paths import ROOT

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
        self.waiting: list[Any] = []  # what a run wrote beside the newest checkpoint

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
        return {"status": "idle", "metadata": {"graph_id": "agent"}}

    def on_history(self, body: Any) -> Any:
        before = body["before"]["configurable"]["checkpoint_id"] if "before" in body else "d"
        older = [s for s in self.states if s["checkpoint"]["checkpoint_id"] < before]
        if wanted := body["checkpoint"].get("checkpoint_id"):
            older = [s for s in older if s["checkpoint"]["checkpoint_id"] == wanted]
        return older[::-1][: body["limit"]]

    def on_runs(self, _: Any) -> Any:
        return self.runs

    def on_runs_wait(self, body: Any) -> Any:
        self.waiting = [write for _, write in body["command"]["update"]]
        self.runs.insert(0, {"metadata": body["metadata"], "status": "success"})
        return {}

    def on_state(self, body: Any) -> Any:
        begin = (
            self.on_history({**body, "limit": 1})[0] if "checkpoint" in body else self.states[-1]
        )
        writes, self.waiting = [] if "checkpoint" in body else self.waiting, []
        messages = begin["values"]["messages"]
        results = [each["result"]["messages"] for each in begin["tasks"] if each["result"]]
        for write in [*results, *writes]:
            messages = [m.model_dump(mode="json") for m in add_messages(messages, write)]
        self.states.append(state(len(self.states), messages, source="update"))
        self.states[-1]["parent_checkpoint"] = begin["checkpoint"]
        return {}


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


def contents(server: FakeServer) -> list[str]:
    """The texts of the newest history."""
    return [message["content"] for message in server.states[-1]["values"]["messages"]]


def reason(client: Any) -> str:
    """Why the only thread is unreadable."""
    [report] = scan_threads(client)
    assert report.status == "unreadable"
    return report.reason or ""


def scanned(client: Any, **options: Any) -> list[str]:
    """The ids of the threads that a scan reports on."""
    return [report.thread_id for report in scan_threads(client, **options)]


# --- requests -------------------------------------------------------------------------------


def test_a_server_that_fails_ends_a_scan_and_a_repair(server, client, pauses):
    """Otherwise each of its threads would be called unreadable, and a repair would go on."""
    text = "LangGraph Server refuses all requests: check its URL and LANGGRAPH_API_KEY, or try"
    for status in (401, 429, 502, 503):
        server.answers["history"] = Reply({"detail": "no"}, status)
        pauses.clear()
        with pytest.raises(ThreadError, match=rf"^{text} again later \({status} .*no.*\)\.$"):
            scanned(client)
        assert pauses == ([1.0, 4.0, 16.0] if status in {429, 503} else [])
    server.answers = {"runs/wait": Reply(status=502)}
    with pytest.raises(ThreadError, match=text):
        repair_thread(client, CONFIG)


def test_a_thread_that_the_server_cannot_read_does_not_end_a_scan(server, client):
    """It may be too large, or of another user: it is unreadable, and no URL is repeated."""
    text = "http://bob:secret@host failed\n" + "x" * 1000
    for status in (403, 404, 500, 504):
        server.answers["history"] = Reply({"detail": text}, status)
        found = reason(client)
        assert found.startswith(f"LangGraph Server refused the request ({status} ")
        assert "(its URL) failed" in found
        assert len(found) < 600


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


async def test_an_async_client_is_answered_and_refused_alike(server, client):
    """It waits, asks again, and reads no answer without an end."""
    refusals = [Reply(status=429)]
    server.answers["count"] = lambda _: refusals.pop() if refusals else 1
    async with get_client(url=server.url) as aclient:
        assert [r.status async for r in ascan_threads(aclient)] == ["damaged"]
        server.answers["history"] = Reply(pieces=repeat(b" " * 2**20))
        [report] = [r async for r in ascan_threads(aclient)]
        assert "an answer is larger than 64 MiB" in report.reason
        with pytest.raises(OptionError, match=r"LangGraphClient is asynchronous: .*ascan_threads"):
            list(scan_threads(aclient))
    with pytest.raises(OptionError, match=r"SyncLangGraphClient is synchronous: .*undo_rep"):
        await aundo_repair(client, CONFIG)


def test_what_is_no_langgraph_server_is_named(server, client):
    """A login page, nothing, and lists of other things: one line says which answer is wrong."""
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
            ThreadError, match=r"answer to threads/search is .*URL of a L"
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
        assert "its answer to threads/t/history is not the expected one" in reason(client)
    server.answers, server.states = {}, [state(0, [{"type": "human", "id": "h", "content": 7}])]
    assert "'content': 7" in reason(client)
    with pytest.raises(MessagesError, match="'content': 7"):
        repair_thread(client, CONFIG)


def test_c7_an_answer_without_an_end_is_not_read(server, client):
    """Only that thread is unreadable; no packed answer is asked for, and none is unpacked."""
    server.answers["history"] = Reply(pieces=repeat(b" " * 2**20))
    limit = "LangGraph Server: an answer is larger than 64 MiB, so it was not read."
    assert reason(client) == limit
    limits = (ROOT / "docs" / "pages" / "limits.md").read_text("utf-8")
    seconds = server_client._SECONDS  # noqa: SLF001 - a minute is too long for a test
    assert f"in {seconds:.0f} seconds and 64 MiB" in limits
    packed = gzip.compress(b" " * 10_000_000)
    server.answers["history"] = Reply(pieces=[packed], headers=(("content-encoding", "gzip"),))
    assert "is not the expected one" in reason(client)
    assert {headers["accept-encoding"] for *_, headers in server.seen} == {"identity"}


def test_an_answer_that_drips_or_never_comes_is_not_waited_for(server, client, monkeypatch):
    """It ends the scan: every other answer would take as long."""
    monkeypatch.setattr(server_client, "_SECONDS", 0.15)
    for every, text in (
        (0.01, "an answer takes too long: try again later"),
        (None, "is it running, and is the URL"),
    ):
        ended = threading.Event()
        pieces = takewhile(lambda _, e=ended, every=every: not e.wait(every), repeat(b" "))
        server.answers["count"] = Reply(pieces=pieces)
        begin = time.monotonic()
        with pytest.raises(ThreadError, match=text):
            scanned(client)
        assert 0.1 < time.monotonic() - begin < 5
        ended.set()


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
    with pytest.raises(OptionError, match=r"'http://127.0.0.1' is a str: expected a client"):
        LangGraphServer("http://127.0.0.1")
    assert scanned(LangGraphServer(client)) == scanned(client) == ["t"]
    with pytest.raises(ThreadError, match="subgraph 'child'"):
        repair_thread(client, {"configurable": {"thread_id": "t", "checkpoint_ns": "child"}})


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
    """It is named in a scan and in a repair; its id is quoted in the path."""
    server.answers["thread"] = server.answers["history"] = Reply("Thread not found", 404)
    for status in (404, 422):
        server.answers["thread"] = Reply({"detail": "Invalid thread ID"}, status)
        with pytest.raises(ThreadError, match="There is no thread 'a b'"):
            scanned(client, thread_ids=["a b"])
    with pytest.raises(ThreadError, match="There is no thread 't'"):
        repair_thread(client, CONFIG)


def test_pages_that_do_not_hold_all_threads_are_an_error(server, client):
    """They repeat, end early, are empty or have no end: the scan ends, and all is not well."""
    for page in (
        lambda _: IDS[:100],
        lambda body: IDS[body["offset"] : 100],
        lambda _: [],
        lambda body: ["0", *(f"{each}" for each in range(body["offset"], body["offset"] + 99))],
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
        server.answers["thread"] = {"status": status, "metadata": {}}
        server.runs = [run_at(0) | {"status": run}] * (run is not None)
        assert [report.status for report in scan_threads(client)] == [found]


# --- repair and undo ------------------------------------------------------------------------


def test_a_repair_is_written_by_one_run_and_undone(server, client):
    """The run names no node, gives way to others, and has a mark that the undo finds."""
    server.answers["thread"] = {"status": "idle", "metadata": {"graph_id": "g", "assistant_id": 7}}
    assert repair_thread(client, CONFIG, dry_run=True).outcome == "planned"
    assert server.posted("state", "runs/wait") == []
    repair = repair_thread(client, CONFIG)
    assert (repair.outcome, repair.before, repair.after) == ("repaired", "c0", "c2")
    unknown = "No result of tool call f with id c is known; it may or may not have run."
    assert contents(server) == ["", unknown, "well?"]
    [run] = server.posted("runs/wait")
    mark = {"langgraph_patch_before": "c0", "langgraph_patch_written_to": "c1"}
    removal, added = run["command"].pop("update")
    assert run == {
        "assistant_id": 7,
        "command": {},
        "metadata": {"langgraph_patch": "repair", **mark},
        "multitask_strategy": "reject",
        "on_disconnect": "cancel",
    }
    assert removal == ["messages", [{"type": "remove", "id": "h", "content": ""}]]
    assert [message["type"] for message in added[1]] == ["tool", "human"]
    assert undo_repair(client, CONFIG) == "c0"
    assert server.states[-1]["values"]["messages"][1:] == [
        {**server.states[-1]["values"]["messages"][1], "id": "h", "content": "well?"}
    ]
    with pytest.raises(ThreadError, match="no repair wrote its newest checkpoint c3"):
        undo_repair(client, CONFIG)


def test_what_finished_tasks_wrote_is_kept(server, client):
    """It is applied before tasks are dropped; if nothing is missing then, no run is needed."""
    server.states = [state(0, DAMAGED[:1], task(result={"messages": [RESULT]}), ASKS)]
    assert repair_thread(client, CONFIG).outcome == "paused"
    repair = repair_thread(client, CONFIG, on_pause="abandon")
    assert (repair.outcome, contents(server)) == ("repaired", ["", "done"])
    assert [str(change) for change in repair.patch.changes] == ["recovered 'f' 'c'"]
    assert isinstance(repair.patch.changes[0].after, ToolMessage)
    assert [body["as_node"] for body in server.posted("state")] == ["__end__"]
    assert server.posted("runs/wait") == []


def stopped(client: Any, **options: Any) -> tuple[str, str]:
    """The outcome of a repair that is not made, and the reason."""
    repair = repair_thread(client, CONFIG, **options)
    assert repair.skipped
    return repair.outcome, repair.reason or ""


KEPT, LOST = "the state before was restored", "the state before could not be restored"
REFUSED = {"__error__": "no"}


@pytest.mark.parametrize(
    ("answers", "expected", "posts"),
    [
        ({"runs/wait": REFUSED}, ("refused", f"the graph refused it (no); {KEPT}"), 3),
        ({"runs/wait": {}}, ("refused", f"the graph did not keep it; {KEPT}"), 4),
        (
            {"runs/wait": Reply(status=409)},
            ("refused", "refused the request (409 "),
            2,
        ),
        ({"state": Reply("InvalidUpdateError", 400)}, ("refused", "InvalidUpdateError"), 1),
        ({"thread": {"metadata": {}}}, ("refused", "its answer to threads/t is not the exp"), 1),
    ],
)
def test_what_the_server_does_not_keep_is_rolled_back(server, client, answers, expected, posts):
    """A copy of the checkpoint before the run becomes the newest; refusals change nothing."""
    server.answers = answers
    (outcome, text), (found, said) = expected, stopped(client)
    assert (found, text in said) == (outcome, True), said
    assert contents(server) == ["", "well?"]
    assert len(server.posted("state", "runs/wait")) == posts
    if KEPT in text:
        copied = {"values": None, "as_node": "__copy__", "checkpoint": {"checkpoint_id": "c1"}}
        assert server.posted("state")[-1] == copied


def test_a_state_that_cannot_be_restored_is_not_said_to_be(server, client):
    """The copy is read back."""
    server.answers["runs/wait"] = REFUSED
    lost = {True: DAMAGED[:-1], False: DAMAGED}
    server.answers["state"] = lambda body: server.states.append(
        state(len(server.states), lost["checkpoint" in body])
    )
    assert stopped(client) == ("refused", f"the graph refused it (no); {LOST}")


@pytest.mark.parametrize("is_run", [True, False])
def test_a_graph_that_starts_tasks(is_run, server, client):
    """The next run would run them; what finished tasks write may start others, but not for ever."""

    def update(body: Any) -> Any:
        server.on_state(body)
        if (bool(server.runs) or not is_run) and "checkpoint" not in body:
            server.states[-1]["tasks"] = [task()]

    server.answers["state"] = update
    text = f"the graph did not keep it; {KEPT}"
    text = text if is_run else "its graph starts new tasks whenever tasks are dropped"
    assert stopped(client) == ("refused", text)
    assert len(server.posted("state")) == (3 if is_run else 5)


def test_a_message_with_an_invalid_call_behind_the_damage(server, client):
    """It is sent as a call, since the server would drop an invalid one, and is answered."""
    cut = {"name": "f", "args": "{", "id": "d", "error": None, "type": "invalid_tool_call"}
    late = {"type": "ai", "id": "b", "content": "", "invalid_tool_calls": [cut]}
    server.states = [state(0, [*DAMAGED, late, {**DAMAGED[1], "id": "i"}])]
    assert repair_thread(client, CONFIG).outcome == "repaired"
    written = server.states[-1]["values"]["messages"]
    assert [message["type"] for message in written] == ["ai", "tool", "human"] * 2
    assert [message.get("tool_call_id") for message in written[1::3]] == ["c", "d"]


@pytest.mark.parametrize("moves", [1, 3], ids=["before anything is written", "before the run"])
def test_another_write_takes_precedence(server, client, moves):
    """Where the thread moved on during the repair, nothing of the repair is written."""
    reads = count()

    def history(body: Any) -> Any:
        if body["limit"] == 1 and next(reads) == moves:
            server.states.append(state(9, DAMAGED))
        return server.on_history(body)

    server.answers["history"] = history
    outcome, text = stopped(client, recover=False)
    assert (outcome, "that write takes precedence" in text) == ("moved", True)
    assert server.posted("runs/wait") == []


def test_a_thread_of_a_killed_run_or_one_that_is_deleted_meanwhile(server, client):
    """The first has to be continued: its input would be lost. No search is without an end."""
    server.answers["history"] = lambda _: server.states
    assert [report.status for report in scan_threads(client)] == ["damaged"]
    assert len(server.posted("history")) < 10
    server.answers, server.states = {}, [state(0, DAMAGED, source="input")]
    outcome, text = stopped(client)
    assert (outcome, "continue it with invoke(None)" in text) == ("refused", True)
    assert server.posted("state") == []
    states = [state(0, DAMAGED)]
    server.answers["history"] = lambda _: [states.pop()] if states else []
    found = stopped(client, recover=False)
    assert found == ("refused", "Thread 't', or a checkpoint of it, was deleted meanwhile.")


def test_only_a_marked_repair_is_undone(server, client):
    """The newest run must name the checkpoint that the newest one was made from."""
    server.states = [state(0, DAMAGED), state(1, DAMAGED)]
    for mark, parent in (
        (None, "c0"),
        (3, "c0"),
        ({"langgraph_patch": "repair"}, "c0"),
        ({"langgraph_patch_written_to": "c9"}, "c0"),
        ({}, None),
    ):
        made_from = parent and {"thread_id": "t", "checkpoint_id": parent}
        server.states[-1]["parent_checkpoint"] = made_from
        server.runs = [{"metadata": mark}] * (mark is not None)
        with pytest.raises(ThreadError, match="no repair wrote its newest checkpoint"):
            undo_repair(client, CONFIG)
    assert server.posted("state") == []


def test_a_pause_or_a_deleted_checkpoint_is_not_brought_back(server, client):
    """The server does not copy a pause; the error says how to answer it."""
    server.states = [state(0, DAMAGED, ASKS), state(1, DAMAGED), state(2, DAMAGED)]
    answer = "answer it with a run with checkpoint_id='c0'"
    for before, text in (("c0", answer), ("gone", "was deleted meanwhile")):
        mark = {"langgraph_patch_before": before, "langgraph_patch_written_to": "c1"}
        server.runs = [run_at(0) | {"metadata": mark}]
        with pytest.raises(ThreadError, match=text):
            undo_repair(client, CONFIG)
    assert server.posted("state") == []
