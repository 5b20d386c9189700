"""Final answers over a real LangGraph Server: the SDK's streams and those of `RemoteGraph`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.pregel.remote import RemoteException, RemoteGraph
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient

from langgraph_patch.errors import StreamError
from langgraph_patch.streaming import (
    Checker,
    afinal_answers,
    final_answers,
    full_stream_checker,
)
from support.answer_agents import SUNNY, left
from support.dev_server import running_server
from support.streams import live

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server")]

INPUT = {"messages": [{"role": "user", "content": "How is the weather?"}]}
GRAPHS = {
    "by_hand": SUNNY,
    "agent": SUNNY,
    "direct": ["sunny in Rome"],
    "structured": ["Returning structured response: city='Rome'"],
    "model_in_tool": SUNNY,
    "subgraph": SUNNY,
    "retry": SUNNY,
    "fallback": SUNNY,
}
SDK: dict[str, dict[str, Any]] = {
    "SDK": {"stream_mode": "messages-tuple"},
    "SDK, a list": {"stream_mode": ["updates", "messages-tuple", "values"]},
    "SDK, subgraphs": {"stream_mode": ["messages-tuple", "updates"], "stream_subgraphs": True},
    "SDK, v2": {"stream_mode": ["messages-tuple", "values"], "version": "v2"},
}
REMOTE: dict[str, dict[str, Any]] = {
    "RemoteGraph": {"stream_mode": "messages"},
    "RemoteGraph, a list": {"stream_mode": ["messages", "updates"]},
    "RemoteGraph, subgraphs": {"stream_mode": ["messages"], "subgraphs": True},
    "RemoteGraph, v2": {"stream_mode": ["messages"], "version": "v2"},
}
SHAPES = [*SDK, *REMOTE]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running server."""
    with running_server(tmp_path_factory.mktemp("server"), "stream_app") as url:
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[LangGraphClient]:
    """The SDK's client."""
    async with get_client(url=url) as client:
        yield client


@pytest.fixture
def sync_client(url: str) -> Iterator[SyncLangGraphClient]:
    """The SDK's sync client."""
    with get_sync_client(url=url) as client:
        yield client


def parts_of(client: Any, graph: str, shape: str) -> Any:
    """The stream of a run on the server."""
    if shape in SDK:
        return client.runs.stream(None, graph, input=INPUT, **SDK[shape])
    if isinstance(client, LangGraphClient):
        return RemoteGraph(graph, client=client).astream(INPUT, **REMOTE[shape])
    return RemoteGraph(graph, sync_client=client).stream(INPUT, **REMOTE[shape])


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_client_of_the_server_has_the_answers_in_the_end(client, shape):
    """Complete and live: each answer once, and nothing else."""

    async def run(graph: str, checker: Checker) -> list[str]:
        answers = afinal_answers(parts_of(client, graph, shape), checker=checker)
        return left([pair async for pair in answers])

    for checker in (full_stream_checker, live):
        found = await asyncio.gather(*(run(graph, checker) for graph in GRAPHS))
        assert dict(zip(GRAPHS, found, strict=True)) == GRAPHS


@pytest.mark.parametrize("shape", SHAPES)
def test_a_sync_client_of_the_server_has_them_too(sync_client, shape):
    """The same with the sync client, live."""

    def run(graph: str) -> list[str]:
        return left(list(final_answers(parts_of(sync_client, graph, shape), checker=live)))

    with ThreadPoolExecutor(len(GRAPHS)) as pool:
        assert dict(zip(GRAPHS, pool.map(run, GRAPHS), strict=True)) == GRAPHS


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_run_that_fails_on_the_server(client, shape):
    """What the model had written comes first; then the server's report is an error."""
    answers = afinal_answers(parts_of(client, "failing", shape), checker=full_stream_checker)
    token, _ = await anext(answers)
    assert token.text == "So"
    with pytest.raises((StreamError, RemoteException), match="ConnectionError"):
        await anext(answers)


async def test_other_parts_pass_unchanged_on_request(client):
    """The state, the updates and the server's own events, as the SDK yields them."""
    parts = parts_of(client, "agent", "SDK, a list")
    answers = afinal_answers(parts, checker=full_stream_checker, other_modes=True)
    shown = [item async for item in answers]
    events = {item.event for item in shown if hasattr(item, "event")}
    assert {"metadata", "updates", "values"} <= events
    assert left([item for item in shown if not hasattr(item, "event")]) == SUNNY


async def test_the_mode_that_repeats_the_text_is_a_clear_error(client):
    """The server's mode `messages` repeats the text; the error names the mode to use."""
    parts = client.runs.stream(None, "agent", input=INPUT, stream_mode="messages")
    answers = afinal_answers(parts)
    with pytest.raises(StreamError, match="messages-tuple"):
        await anext(answers)
