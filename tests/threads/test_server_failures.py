"""Threads of a LangGraph Server whose requests fail: a scripted server, the real client."""

from __future__ import annotations

import gzip
import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from langgraph.checkpoint.serde.types import RESUME
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient

from langgraph_patch.errors import ThreadError
from langgraph_patch.threads import (
    LangGraphServer,
    ThreadRepair,
    ascan_threads,
    repair_thread,
    scan_threads,
    server_client,
    undo_repair,
)

Answer = Callable[[httpx.Request], httpx.Response]


def thread_of(thread_id: str) -> dict[str, Any]:
    """What a list of threads has of one."""
    return {"thread_id": thread_id, "metadata": {"graph_id": "agent"}, "status": "idle"}


def client_of(answer: Answer) -> SyncLangGraphClient:
    """A client of a server that answers so."""
    transport = httpx.MockTransport(lambda request: streamed(answer(request)))
    return SyncLangGraphClient(httpx.Client(transport=transport, base_url="http://server"))


def streamed(response: httpx.Response) -> httpx.Response:
    """An answer that is not read yet, as one that comes from a network."""
    if not response.is_stream_consumed:
        return response
    body = Body([response.content])
    return httpx.Response(response.status_code, headers=response.headers, stream=body)


def listing(answer: Answer, threads: int = 1) -> SyncLangGraphClient:
    """A client of a server that lists threads, and answers so to what follows."""
    ids = [f"t{number:03}" for number in range(threads)]
    return client_of(lambda request: listed(request, ids) or answer(request))


def listed(
    request: httpx.Request, ids: list[str], count: int | None = None
) -> httpx.Response | None:
    """The answer to a request for a list of threads; None for another request."""
    if request.url.path.endswith("/count"):
        return httpx.Response(200, json=len(ids) if count is None else count)
    if request.url.path.endswith("/search"):
        body = json.loads(request.content)
        page = ids[body["offset"] :][: body["limit"]]
        return httpx.Response(200, json=[thread_of(each) for each in page])
    return None


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited for, without waiting."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "check LANGGRAPH_API_KEY"),
        (429, "it refuses more requests now"),
        (502, "the proxy before it cannot reach it"),
        (503, "it is not available now"),
    ],
)
def test_a_server_that_fails_ends_a_scan(status: int, reason: str) -> None:
    """Otherwise each of its threads would be called unreadable, and a repair would go on."""
    client = listing(lambda _: httpx.Response(status, json={"detail": "no"}))
    with pytest.raises(ThreadError, match=rf"^LangGraph Server: {reason} \(.*\)\.$"):
        list(scan_threads(client))


@pytest.mark.parametrize("status", [403, 500, 504])
def test_a_thread_that_the_server_cannot_read_does_not_end_a_scan(status: int) -> None:
    """It may be too large, or of another user: it is reported with the reason."""
    [report] = scan_threads(listing(lambda _: httpx.Response(status, json={"detail": "no"})))
    expected: dict[str, Any] = {"thread_id": "t000", "status": "unreadable"}
    assert expected.items() <= report.to_dict().items()
    assert "LangGraph Server refused the request" in (report.reason or "")


@pytest.mark.parametrize(
    ("status", "headers", "waited"),
    [
        (429, {"retry-after": "7"}, [7.0, 7.0]),
        (503, {"retry-after": "86400"}, [30.0, 30.0]),
        (503, {"retry-after": "Sun, 22 Nov 2026 10:00:00 GMT"}, [1.0, 2.0]),
        (429, {}, [1.0, 2.0]),
    ],
)
def test_a_server_that_refuses_for_a_while_is_asked_again(
    status: int, headers: dict[str, str], waited: list[float], pauses: list[float]
) -> None:
    """After the seconds that it names, but not after a day."""
    refusals = [httpx.Response(status, headers=headers) for _ in range(2)]
    client = client_of(
        lambda request: refusals.pop() if refusals else (listed(request, []) or httpx.Response(500))
    )
    assert list(scan_threads(client)) == []
    assert pauses == waited


# --- pages -------------------------------------------------------------------------------


IDS = [f"t{number:03}" for number in range(250)]


def scanned(client: SyncLangGraphClient) -> list[str]:
    """The ids of the threads that a scan reports on."""
    return [report.thread_id for report in scan_threads(client)]


def without_history(_: httpx.Request) -> httpx.Response:
    """A thread that never ran."""
    return httpx.Response(200, json={})


