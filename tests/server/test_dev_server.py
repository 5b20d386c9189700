"""The real LangGraph server, the real SDK: one agent, bare and patched, broken in every way.

The server runs as a process of its own (`langgraph dev`), offline, on a loopback port. It
injects its checkpointer, so that the graphs were compiled without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from langgraph_patch import patch_messages
from support.dev_server import running_server
from support.placeholder_texts import CANCELLED, UNKNOWN, WAITED

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server")]

PATCHED = ("patched", "by_middleware")
GRAPHS = ("bare", *PATCHED)
SECONDS = 30


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running server."""
    with running_server(tmp_path_factory.mktemp("server")) as base:
        yield base


@pytest.fixture
async def client(url: str) -> AsyncIterator[LangGraphClient]:
    """The SDK's client of that server."""
    async with get_client(url=url) as client:
        yield client


def says(text: str) -> dict[str, Any]:
    """The input of a run: a human message, as JSON."""
    return {"messages": [{"role": "user", "content": text}]}


@dataclass(frozen=True, slots=True)
class Talk:
    """One thread of the server, and the graph that runs on it."""

    client: LangGraphClient
    graph: str
    thread_id: str

    @classmethod
    async def begin(cls, client: LangGraphClient, graph: str) -> Talk:
        """A new thread."""
        thread = await client.threads.create()
        return cls(client, graph, thread["thread_id"])

    async def start(self, text: str | None, **options: Any) -> str:
        """Create a run; its id."""
        value = says(text) if text else None
        run = await self.client.runs.create(self.thread_id, self.graph, input=value, **options)
        return run["run_id"]

    async def end(self, run_id: str) -> str:
        """Wait for a run to end; its status."""
        async with asyncio.timeout(SECONDS):
            await self.client.runs.join(self.thread_id, run_id)
        return (await self.client.runs.get(self.thread_id, run_id))["status"]

    async def run(self, text: str | None, **options: Any) -> str:
        """A run from begin to end; its status."""
        return await self.end(await self.start(text, **options))

    async def start_until_mailed(self, text: str) -> str:
        """Start a run of two tools and return when one is finished and one is not."""
        run_id = await self.start(text)
        async with asyncio.timeout(SECONDS):
            while True:
                state = await self.client.threads.get_state(self.thread_id)
                done = [bool(task["result"]) for task in state["tasks"]]
                if sorted(done) == [False, True]:
                    return run_id
                await asyncio.sleep(0.05)

    async def lines(self) -> list[str]:
        """The thread's messages, one on a line."""
        state = await self.client.threads.get_state(self.thread_id)
        return [shown(message) for message in state["values"]["messages"]]


def shown(message: dict[str, Any]) -> str:
    """A message on a line: its type, the call that it answers, its text."""
    who = [message["type"], message.get("tool_call_id")]
    return f"{' '.join(filter(None, who))}: {message['content']}"


def repaired_turn(word: str, second: str, *after: str) -> list[str]:
    """The repaired turn as the thread must have it, and the messages after it."""
    first = f"tool mail-{word}: sent to bob"
    return [f"human: {word}", "ai: ", first, f"tool {word}: {second}", *after]


NEVER_MIND = ("human: never mind", "ai: re: never mind")


async def check(
    client: LangGraphClient, play: Callable[[Talk], Awaitable[str]], expected: list[str]
) -> None:
    """Play the same on each graph: the bare one fails, the patched ones go on as `expected`."""
    talks = [await Talk.begin(client, graph) for graph in GRAPHS]
    statuses = await asyncio.gather(*(play(talk) for talk in talks))
    assert dict(zip(GRAPHS, statuses, strict=True)) == {
        "bare": "error",
        "patched": "success",
        "by_middleware": "success",
    }
    bare, *patched = talks
    assert not any("sent to bob" in line for line in await bare.lines())
    for talk in patched:
        assert await talk.lines() == expected
    # The thread does not only survive one message.
    assert await asyncio.gather(*(talk.run("hello") for talk in patched)) == ["success"] * 2
    for talk in patched:
        assert await talk.lines() == [*expected, "human: hello", "ai: re: hello"]


async def test_double_texting_interrupts(client: LangGraphClient):
    """`interrupt`: the sent mail is recovered, the running tool is unknown."""

    async def play(talk: Talk) -> str:
        first = await talk.start_until_mailed("report")
        status = await talk.run("never mind", multitask_strategy="interrupt")
        assert await talk.end(first) == "interrupted"
        return status

    unknown = CANCELLED.format("print_report", "report")
    await check(client, play, repaired_turn("report", unknown, *NEVER_MIND))


async def test_double_texting_enqueues(client: LangGraphClient):
    """`enqueue`: the first run pauses for a human, the second finds its calls open."""

    async def play(talk: Talk) -> str:
        first = await talk.start_until_mailed("ask")
        status = await talk.run("never mind", multitask_strategy="enqueue")
        assert await talk.end(first) == "success"  # so the server calls a run that waits
        return status

    await check(client, play, repaired_turn("ask", WAITED.format("ask_later", "ask"), *NEVER_MIND))


