"""A real LangGraph Server: its threads, the command line over it, and its streams.

One process serves all tests. Its agent is a bare one, which a damaged history kills.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.pregel.remote import RemoteException, RemoteGraph
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient

from langgraph_patch import validate_messages
from langgraph_patch.errors import StreamError, ThreadError
from langgraph_patch.streaming import Turn, afinal_answers, final_answers, full_stream_checker
from langgraph_patch.threads import repair_thread, scan_threads
from langgraph_patch.threads.server import LangGraphServer
from support.servers import running_server
from support.streams import left

pytestmark = pytest.mark.xdist_group("server")

SECONDS = 60


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running server."""
    with running_server(tmp_path_factory.mktemp("server"), "dev_app") as base:
        yield base


@pytest.fixture
def client(url: str) -> Iterator[SyncLangGraphClient]:
    """A synchronous client."""
    with get_sync_client(url=url) as client:
        yield client


@pytest.fixture
async def aclient(url: str) -> AsyncIterator[LangGraphClient]:
    """An asynchronous client."""
    async with get_client(url=url) as client:
        yield client


# --- threads --------------------------------------------------------------------------------


def says(text: str) -> dict[str, Any]:
    """The input of a run."""
    return {"messages": [{"role": "user", "content": text}]}


@dataclass(frozen=True)
class Talk:
    """One thread of the server."""

    client: LangGraphClient
    id: str

    @classmethod
    async def begin(cls, client: LangGraphClient, *texts: str) -> Talk:
        """A new thread, with a run for each text."""
        talk = cls(client, (await client.threads.create())["thread_id"])
        for text in texts:
            await talk.run(text)
        return talk

    @property
    def config(self) -> dict[str, Any]:
        """The config of the thread."""
        return {"configurable": {"thread_id": self.id}}

    async def start(self, text: str | None = None, **options: Any) -> str:
        """Start a run; its id."""
        options = {"input": says(text) if text else None, **options}
        return (await self.client.runs.create(self.id, "bare", **options))["run_id"]

    async def run(self, text: str | None = None, **options: Any) -> str:
        """A run from begin to end; its status."""
        run_id = await self.start(text, **options)
        async with asyncio.timeout(SECONDS):
            await self.client.runs.join(self.id, run_id)
        return (await self.client.runs.get(self.id, run_id))["status"]

    async def start_until_mailed(self) -> str:
        """Start a run of two tools, and return when one is finished and one is not."""
        run_id = await self.start("report")
        async with asyncio.timeout(SECONDS):
            while True:
                tasks = (await self.state())["tasks"]
                if sorted(bool(task["result"]) for task in tasks) == [False, True]:
                    return run_id
                await asyncio.sleep(0.05)

    async def state(self) -> Any:
        """The state."""
        return await self.client.threads.get_state(self.id)

    async def messages(self) -> list[Any]:
        """The messages of the newest checkpoint, without what its tasks wrote."""
        found = await self.client.threads.get_history(self.id, limit=1)
        return found[0]["values"]["messages"] if found else []

    async def contents(self) -> list[str]:
        """Their texts."""
        return [message["content"] for message in await self.messages()]

    async def report(self, client: SyncLangGraphClient) -> Any:
        """What a scan says of it, which a service runs in a thread."""
        scan = scan_threads(client, thread_ids=[self.id])
        [report] = await asyncio.to_thread(list, scan)
        return report


async def abandoned(talk: Talk) -> None:
    """A human was asked, and wrote something else, twice."""
    await talk.run("wire")
    assert [await talk.run("never mind"), await talk.run("hello?")] == ["error", "error"]


async def cancelled(talk: Talk) -> None:
    """A run was cancelled while a tool was at work."""
    await talk.client.runs.cancel(talk.id, await talk.start_until_mailed(), wait=True)


async def failed(talk: Talk) -> None:
    """A tool raised."""
    assert await talk.run("boom") == "error"


CALL = {"name": "send_email", "args": {"to": "bob"}, "id": "c1"}
IMPORTED = [
    {"type": "ai", "id": "a1", "content": "", "tool_calls": [CALL]},
    {"type": "human", "id": "h2", "content": "and then?"},
    {"type": "ai", "id": "a2", "content": "nothing", "response_metadata": {"model_name": "m"}},
]


