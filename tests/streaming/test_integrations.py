"""Final answers from the streams of the real integrations, from servers on this machine."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import RemoveMessage

from langgraph_patch.streaming import (
    RETRACTED_KEY,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
)
from support.answer_agents import left, model_graph, weather
from support.paced_servers import INTEGRATIONS, TURNS, WITH_BLOCKS, WORDS, paced
from support.streams import live

pytestmark = pytest.mark.slow

INPUT = {"messages": [("user", "weather?")]}
ALL = {**INTEGRATIONS, **WITH_BLOCKS}
CHECKERS = [full_stream_checker, first_chunk_checker, live]


def graph_of(name: str, url: str) -> Any:
    """A graph that asks the integration's model once."""
    return model_graph(ALL[name].model(url).bind_tools([weather]))


ROWS = [
    (name, turn, CHECKERS[(n + m) % len(CHECKERS)])
    for n, name in enumerate(ALL)
    for m, turn in enumerate(TURNS)
]
"""Each integration with each kind of turn, and the checkers in turn."""


@pytest.mark.parametrize(("name", "turn", "checker"), ROWS)
async def test_a_client_has_the_text_of_an_answer_and_nothing_else(name, turn, checker):
    """Whatever the integration's chunks look like; only text before a call is retracted."""
    has_text, has_call = TURNS[turn]
    with paced(ALL[name], 0) as server:
        server.events = ALL[name].events(has_text, has_call)
        stream = graph_of(name, server.url).stream(INPUT, stream_mode="messages")
        shown = list(final_answers(stream, checker=checker))
    # Those with blocks call a tool in each turn.
    has_call = has_call or name.startswith("Anthropic, ")
    assert left(shown) == ([] if has_call else ["".join(WORDS)])
    reasons = [m[RETRACTED_KEY] for t, m in shown if isinstance(t, RemoveMessage)]
    assert reasons in ([], ["tool_call"])
    if checker is full_stream_checker or not has_call:
        assert reasons == []
