"""Final answers from the streams of the real integrations, from servers on this machine."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import RemoveMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from langgraph_patch.streaming import (
    RETRACTED_KEY,
    AdaptiveChecker,
    Checker,
    afinal_answers,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
    live_checker,
    split_stream,
)
from support.answer_agents import left, model_graph
from support.paced_servers import INTEGRATIONS, TURNS, WORDS, Integration, paced

pytestmark = pytest.mark.slow

INPUT = {"messages": [("user", "weather?")]}
VERSIONS = {
    f"{name}, {version}": Integration(
        INTEGRATIONS[name].events,
        lambda url, version=version: ChatOpenAI(
            model="gpt-5", api_key="k", base_url=url, use_responses_api=True, output_version=version
        ),
    )
    for name in ("OpenAI Responses", "OpenAI Responses, phases")
    for version in ("v0", "v1")
}
ALL = {**INTEGRATIONS, **VERSIONS}


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city}"


def graph_of(name: str, url: str) -> Any:
    """A graph that asks the integration's model once."""
    return model_graph(ALL[name].model(url).bind_tools([weather]))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize(
    "checker", [full_stream_checker, first_chunk_checker, live_checker], ids=lambda c: c.__name__
)
async def test_a_client_has_the_text_of_an_answer_and_nothing_else(name, turn, checker):
    """Whatever the integration's chunks look like; only text before a call is retracted."""
    text, call = TURNS[turn]
    with paced(ALL[name], 0) as server:
        server.events = ALL[name].events(text, call)
        graph = graph_of(name, server.url)
        runs = [
            list(final_answers(graph.stream(INPUT, stream_mode="messages"), checker=checker)),
            [p async for p in afinal_answers(graph.astream_events(INPUT), checker=checker)],
        ]
    for shown in runs:
        assert left(shown) == ([] if call else ["".join(WORDS)])
        reasons = [m[RETRACTED_KEY] for t, m in shown if isinstance(t, RemoveMessage)]
        assert reasons in ([], ["tool_call"])
        if checker is full_stream_checker or not call:
            assert reasons == []


@pytest.mark.parametrize("name", ALL)
def test_a_model_has_one_key_in_streams_and_in_graphs_and_is_soon_trusted(name):
    """One turn with a call, then the text decides at its first chunk, in both uses."""
    with paced(ALL[name], 0) as server:
        model = ALL[name].model(server.url).bind_tools([weather])

        def read(text: bool, call: bool, checker: Checker) -> bool:  # noqa: FBT001
            server.events = ALL[name].events(text, call)
            answer, chunks = split_stream(model.stream("weather?"), checker=checker)
            assert list(chunks)
            return answer

        checker = AdaptiveChecker(min_calls=1)
        assert read(False, True, checker)  # noqa: FBT003
        assert not read(True, False, checker)  # noqa: FBT003
        (split,) = checker.stats().values()
        assert (split.turns, split.calls, split.early) == (2, 1, 1)
        checker = AdaptiveChecker(min_calls=1)
        graph = graph_of(name, server.url)
        for text in (False, True):
            server.events = ALL[name].events(text, not text)
            list(final_answers(graph.stream(INPUT, stream_mode="messages"), checker=checker))
        (found,) = checker.stats().values()
        assert (found.turns, found.calls, found.early) == (2, 1, 1)
