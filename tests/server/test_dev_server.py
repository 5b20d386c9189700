"""A real LangGraph Server: its threads, the command line over it, its streams, patched graphs.

One process serves all tests. The agent of most is a bare one, which a damaged history kills.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import convert_to_messages
from langgraph.pregel.remote import RemoteException, RemoteGraph
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient
from langgraph_sdk.errors import ConflictError
from langgraph_sdk.schema import MultitaskStrategy

from kit import lines
from langgraph_patch import validate_messages
from langgraph_patch.errors import PatchError, ThreadError
from langgraph_patch.streaming import afinal_answers, full_stream_checker
from langgraph_patch.threads import repair_thread, scan_threads
from langgraph_patch.threads.stores.server import LangGraphServer
from support.paths import run_page
from support.placeholder_texts import CANCELLED, WAITED
from support.servers import running_server
from support.stored_threads import thread
from support.streams import left, live

pytestmark = pytest.mark.xdist_group("server")

SECONDS = 60


@pytest.fixture
def client(dev_server: str) -> Iterator[SyncLangGraphClient]:
    """A synchronous client."""
    with get_sync_client(url=dev_server) as client:
        yield client


@pytest.fixture
async def aclient(dev_server: str) -> AsyncIterator[LangGraphClient]:
    """An asynchronous client."""
    async with get_client(url=dev_server) as client:
        yield client


# --- threads --------------------------------------------------------------------------------


def says(text: str) -> dict[str, Any]:
    """The input of a run."""
    return {"messages": [{"role": "user", "content": text}]}


@dataclass(frozen=True)
class Talk:
    """One thread of the server, and the graph that runs on it."""

    client: LangGraphClient
    id: str
    graph: str

    @classmethod
    async def begin(cls, client: LangGraphClient, *texts: str, graph: str = "clerk") -> Talk:
        """A new thread, with a run for each text."""
        talk = cls(client, (await client.threads.create())["thread_id"], graph)
        for text in texts:
            await talk.run(text)
        return talk

    async def start(self, text: str | None = None, **options: Any) -> str:
        """Start a run; its id."""
        options = {"input": says(text) if text else None, **options}
        return (await self.client.runs.create(self.id, self.graph, **options))["run_id"]

    async def end(self, run_id: str) -> str:
        """Wait for a run to end; its status."""
        async with asyncio.timeout(SECONDS):
            await self.client.runs.join(self.id, run_id)
        return (await self.client.runs.get(self.id, run_id))["status"]

    async def run(self, text: str | None = None, **options: Any) -> str:
        """A run from begin to end; its status."""
        return await self.end(await self.start(text, **options))

    async def start_until_mailed(self, text: str = "report") -> str:
        """Start a run of two tools, and return when one is finished and one is not."""
        run_id = await self.start(text)
        async with asyncio.timeout(SECONDS):
            while True:
                tasks = (await self.state())["tasks"]
                if sorted(bool(task["result"]) for task in tasks) == [False, True]:
                    return run_id
                await asyncio.sleep(0.05)

    async def state(self) -> Any:
        """The state."""
        return await self.client.threads.get_state(self.id)

    async def lines(self) -> list[str]:
        """A line for each stored message."""
        return lines(convert_to_messages((await self.state())["values"]["messages"]))

    async def report(self, client: SyncLangGraphClient) -> Any:
        """What a scan says of it, which a service runs in a thread."""
        scan = scan_threads(client, thread_ids=[self.id])
        [report] = await asyncio.to_thread(list, scan)
        return report


async def abandoned(talk: Talk) -> str:
    """A human was asked, and wrote something else."""
    await talk.run("wire")
    return await talk.run("never mind")


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


async def test_threads_of_a_server_are_read_and_not_written(client, aclient, cli, dev_server):
    """Broken threads, and no others, are found with what the record says; a repair is an error."""
    ways = [*BREAKS, *OTHERS]
    talks = dict(zip(ways, [await Talk.begin(aclient) for _ in ways], strict=True))
    await asyncio.gather(*(way(talk) for way, talk in talks.items()))
    before = {way: await talk.lines() for way, talk in talks.items()}
    scanned = await asyncio.to_thread(list, scan_threads(client))
    reports = {report.thread_id: report for report in scanned}
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
        repair_thread(client, thread(talks[failed].id))  # type: ignore[arg-type]
    for command in (["repair", "--apply", "--yes"], ["repair"], ["undo"]):
        code, out, err = cli(command[0], dev_server, "--all", *command[1:])
        assert (code, out, "Deploy the graph with with_patching" in err) == (2, "", True)
    talks.pop(running)
    before.pop(running)
    assert {way: await talk.lines() for way, talk in talks.items()} == before


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


async def test_the_command_line_over_a_server(aclient, client, cli, dev_server):
    """The commands that read, with the URL of a server."""
    said = {"damaged": ["wire", "never mind"], "paused": ["wire"], "healthy": ["hi"]}
    ids = [(await Talk.begin(aclient, *texts)).id for texts in said.values()]
    for options, wanted in (((), ids[:2]), (("--status", "damaged", "--since", "1h"), ids[:1])):
        code, out, _ = cli("scan", dev_server, *ids, *options)
        assert (code, {line.split("\t")[0] for line in out.splitlines()[1:]}) == (1, {*wanted})
    shown = [json.loads(cli("show", dev_server, each, "--json")[1]) for each in ids]
    assert [each["status"] for each in shown] == list(said)
    code, out, _ = cli("scan", dev_server, ids[0], "00000000-0000-0000-0000-000000000000")
    assert (code, "Thread with ID 00000000-" in out) == (3, True)
    assert "no run has written" in cli("show", dev_server, (await Talk.begin(aclient)).id)[2]
    # A graph that is gone, and ids that the server refuses in its own ways.
    gone = Talk(aclient, (await aclient.threads.create(graph_id="gone"))["thread_id"], "gone")
    assert "Graph 'gone' not found" in (await gone.report(client)).reason
    assert [each.status for each in scan_threads(client, thread_ids=["nope"])] == ["unreadable"]


# --- a second answer while the tool works -------------------------------------------------------

SECOND = {
    ("enqueue", "yes"): ("success", "paid 1"),
    ("enqueue", "no"): ("success", "paid 1"),
    ("reject", "yes"): ("conflict", "paid 1"),
    ("interrupt", "yes"): ("success", "paid 2"),
    ("interrupt", "no"): ("success", "paid 2"),
    ("rollback", "yes"): ("success", "paid 2"),
    ("rollback", "no"): ("success", "paid 2"),
}
"""How the second run ends and what the tool returns last, by its strategy and answer.

