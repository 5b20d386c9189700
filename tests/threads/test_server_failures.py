"""What a scan of a LangGraph Server does when requests fail: a scripted server, the real client."""

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
from langgraph_patch.threads import LangGraphServer, ascan_threads, scan_threads, server_client

Answer = Callable[[httpx.Request], httpx.Response]


def thread_of(thread_id: str) -> dict[str, Any]:
    """What a list of threads has of one."""
    return {"thread_id": thread_id, "metadata": {"graph_id": "agent"}, "status": "idle"}


def client_of(answer: Answer) -> SyncLangGraphClient:
    """A client of a server that answers so."""
    transport = httpx.MockTransport(answer)
    return SyncLangGraphClient(httpx.Client(transport=transport, base_url="http://server"))


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


STATES = [state_of(number, asks=number in {1, 3}) for number in range(5)]
"""A pause that the next message ended, and a later pause that was answered."""

RUNS = [
    {"run_id": "r1", "created_at": "2026-01-01T00:00:01.5+00:00", "kwargs": {"input": {}}},
    {
        "run_id": "r2",
        "created_at": "2026-01-01T00:00:03.5+00:00",
        "kwargs": {"command": {"resume": "yes"}},
    },
]


def with_pauses(request: httpx.Request) -> httpx.Response:
    """The server of that thread."""
    path, body = request.url.path, json.loads(request.content or b"{}")
    if path.endswith("/runs"):
        return httpx.Response(200, json=[] if int(request.url.params.get("offset", 0)) else RUNS)
    if path.endswith("/history"):
        end = body.get("before", {"configurable": {"checkpoint_id": "d"}})
        found = [
            state
            for state in reversed(STATES)
            if state["checkpoint"]["checkpoint_id"] < end["configurable"]["checkpoint_id"]
            and (body.get("metadata") or state["metadata"]).items() <= state["metadata"].items()
        ]
        return httpx.Response(200, json=found[: body["limit"]])
    [named] = [
        s for s in STATES if s["checkpoint"]["checkpoint_id"] == body["checkpoint"]["checkpoint_id"]
    ]
    return httpx.Response(200, json=named)


def is_answered(saved: Any) -> bool:
    """Whether a checkpoint has an answer among its pending writes."""
    return any(channel == RESUME for _, channel, _ in saved.pending_writes)


def test_an_answer_belongs_to_the_pause_before_it() -> None:
    """And to no earlier one, whichever checkpoints are read with it."""
    server = LangGraphServer(client_of(with_pauses))
    config: Any = {"configurable": {"thread_id": "t000", "checkpoint_ns": ""}}
    found = {saved.checkpoint["id"]: is_answered(saved) for saved in server.list(config)}
    expected = {"c0": False, "c1": False, "c2": False, "c3": True, "c4": False}
    assert found == expected
    for name, answered in expected.items():
        exact: Any = {"configurable": {**config["configurable"], "checkpoint_id": name}}
        saved = server.get_tuple(exact)
        assert saved
        assert is_answered(saved) == answered
        for first in list(server.list(config, before=exact, limit=1)):
            assert is_answered(first) == expected[first.checkpoint["id"]]


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

    with pytest.raises(ThreadError, match=r"answer to threads.search is .*URL of a Lang") as raised:
        scanned(client_of(answer))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "state",
    [
        3,
        [],
        {"values": 3},
        {"checkpoint": 3},
        {"checkpoint": {"checkpoint_id": "c"}, "created_at": "yesterday"},
        {"checkpoint": {"checkpoint_id": "c"}, "created_at": "2026-01-01", "tasks": [3]},
    ],
)
def test_an_odd_thread_does_not_stop_a_scan(state: Any) -> None:
    """It is unreadable, with a reason in words."""
    [report] = scan_threads(listing(lambda _: httpx.Response(200, json=[state])))
    assert report.status == "unreadable"
    assert "its answer to threads.get_history is not the expected one" in (report.reason or "")


def test_a_small_answer_that_unpacks_to_a_large_one_is_not_unpacked() -> None:
    """No packed answer is asked for, and none is read."""
    packed = gzip.compress(b" " * 10_000_000)
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["accept-encoding"])
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Body([packed]))

    [report] = scan_threads(listing(answer))
    assert (report.status, set(asked)) == ("unreadable", {"identity"})
    assert "an answer is compressed" in (report.reason or "")


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
    transport = httpx.MockTransport(lambda request: listed(request, ["t"]) or answer(request))
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


def test_requests_of_others_are_as_before() -> None:
    """The client of an application is bounded only while this package asks."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=[])

    client = client_of(answer)
    LangGraphServer(client)
    LangGraphServer(client)
    http: Any = client.http.client
    assert [len(hooks) for hooks in http.event_hooks.values()] == [1, 1]
    before = httpx.Client().headers["accept-encoding"]
    client.threads.search()
    assert seen[0].headers["accept-encoding"] == before
    assert seen[0].extensions["timeout"]["read"] == 5.0


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