async def imported(talk: Talk) -> None:
    """A history was written over JSON; an AI message follows the damage."""
    await talk.run("hi")
    await talk.client.threads.update_state(talk.id, {"messages": IMPORTED}, as_node="model")


async def paused(talk: Talk) -> None:
    """A human is asked."""
    assert await talk.run("wire") == "success"


async def at_a_breakpoint(talk: Talk) -> None:
    """A run stopped before the tools, because the caller asked for it."""
    assert await talk.run("wire", interrupt_before=["tools"]) == "success"


async def running(talk: Talk) -> None:
    """A tool is at work."""
    await talk.start_until_mailed()


async def answered(talk: Talk) -> None:
    """A human was asked and answered."""
    await paused(talk)
    assert await talk.run(command={"resume": "yes"}) == "success"


BREAKS: dict[Any, set[str]] = {
    abandoned: {"recovered", "unknown"},
    cancelled: {"recovered", "unknown"},
    failed: {"recovered", "unknown"},
    imported: {"unknown"},
}
"""How a thread breaks, and what a scan says of the calls."""

OTHERS = {paused: "paused", at_a_breakpoint: "paused", running: "healthy", answered: "healthy"}
"""Threads that are not damaged, and what a scan says."""


async def test_threads_of_a_server_are_read_and_not_written(client, aclient, cli, url):
    """Broken threads, and no others, are found with what the record says; a repair is an error."""
    ways = [*BREAKS, *OTHERS]
    talks = dict(zip(ways, [await Talk.begin(aclient) for _ in ways], strict=True))
    await asyncio.gather(*(way(talk) for way, talk in talks.items()))
    before = {way: await talk.messages() for way, talk in talks.items()}
    reports = {report.thread_id: report for report in await asyncio.to_thread(scanned, client)}
    found = {way: reports[talk.id].status for way, talk in talks.items()}
    assert found == {way: OTHERS.get(way, "damaged") for way in ways}
    patches = {way: reports[talks[way].id].patch for way in BREAKS}
    causes = {way: {c.cause or c.kind for c in patch.changes} for way, patch in patches.items()}
    assert causes == BREAKS
    for patch in patches.values():
        assert validate_messages(patch.messages) == []
    texts = [message.text for message in patches[abandoned].messages]
    assert "sent to bob" in texts
    with pytest.raises(ThreadError, match="Deploy the graph with with_patching"):
        repair_thread(client, talks[failed].config)  # type: ignore[arg-type]
    for command in (["repair", "--apply", "--yes"], ["repair"], ["undo"]):
        code, out, err = cli(command[0], url, "--all", *command[1:])
        assert (code, out, "Deploy the graph with with_patching" in err) == (2, "", True)
    talks.pop(running)
    before.pop(running)
    assert {way: await talk.messages() for way, talk in talks.items()} == before


def scanned(client: SyncLangGraphClient) -> list[Any]:
    """All reports."""
    return [*scan_threads(client)]


async def test_a_pause_in_a_subgraph(client, aclient):
    """The thread is paused; the checkpoints of the agent inside are read by its namespace."""
    talk, server = await Talk.begin(aclient), LangGraphServer(client)
    await aclient.runs.wait(talk.id, "nested", input=says("wire"))
    report = await talk.report(client)
    assert (report.status, report.asks) == ("paused", ("wire 3?",))
    [task] = (await talk.state())["tasks"]
    namespace = task["checkpoint"]["checkpoint_ns"]
    config: Any = {"configurable": {"thread_id": talk.id, "checkpoint_ns": namespace}}
    inside: Any = await asyncio.to_thread(server.get_tuple, config)
    results = [value for _, channel, value in inside.pending_writes if channel == "messages"]
    assert [message.content for [message] in results] == ["sent to bob"]
    *_, first = await asyncio.to_thread(list, server.list(config))
    assert first.metadata["step"] == -1
    older = server.list(config, before=first.config, limit=2)
    assert await asyncio.to_thread(list, older) == []
    # The next message abandons the agent inside; its call never reached the history.
    await aclient.runs.wait(talk.id, "nested", input=says("never mind"))
    assert (await talk.report(client)).status == "healthy"