The first run streams, so that its yes is stored when it is cancelled: a no runs the tool again.
"""


@pytest.mark.parametrize("graph", ["clerk", "once", "once_by_middleware"])
async def test_a_second_answer_while_the_tool_works(aclient, graph):
    """The strategy of the second run decides; with `once` the tool runs once with each."""
    cases = await asyncio.gather(*(answered_twice(aclient, graph, *case) for case in SECOND))
    expected = dict(SECOND)
    if graph != "clerk":
        taken = [case for case in SECOND if case[0] in ("interrupt", "rollback")]
        expected |= dict.fromkeys(taken, ("error", CANCELLED.format("pay", "pay")))
    assert dict(zip(SECOND, cases, strict=True)) == expected


async def answered_twice(
    client: LangGraphClient, graph: str, strategy: MultitaskStrategy, second: str
) -> tuple[str, str]:
    """How the second run ends, and what the model reads of the call in the turn of a message."""
    talk = await Talk.begin(client, "pay", graph=graph)
    stream = client.runs.stream(
        talk.id, graph, command={"resume": "yes"}, stream_mode="custom", on_disconnect="continue"
    )
    async for part in stream:
        if part.event == "custom":
            break
    try:
        status = await talk.run(command={"resume": second}, multitask_strategy=strategy)
    except ConflictError:
        status = "conflict"
    await talk.run("and?")
    messages = (await talk.state())["values"]["messages"]
    [result] = [m["content"] for m in messages if m.get("tool_call_id") == "pay"]
    return status, result


async def test_once_with_a_checkpointer_of_the_application(tmp_path):
    """One that nobody has read is accepted if its first write stays."""
    own = {"backend": "custom", "path": "./dev_graphs.py:saver"}
    with running_server(tmp_path, checkpointer=own) as url:
        async with get_client(url=url) as client:
            cancelled = "error", CANCELLED.format("pay", "pay")
            assert await answered_twice(client, "once", "enqueue", "yes") == ("success", "paid 1")
            assert await answered_twice(client, "once", "interrupt", "yes") == cancelled
            last = await client.threads.create(thread_id=str(UUID(int=1)))
            for thread_id, reason in [
                (last["thread_id"], "a Saver keeps the second of two writes"),
                (None, "a stateless run keeps nothing. Create a thread"),
            ]:
                run: Any = await client.runs.wait(
                    thread_id, "once", input=says("boom"), raise_error=False
                )
                assert reason in run["__error__"]["message"]


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


def parts_of(client: LangGraphClient, graph: str, shape: str) -> Any:
    """The stream of a run on the server."""
    if shape in SDK:
        return client.runs.stream(None, graph, input=says("How is the weather?"), **SDK[shape])
    return RemoteGraph(graph, client=client).astream(says("?"), **REMOTE[shape])


@pytest.mark.parametrize("shape", [*SDK, *REMOTE])
async def test_a_client_of_the_server_has_the_answers_in_the_end(aclient, shape):
    """Each answer once, and nothing else, with both kinds of checkers."""

    async def run(graph: str, checker: Any) -> list[str]:
        answers = afinal_answers(parts_of(aclient, graph, shape), checker=checker)
        return left([pair async for pair in answers])

    graphs = {"weather_agent": full_stream_checker, "subgraph": live, "retry": live}
    assert await asyncio.gather(*(run(*each) for each in graphs.items())) == [SUNNY] * 3


async def test_a_run_that_fails_on_the_server(aclient):
    """What the model had written comes first; then the server's report is an error."""
    for shape in ("SDK", "SDK, v2", "RemoteGraph", "RemoteGraph, v2"):
        answers = afinal_answers(parts_of(aclient, "failing", shape), checker=full_stream_checker)
        token, _ = await anext(answers)
        assert token.text == "So"
        with pytest.raises((PatchError, RemoteException), match="ConnectionError"):
            await anext(answers)


