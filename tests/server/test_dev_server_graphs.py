"""The real LangGraph server, the real SDK: one agent, bare and patched, broken in several ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from support.placeholder_texts import CANCELLED, WAITED
from support.servers import running_server

pytestmark = pytest.mark.xdist_group("server")

SECONDS = 30
TEXTS = {
    "report": CANCELLED.format("print_report", "report"),
    "ask": WAITED.format("ask_later", "ask"),
    "wire": WAITED.format("wire_money", "wire"),
}
"""What the model reads of the call beside the mail, by the word that the human says."""


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

    async def start(self, text: str, **options: Any) -> str:
        """Create a run; its id."""
        run = await self.client.runs.create(self.thread_id, self.graph, input=says(text), **options)
        return run["run_id"]

    async def end(self, run_id: str) -> str:
        """Wait for a run to end; its status."""
        async with asyncio.timeout(SECONDS):
            await self.client.runs.join(self.thread_id, run_id)
        return (await self.client.runs.get(self.thread_id, run_id))["status"]

    async def run(self, text: str, **options: Any) -> str:
        """A run from begin to end; its status."""
        return await self.end(await self.start(text, **options))

    async def start_until_mailed(self, text: str) -> str:
        """Start a run of two tools and return when one is finished and one is not."""
        run_id = await self.start(text)
        async with asyncio.timeout(SECONDS):
            while True:
                tasks = (await self.client.threads.get_state(self.thread_id))["tasks"]
                if sorted(bool(task["result"]) for task in tasks) == [False, True]:
                    return run_id
                await asyncio.sleep(0.05)

    async def lines(self) -> list[str]:
        """Each stored message on a line: its type, the call that it answers, its text."""
        found = []
        for message in (await self.client.threads.get_state(self.thread_id))["values"]["messages"]:
            who = filter(None, [message["type"], message.get("tool_call_id")])
            found.append(f"{' '.join(who)}: {message['content']}")
        return found


async def begin(client: LangGraphClient, graph: str) -> Talk:
    """A new thread."""
    return Talk(client, graph, (await client.threads.create())["thread_id"])


def repaired_turn(word: str, *after: str) -> list[str]:
    """The repaired turn as the thread must have it, and the messages after it."""
    results = [f"tool mail-{word}: sent to bob", f"tool {word}: {TEXTS[word]}"]
    return [f"human: {word}", "ai: ", *results, *after]


NEVER_MIND = ("human: never mind", "ai: re: never mind")


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


async def leave_unanswered(talk: Talk) -> str:
    """The human says something else instead of `Command(resume=...)`."""
    await talk.run("wire")
    return await talk.run("never mind")


@pytest.mark.parametrize(
    ("play", "word"), [(interrupt, "report"), (enqueue, "ask"), (leave_unanswered, "wire")]
)
async def test_the_bare_graph_fails_and_the_patched_ones_go_on(client, play, word):
    """The sent mail is recovered, and the model reads what is known of the other call."""
    talks = [await begin(client, graph) for graph in ("bare", "patched", "by_middleware")]
    statuses = await asyncio.gather(*(play(talk) for talk in talks))
    assert statuses == ["error", "success", "success"]
    bare, *patched = talks
    assert not any("sent to bob" in line for line in await bare.lines())
    expected = repaired_turn(word, *NEVER_MIND)
    for talk in patched:
        assert await talk.lines() == expected
        # The thread does not only survive one message.
        assert await talk.run("hello") == "success"
        assert await talk.lines() == [*expected, "human: hello", "ai: re: hello"]


async def test_an_agent_that_is_a_node(client):
    """The turn that a message abandons is added before that message."""
    talk = await begin(client, "patched_parent")
    assert await leave_unanswered(talk) == "success"
    assert await talk.lines() == repaired_turn("wire", *NEVER_MIND)