async def test_the_command_line_over_a_server(aclient, client, cli, url):
    """The commands that read, with the URL of a server."""
    said = {"damaged": ["wire", "never mind"], "paused": ["wire"], "healthy": ["hi"]}
    ids = [(await Talk.begin(aclient, *texts)).id for texts in said.values()]
    broken, waiting, _ = ids

    def found(*arguments: Any) -> tuple[int, set[str]]:
        code, out, _ = cli("scan", url, *arguments)
        return code, {line.split("\t")[0] for line in out.splitlines()[1:]}

    def shown() -> list[Any]:
        lines = [json.loads(cli("show", url, each, "--json")[1]) for each in ids]
        return [(line["status"], line["messages"]) for line in lines]

    assert found(*ids) == (1, {broken, waiting})
    assert found(*ids, "--status", "damaged", "--since", "1h") == (1, {broken})
    assert [status for status, _ in shown()] == list(said)
    code, out, _ = cli("scan", url, broken, "00000000-0000-0000-0000-000000000000")
    assert (code, "Thread with ID 00000000-" in out) == (3, True)
    # A graph that is gone, and ids that the server refuses in its own ways.
    gone = Talk(aclient, (await aclient.threads.create(graph_id="gone"))["thread_id"])
    assert "Graph 'gone' not found" in (await gone.report(client)).reason
    assert [each.status for each in scan_threads(client, thread_ids=["nope"])] == ["unreadable"]


# --- streams --------------------------------------------------------------------------------

SUNNY = ["Sunny today."]
"""The answers that a client must have in the end."""

SDK: dict[str, dict[str, Any]] = {
    "SDK": {"stream_mode": "messages-tuple"},
    "SDK, a list": {"stream_mode": ["updates", "messages-tuple", "values"]},
    "SDK, subgraphs": {"stream_mode": ["messages-tuple", "updates"], "stream_subgraphs": True},
    "SDK, v2": {"stream_mode": ["messages-tuple", "values"], "version": "v2"},
}
REMOTE: dict[str, dict[str, Any]] = {
    "RemoteGraph": {"stream_mode": "messages"},
    "RemoteGraph, subgraphs": {"stream_mode": ["messages"], "subgraphs": True},
    "RemoteGraph, v2": {"stream_mode": ["messages"], "version": "v2"},
}


def live(turn: Turn) -> bool | None:
    """A checker of an application: whatever can be shown is shown at once."""
    if turn.called:
        return True
    return False if turn.wrote or turn.ended else None


def parts_of(client: Any, graph: str, shape: str) -> Any:
    """The stream of a run on the server."""
    if shape in SDK:
        return client.runs.stream(None, graph, input=says("How is the weather?"), **SDK[shape])
    if isinstance(client, LangGraphClient):
        return RemoteGraph(graph, client=client).astream(says("?"), **REMOTE[shape])
    return RemoteGraph(graph, sync_client=client).stream(says("?"), **REMOTE[shape])


@pytest.mark.parametrize("shape", [*SDK, *REMOTE])
async def test_a_client_of_the_server_has_the_answers_in_the_end(aclient, shape):
    """Each answer once, and nothing else, with both kinds of checkers."""

    async def run(graph: str, checker: Any) -> list[str]:
        answers = afinal_answers(parts_of(aclient, graph, shape), checker=checker)
        return left([pair async for pair in answers])

    graphs = {"agent": full_stream_checker, "subgraph": live, "retry": live}
    assert await asyncio.gather(*(run(*each) for each in graphs.items())) == [SUNNY] * 3


async def test_a_run_that_fails_on_the_server(aclient):
    """What the model had written comes first; then the server's report is an error."""
    for shape in ("SDK", "SDK, v2", "RemoteGraph", "RemoteGraph, v2"):
        answers = afinal_answers(parts_of(aclient, "failing", shape), checker=full_stream_checker)
        token, _ = await anext(answers)
        assert token.text == "So"
        with pytest.raises((StreamError, RemoteException), match="ConnectionError"):
            await anext(answers)


def test_a_sync_client_has_other_parts_on_request(client):
    """The answers, and the parts of other modes as the SDK yields them."""
    answers = final_answers(parts_of(client, "agent", "RemoteGraph, v2"), checker=live)
    assert left(list(answers)) == SUNNY
    parts = parts_of(client, "agent", "SDK, a list")
    shown = list(final_answers(parts, checker=full_stream_checker, other_modes=True))
    events = {item.event for item in shown if hasattr(item, "event")}
    assert {"metadata", "updates", "values"} <= events
    assert left([item for item in shown if not hasattr(item, "event")]) == SUNNY