def test_every_page_is_read() -> None:
    """250 threads are more than two pages."""
    assert scanned(listing(without_history, 250)) == IDS


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param(lambda _: IDS[:100], id="repeats"),
        pytest.param(lambda offset: IDS[offset:100], id="ends early"),
        pytest.param(lambda _: [], id="has none"),
    ],
)
def test_pages_that_do_not_hold_all_threads_are_an_error(
    pages: Callable[[int], list[str]],
) -> None:
    """The scan ends, and does not say that all is well."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/search"):
            page = pages(json.loads(request.content)["offset"])
            return httpx.Response(200, json=[thread_of(each) for each in page])
        return listed(request, IDS) or without_history(request)

    with pytest.raises(ThreadError, match=r"lists \d+ of 250 threads, so some would be left out"):
        scanned(client_of(answer))


def test_a_server_that_ignores_the_order_is_read_whole() -> None:
    """The threads are counted, not compared."""
    ids = IDS[::-1]
    client = client_of(lambda request: listed(request, ids) or without_history(request))
    assert scanned(client) == IDS


def test_a_server_that_lists_without_end_is_left() -> None:
    """Each page has new threads."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/search"):
            asked.append(request)
            ids = [str(uuid.uuid4()) for _ in range(99)]
            return httpx.Response(200, json=[thread_of(each) for each in ["t", *ids]])
        return httpx.Response(200, json=3)

    asked: list[httpx.Request] = []
    with pytest.raises(ThreadError, match="lists"):
        scanned(client_of(answer))
    assert len(asked) < 1000


def test_threads_that_are_deleted_meanwhile_hide_no_others() -> None:
    """The pages move, and the page before is read again."""
    ids = list(IDS)

    def answer(request: httpx.Request) -> httpx.Response:
        found = listed(request, ids) or without_history(request)
        if request.url.path.endswith("/search") and len(ids) == len(IDS):
            del ids[:150]
        return found

    assert set(scanned(client_of(answer))) >= set(IDS[150:])


# --- pauses ------------------------------------------------------------------------------


def state_of(number: int, *, asks: bool) -> dict[str, Any]:
    """The state of a checkpoint; its tasks asked a human something, or there are none."""
    task = {"id": "t", "name": "tools", "path": ["__pregel_pull", "tools"], "result": None}
    interrupts = [{"value": "sure?", "id": "i"}]
    return {
        "values": {},
        "tasks": [{**task, "error": None, "interrupts": interrupts}] if asks else [],
        "checkpoint": {"thread_id": "t000", "checkpoint_id": f"c{number}"},
        "parent_checkpoint": {"thread_id": "t000", "checkpoint_id": f"c{number - 1}"},
        "metadata": {"step": number},
        "created_at": f"2026-01-01T00:00:0{number}+00:00",
    }


STATES = [state_of(number, asks=number in {1, 3, 5}) for number in range(6)]
"""A pause that the next message ended, one that was answered, and one that waits."""

RUNS: list[dict[str, Any]] = [
    {"created_at": "2026-01-01T00:00:03.5+00:00", "kwargs": {"command": {"resume": "yes"}}},
    {"created_at": "2026-01-01T00:00:01.5+00:00", "kwargs": {"input": {}, "command": None}},
]
"""The newest first."""


def with_pauses(request: httpx.Request) -> httpx.Response:
    """The server of that thread."""
    body = json.loads(request.content or b"{}")
    if request.url.path.endswith("/runs"):
        assert request.url.params["limit"] == "100"
        return httpx.Response(200, json=RUNS)
    if request.url.path.endswith("/history"):
        return httpx.Response(200, json=STATES[::-1][: body["limit"]])
    [named] = [
        s for s in STATES if s["checkpoint"]["checkpoint_id"] == body["checkpoint"]["checkpoint_id"]
    ]
    return httpx.Response(200, json=named)


def is_answered(saved: Any) -> bool:
    """Whether a checkpoint has an answer among its pending writes."""
    return any(channel == RESUME for _, channel, _ in saved.pending_writes)


CONFIG: Any = {"configurable": {"thread_id": "t000", "checkpoint_ns": ""}}


def test_an_answer_counts_for_every_pause_before_it() -> None:
    """And for no later one, whichever checkpoints are read with it."""
    server = LangGraphServer(client_of(with_pauses))
    found = {saved.checkpoint["id"]: is_answered(saved) for saved in server.list(CONFIG)}
    expected = {"c0": False, "c1": True, "c2": False, "c3": True, "c4": False, "c5": False}
    assert found == expected
    for name, answered in expected.items():
        exact: Any = {"configurable": {**CONFIG["configurable"], "checkpoint_id": name}}
        saved = server.get_tuple(exact)
        assert saved
        assert is_answered(saved) == answered


