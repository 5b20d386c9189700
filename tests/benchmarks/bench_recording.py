"""What `record_tool_calls` costs for each call, beside a plain ToolNode."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from measuring import Row, in_turns, ratio, spent, spread

from langgraph_patch import record_tool_calls
from langgraph_patch.recording import recorded_call

CALLS = 4


def look(of: str) -> str:
    """Look."""
    return f"looked at {of}"


def tools_graph(saver: Any, **options: Any) -> Any:
    """A graph that only runs tools, since all else costs the same."""
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([look], **options))
    builder.set_entry_point("tools")
    return builder.compile(checkpointer=saver)


def talk(graph: Any, threads: int) -> None:
    """A message with some calls, in threads of their own."""
    for number in range(threads):
        calls = [{"name": "look", "args": {"of": str(n)}, "id": f"c{n}"} for n in range(CALLS)]
        message = AIMessage("", id="a", tool_calls=calls)
        config = {"configurable": {"thread_id": str(number)}}
        found = graph.invoke({"messages": [message]}, config)
        assert len(found["messages"]) == 1 + CALLS


def without_start_mark(_marked: Any) -> Iterator[Any]:
    """In place of the function that writes a start mark."""
    return
    yield


def without_marks(kind: str, threads: int) -> float:
    """As `measured`, recorded without start marks."""
    with mock.patch.object(recorded_call, "mark_start", without_start_mark):
        return measured(kind, threads, recorded=True)


def measured(kind: str, threads: int, *, recorded: bool) -> float:
    """The CPU seconds of all threads over a new checkpointer."""
    options = {"wrap_tool_call": record_tool_calls} if recorded else {}
    with tempfile.TemporaryDirectory() as folder:
        opened: AbstractContextManager[Any] = nullcontext(InMemorySaver())
        if kind == "SqliteSaver":
            opened = SqliteSaver.from_conn_string(str(Path(folder) / "threads.sqlite"))
        with opened as saver:
            graph = tools_graph(saver, **options)
            return spent(lambda: talk(graph, threads))


def rows(*, quick: bool) -> Iterator[Row]:
    """The ratio recorded / plain, and the difference for one call."""
    threads, rounds = (2, 1) if quick else (100, 9)
    for kind in ("SqliteSaver", "InMemorySaver"):
        ways = {
            name: partial(measured, kind, threads, recorded=recorded)
            for name, recorded in (("recorded", True), ("plain", False))
        }
        ways["unmarked"] = partial(without_marks, kind, threads)
        times = in_turns(ways, rounds)
        calls = threads * CALLS
        each = {name: min(found) / calls * 1e6 for name, found in times.items()}
        yield Row(
            f"record_tool_calls / plain ToolNode, {kind}, {CALLS} calls of a message",
            ratio(times, "recorded", "plain"),
            detail=f"{each['plain']:.0f} -> {each['recorded']:.0f} us a call, whole run; "
            + spread(times, "recorded", "plain"),
        )
        yield Row(
            f"start marks / recording without them, {kind}",
            ratio(times, "recorded", "unmarked"),
            detail=f"{each['unmarked']:.0f} -> {each['recorded']:.0f} us a call, whole run; "
            + spread(times, "recorded", "unmarked"),
        )
