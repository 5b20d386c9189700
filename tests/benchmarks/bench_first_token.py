"""When a client sees the first token: each integration, each kind of turn, each checker.

The providers are servers on this machine that send an event every 50 ms. A figure is the time from
the request to the first token with text; the detail says when the turn ended, and whether the
token was retracted by then. A turn that is never shown has no figure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from measuring import Row

from langgraph_patch.streaming import (
    Checker,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
)
from support.paced_servers import INTEGRATIONS, TURNS, paced
from support.streams import live

PAUSE, QUICK_PAUSE = 0.05, 0.0005


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city}"


def graph_of(chat_model: BaseChatModel) -> Any:
    """A graph that asks the model once."""
    model = chat_model.bind_tools([weather])
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "agent")
    return builder.compile()


def first_token(graph: Any, checker: Checker) -> tuple[float, float, bool]:
    """Seconds to the first token and to the end, and whether the token was retracted."""
    begin, first, retracted = time.perf_counter(), math.inf, False
    stream = graph.stream({"messages": [HumanMessage("weather?")]}, stream_mode="messages")
    for token, _ in final_answers(stream, checker=checker):
        retracted = retracted or isinstance(token, RemoveMessage)
        if token.text.strip():
            first = min(first, time.perf_counter() - begin)
    return first, time.perf_counter() - begin, retracted


def checkers() -> dict[str, Checker]:
    """The checkers, one of an application among them."""
    return {
        "full_stream_checker": full_stream_checker,
        "first_chunk_checker": first_chunk_checker,
        "a checker of an application": live,
    }


def rows(*, quick: bool) -> Iterator[Row]:
    """The time to the first token."""
    pause = QUICK_PAUSE if quick else PAUSE
    for name, integration in INTEGRATIONS.items():
        with paced(integration, pause) as server:
            graph = graph_of(integration.model(server.url))
            server.events = integration.events(False, True)  # noqa: FBT003 - a call
            first_token(graph, full_stream_checker)  # connects
            for turn, (text, call) in TURNS.items():
                for checker_name, checker in checkers().items():
                    server.events = integration.events(text, call)
                    first, end, retracted = first_token(graph, checker)
                    yield Row(
                        f"first token of {turn!r}, {name}: {checker_name}",
                        first,
                        form="{:.2f} s" if first < math.inf else "none",
                        detail=f"{'retracted; ' if retracted else ''}the turn took {end:.2f} s",
                    )