def test_a_pause_before_runs_that_are_not_shown_reads_as_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of them may have been an answer, and a call is not said to be waiting then."""
    other = [{**run, "kwargs": {"input": {}}} for run in RUNS]
    monkeypatch.setattr(f"{__name__}.RUNS", other * 50)
    server = LangGraphServer(client_of(with_pauses))
    found = {saved.checkpoint["id"]: is_answered(saved) for saved in server.list(CONFIG)}
    assert (found["c1"], found["c3"], found["c5"]) == (True, False, False)


# --- answers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"<html>Please log in</html>",
        b"null",
        b"3",
        b'["t1"]',
        b'[{"id": 3}]',
        b'{"detail": "no"}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_langgraph_server_is_named(content: bytes) -> None:
    """A login page, nothing, and lists of other things: one line says which answer is wrong."""

    def answer(request: httpx.Request) -> httpx.Response:
        is_count = request.url.path.endswith("/count")
        return httpx.Response(200, content=b"1" if is_count else content)

    with pytest.raises(ThreadError, match=r"answer to threads/search is .*URL of a Lang") as raised:
        scanned(client_of(answer))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "state",
    [
        3,
        [],
        {"values": 3},
        {"checkpoint": 3},
        {"checkpoint": {"checkpoint_id": "c"}, "created_at": "2026-01-01"},
        {"checkpoint": {"checkpoint_id": "c", "thread_id": "t"}},
        {"checkpoint": {"checkpoint_id": "c"}, "created_at": "2026-01-01", "tasks": [3]},
    ],
)
def test_an_odd_thread_does_not_stop_a_scan(state: Any) -> None:
    """It is unreadable, with a reason in words."""
    [report] = scan_threads(listing(lambda _: httpx.Response(200, json=[state])))
    assert report.status == "unreadable"
    assert "its answer to threads/t000/history is not the expected one" in (report.reason or "")


def test_a_small_answer_that_unpacks_to_a_large_one_is_not_unpacked() -> None:
    """No packed answer is asked for, and none is read."""
    packed = gzip.compress(b" " * 10_000_000)
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["accept-encoding"])
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Body([packed]))

    [report] = scan_threads(listing(answer))
    assert (report.status, set(asked)) == ("unreadable", {"identity"})
    assert "is not the expected one" in (report.reason or "")


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that comes in pieces."""

    def __init__(self, pieces: Any) -> None:
        self.pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces

    async def __aiter__(self) -> Any:
        for piece in self.pieces:
            yield piece


def endless() -> Iterator[bytes]:
    """More than any memory has."""
    while True:
        yield b" " * 2**20


async def test_an_answer_without_an_end_is_not_read() -> None:
    """Of one thread, so that the others are read; synchronously and asynchronously."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=Body(endless()))

    [report] = scan_threads(listing(answer))
    assert report.reason == "LangGraph Server: an answer is larger than 64 MiB, so it was not read."
    transport = httpx.MockTransport(
        lambda request: streamed(listed(request, ["t"]) or answer(request))
    )
    client = LangGraphClient(httpx.AsyncClient(transport=transport, base_url="http://server"))
    assert [r.status async for r in ascan_threads(client)] == ["unreadable"]


def test_an_answer_that_drips_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the scan: every other answer would drip too."""

    def drops() -> Iterator[bytes]:
        while True:
            clock[0] += 7.0
            yield b" "

    clock = [0.0]
    monkeypatch.setattr(server_client.time, "monotonic", lambda: clock[0])
    client = listing(lambda _: httpx.Response(200, stream=Body(drops())))
    with pytest.raises(ThreadError, match="an answer takes too long"):
        scanned(client)
    assert clock[0] < 70


def test_a_server_that_never_answers_is_not_waited_for() -> None:
    """The client waits for an answer no longer than a minute."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.extensions["timeout"]["read"] <= 60
        raise httpx.ReadTimeout("timed out", request=request)

    with pytest.raises(ThreadError, match=r"is it running, and is the URL right\?"):
        scanned(client_of(answer))


def test_no_error_repeats_the_url() -> None:
    """It may hold a password."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"cannot reach {request.url}", request=request)

    transport = httpx.MockTransport(answer)
    http = httpx.Client(transport=transport, base_url="http://bob:secret@server")
    with pytest.raises(ThreadError) as raised:
        scanned(SyncLangGraphClient(http))
    assert "secret" not in str(raised.value)
    assert "cannot reach (its URL)" in str(raised.value)