async def test_a_cancelled_run(client: LangGraphClient):
    """`runs.cancel` while one tool runs, then a new run."""

    async def play(talk: Talk) -> str:
        first = await talk.start_until_mailed("report")
        await client.runs.cancel(talk.thread_id, first, wait=True)
        return await talk.run("never mind")

    unknown = CANCELLED.format("print_report", "report")
    await check(client, play, repaired_turn("report", unknown, *NEVER_MIND))


async def test_an_interrupt_left_unanswered(client: LangGraphClient):
    """The human says something else instead of `Command(resume=...)`."""

    async def play(talk: Talk) -> str:
        await talk.run("wire")
        return await talk.run("never mind")

    await check(
        client, play, repaired_turn("wire", WAITED.format("wire_money", "wire"), *NEVER_MIND)
    )


async def test_a_state_edited_over_json(client: LangGraphClient):
    """`threads.update_state` abandons a pause, a run without input goes to the model."""

    async def play(talk: Talk) -> str:
        await talk.run("wire")
        edit = says("never mind")
        await client.threads.update_state(talk.thread_id, edit, as_node="__start__")
        return await talk.run(None)

    await check(
        client, play, repaired_turn("wire", WAITED.format("wire_money", "wire"), *NEVER_MIND)
    )


@pytest.mark.parametrize("graph", PATCHED)
async def test_a_thread_that_died_before_the_rollout(client: LangGraphClient, graph: str):
    """A thread that the bare graph killed goes on when the patched one is deployed."""
    talk = await Talk.begin(client, "bare")
    await talk.run("wire")
    assert await talk.run("never mind") == "error"
    rolled_out = Talk(client, graph, talk.thread_id)
    assert await rolled_out.run("hello?") == "success"
    cancelled = WAITED.format("wire_money", "wire")
    assert await rolled_out.lines() == repaired_turn(
        "wire", cancelled, "human: never mind", "human: hello?", "ai: re: hello?"
    )


@pytest.mark.parametrize("graph", PATCHED)
async def test_what_a_client_sees_of_a_repair(client: LangGraphClient, graph: str):
    """In JSON streams a repair is its two results; no message is removed or sent again."""
    talk = await Talk.begin(client, graph)
    await talk.run("wire")
    modes = ["messages-tuple", "updates", "values"]
    seen: list[str] = []
    last: Any = None
    async for part in client.runs.stream(
        talk.thread_id, graph, input=says("never mind"), stream_mode=modes
    ):
        assert part.event != "error"
        if part.event == "messages":
            seen.append(shown(part.data[0]))
        elif part.event == "values":
            last = part.data
    mail, wire = repaired_turn("wire", WAITED.format("wire_money", "wire"))[2:]
    assert seen[:2] == [mail, wire]
    assert "".join(chunk.partition(": ")[2] for chunk in seen[2:]) == "re: never mind"
    assert [shown(message) for message in last["messages"]] == await talk.lines()


@pytest.mark.parametrize("graph", PATCHED)
async def test_the_updates_of_a_repaired_turn(client: LangGraphClient, graph: str):
    """Each chunk is a dict of what is new: the results first. The middleware has no node."""
    talk = await Talk.begin(client, graph)
    await talk.run("wire")
    chunks = [
        part.data
        async for part in client.runs.stream(
            talk.thread_id, graph, input=says("never mind"), stream_mode="updates"
        )
        if part.event == "updates"
    ]
    seen = [
        {node: [shown(message) for message in update["messages"]]}
        for chunk in chunks
        for node, update in chunk.items()
        if update is not None
    ]
    results = repaired_turn("wire", WAITED.format("wire_money", "wire"))[2:]
    answer = "ai: re: never mind"
    by_a_node = [{"patch_tool_calls": results}, {"model": [answer]}]
    assert seen == (by_a_node if graph == "patched" else [{"model": [*results, answer]}])


async def test_a_repair_made_by_a_client(client: LangGraphClient):
    """`patch_messages` repairs a thread from outside: JSON in, JSON out, the bare graph goes on."""
    talk = await Talk.begin(client, "bare")
    await talk.run("wire")
    assert await talk.run("never mind") == "error"
    state = await client.threads.get_state(talk.thread_id)
    patch = patch_messages(state["values"]["messages"])
    old, new = ([m["id"] for m in state["values"]["messages"]], patch.messages)
    removed = [{"type": "remove", "id": i, "content": ""} for i in old]
    for write in (removed, [message.model_dump(mode="json") for message in new]):
        await client.threads.update_state(talk.thread_id, {"messages": write}, as_node="__start__")
    assert await talk.run(None) == "success"
    # Nobody asked the checkpointer here, so nothing is claimed of the calls.
    assert await talk.lines() == [
        "human: wire",
        "ai: ",
        f"tool mail-wire: {UNKNOWN.format('send_email', 'mail-wire')}",
        f"tool wire: {UNKNOWN.format('wire_money', 'wire')}",
        *NEVER_MIND,
    ]


async def test_an_agent_that_is_a_node(client: LangGraphClient):
    """The turn that a message abandons is added before that message."""
    talk = await Talk.begin(client, "patched_parent")
    assert await talk.run("wire") == "interrupted" or (await talk.lines()) == ["human: wire"]
    assert await talk.run("never mind") == "success"
    waited = WAITED.format("wire_money", "wire")
    assert await talk.lines() == repaired_turn("wire", waited, *NEVER_MIND)