# --- patched graphs -------------------------------------------------------------------------

TEXTS = {
    "report": CANCELLED.format("print_report", "report"),
    "ask": WAITED.format("ask_later", "ask"),
    "wire": WAITED.format("wire_money", "wire"),
}
"""What the model reads of the call beside the mail, by the word that the human says."""


async def interrupt(talk: Talk) -> str:
    """Double texting with `interrupt`: the running tool is cancelled."""
    first = await talk.start_until_mailed("report")
    status = await talk.run("never mind", multitask_strategy="interrupt")
    assert await talk.end(first) == "interrupted"
    return status


async def enqueue(talk: Talk) -> str:
    """Double texting with `enqueue`: the first run pauses, the second finds its calls open."""
    first = await talk.start_until_mailed("ask")
    status = await talk.run("never mind", multitask_strategy="enqueue")
    assert await talk.end(first) == "success"  # so the server calls a run that waits
    return status


@pytest.mark.parametrize(
    ("play", "word"), [(interrupt, "report"), (enqueue, "ask"), (abandoned, "wire")]
)
async def test_the_bare_graph_fails_and_the_patched_ones_go_on(aclient, play, word):
    """The sent mail is recovered, the model reads what is known of the other call, twice.

    An agent that is a node adds its abandoned turn before the message that abandons it.
    """
    graphs = ["clerk", "patched", "by_middleware", *["patched_parent"] * (play is abandoned)]
    talks = [await Talk.begin(aclient, graph=graph) for graph in graphs]
    statuses = await asyncio.gather(*(play(talk) for talk in talks))
    assert statuses == ["error", *["success"] * (len(graphs) - 1)]
    bare, *patched = talks
    assert not any("sent to bob" in line for line in await bare.lines())
    results = [f"tool mail-{word}: sent to bob", f"tool {word}: {TEXTS[word]}"]
    expected = [f"human: {word}", f"ai mail-{word} {word}: ", *results]
    for talk in patched:
        assert await talk.lines() == [*expected, "human: never mind", "ai: re: never mind"]
        # The thread does not only survive one message.
        assert await talk.run("hello") == "success"
        assert (await talk.lines())[6:] == ["human: hello", "ai: re: hello"]


# --- the page of the documentation ----------------------------------------------------------


def test_the_code_of_the_page_runs(dev_server, monkeypatch):
    """A reader who pastes its blocks from top to bottom gets no error."""
    monkeypatch.setenv("LANGSMITH_API_KEY", "")
    monkeypatch.setenv("LANGGRAPH_URL", dev_server)
    run_page("how-to/databases")["client"].close()