# --- repairs -----------------------------------------------------------------------------


DAMAGED = [
    {"type": "ai", "id": "a", "content": "", "tool_calls": [{"name": "f", "args": {}, "id": "c"}]},
    {"type": "human", "id": "h", "content": "well?"},
]


class Scripted:
    """A server with one damaged thread. `answers` replaces its answers, by the end of the path."""

    def __init__(self, **answers: httpx.Response) -> None:
        self.answers = answers
        self.posted: list[dict[str, Any]] = []
        self.states = [self.state(DAMAGED)]

    def state(self, messages: Any) -> dict[str, Any]:
        """A state without tasks; each has a new id."""
        number = len(self.states) if hasattr(self, "states") else 0
        return {
            "values": {"messages": messages},
            "tasks": [],
            "checkpoint": {"thread_id": "t", "checkpoint_id": f"c{number}"},
            "metadata": {"step": number, "source": "update"},
            "created_at": "2026-01-01T00:00:00+00:00",
        }

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content or b"{}")
        path = request.url.path.removeprefix("/threads/t").strip("/").replace("/", "_")
        if path in {"state", "runs_wait"}:
            self.posted.append(body)
        if path in self.answers:
            return self.answers[path]
        if path == "state":
            wanted = body.get("checkpoint", self.states[-1]["checkpoint"])["checkpoint_id"]
            [old] = [s for s in self.states if s["checkpoint"]["checkpoint_id"] == wanted]
            self.states.append(self.state(old["values"]["messages"]))
        if path == "history":
            return httpx.Response(200, json=self.states[-1:])
        if path == "runs":
            return httpx.Response(200, json=[])
        return httpx.Response(200, json={"status": "idle", "metadata": {"graph_id": "agent"}})

    def repair(self) -> ThreadRepair:
        """The outcome of a repair."""
        client, config = client_of(self), {"configurable": {"thread_id": "t"}}
        return repair_thread(client, config, recover=False)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"__error__": "no"}, "the graph refused it (no); the state before was restored"),
        ({}, "the graph did not keep it; the state before was restored"),
    ],
)
def test_what_the_server_does_not_keep_is_rolled_back(answer: Any, reason: str) -> None:
    """A copy of the checkpoint before the run becomes the newest, and is read back."""
    server = Scripted(runs_wait=httpx.Response(200, json=answer))
    repair = server.repair()
    assert (repair.outcome, repair.reason) == ("refused", reason)
    copied = {"checkpoint_id": "c1"}
    assert server.posted[-1] == {"values": None, "as_node": "__copy__", "checkpoint": copied}
    assert server.states[-1]["values"]["messages"] == DAMAGED


def test_a_run_that_begins_meanwhile_goes_first() -> None:
    """The server refuses the run of the repair, and nothing was changed."""
    server = Scripted(runs_wait=httpx.Response(409, json={"detail": "busy"}))
    assert server.repair().outcome == "busy"
    assert server.posted[-1]["multitask_strategy"] == "reject"


def test_a_graph_that_refuses_to_end_a_superstep_is_left_as_it_is() -> None:
    """Such as after two writes to one key without a reducer: the outcome has the reason."""
    server = Scripted(state=httpx.Response(400, json={"detail": "InvalidUpdateError"}))
    repair = server.repair()
    assert (repair.outcome, "InvalidUpdateError" in (repair.reason or "")) == ("refused", True)
    assert len(server.posted) == 1


def test_a_server_that_fails_during_a_repair_is_an_error() -> None:
    """No outcome is claimed."""
    server = Scripted(runs_wait=httpx.Response(502))
    with pytest.raises(ThreadError, match="the proxy before it cannot reach it"):
        server.repair()


@pytest.mark.parametrize("mark", [None, 3, {}, {"langgraph_patch": "repair"}])
def test_only_a_marked_repair_is_undone(mark: Any) -> None:
    """The newest run must name the checkpoint that the newest one was made from."""
    server = Scripted(runs=httpx.Response(200, json=[{"metadata": mark}]))
    server.states[-1]["parent_checkpoint"] = {"thread_id": "t", "checkpoint_id": "b"}
    with pytest.raises(ThreadError, match="no repair wrote its newest checkpoint"):
        undo_repair(client_of(server), {"configurable": {"thread_id": "t"}})
    assert server.posted == []
