"""`langgraph-patch demo`: run the same graph without patching and with it.

Two things happen to an agent. It calls two tools in parallel, one asks a human, and the human
writes something else. And the stream of its model is cut inside the arguments of a tool call. The
model is scripted, so that no key and no network is needed; what it answers depends on the results
that it reads. All else is real.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send, interrupt

from langgraph_patch.graph.with_patching import with_patching
from langgraph_patch.history.fields import PLACEHOLDER_KEY
from langgraph_patch.testing import RefusedError, StrictModel

_CUT = '{"amount": 10'  # 1000 was not written to its end
_CALLS = [
    {"name": "send_email", "args": '{"to": "bob"}', "id": "c1", "index": 0},
    {"name": "wire_money", "args": '{"amount": 100}', "id": "c2", "index": 1},
]
_CONVERSATIONS = (
    (
        "a new message over a pause",
        _CALLS,
        ["Write to Bob and wire him 100.", "Never mind the money. What did you do?"],
    ),
    (
        f"the model's stream ends after {_CUT}",
        [{"name": "pay", "args": _CUT, "id": "p1", "index": 0}],
        ["Pay the invoice of 1000."],
    ),
)
"""For each conversation its title, the calls of the model, and what the human writes."""
_ANSWERS = {
    "sent to bob": "Bob has my mail.",
    "wire_money with id c2 asked for human input": "No money was wired.",
    "paid 10": "I paid 10.",
    "pay with id p1 was not run": "The payment was not made.",
}
"""What the model says of each result that it reads."""
_INTRODUCTION = """\
The model is scripted. LangGraph, the tools and the checkpoints are real.
A + marks a result that the history lacks without patching, a ~ a call that was cut and not run.
"""
_STYLES = {"+": "green", "~": "yellow", "1": "bold", "2": "bold", "  4": "red", "  d": "cyan"}
"""What a line begins with -> its colour on a terminal."""


def _graph(calls: Any, tools: Sequence[Callable[..., str]]) -> CompiledStateGraph[Any]:
    """An agent as `create_agent` builds it, without LangChain: each call has a task of its own."""
    model = StrictModel([AIMessageChunk(content="", tool_call_chunks=calls)], _answer)

    def ask(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    def send(state: MessagesState) -> Any:
        last: Any = state["messages"][-1]
        return [Send("tools", [call]) for call in last.tool_calls] or END

    builder = StateGraph(MessagesState)
    builder.add_node("model", ask)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", send, ["tools", END])
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=InMemorySaver())


def _answer(messages: Sequence[Any]) -> str:
    """What the model says, by the results that it reads."""
    read = " ".join(message.text for message in messages if message.type == "tool")
    return " ".join(answer for result, answer in _ANSWERS.items() if result in read)


def lines() -> Iterator[str]:
    """Run both conversations without patching and with it; what happened, line by line."""
    yield _INTRODUCTION
    for number, (title, calls, texts) in enumerate(_CONVERSATIONS, 1):
        yield f"{number}a. graph: {title}"
        yield from _converse(calls, texts, patched=False)
        yield f"{number}b. with_patching(graph): {title}"
        yield from _converse(calls, texts, patched=True)


def style_of(line: str) -> str:
    """The colour of a line on a terminal, as rich names it; `""` for none."""
    return next((style for start, style in _STYLES.items() if line.startswith(start)), "")


def _converse(calls: list[dict[str, Any]], texts: Sequence[str], *, patched: bool) -> Iterator[str]:
    """A human writes to the agent, and writes again over its pause if there are two texts."""
    ran: list[str] = []

    def send_email(to: str) -> str:
        """Send an email."""
        ran.append(f"a mail to {to}")
        return f"sent to {to}"

    def wire_money(amount: int) -> str:
        """Wire money, if a human agrees."""
        return str(interrupt(f"Wire {amount}?"))

    def pay(amount: int) -> str:
        """Pay an invoice."""
        ran.append(f"a payment of {amount}")
        return f"paid {amount}"

    error, graph = None, _graph(calls, [send_email, wire_money, pay])
    graph = with_patching(graph) if patched else graph
    thread: RunnableConfig = {"configurable": {"thread_id": "demo"}}
    for text in texts:
        sent = {"messages": [("human", text)]}
        try:
            deque(graph.stream(sent, thread, stream_mode="messages"), maxlen=0)
        except RefusedError as raised:
            error = raised
    # Not get_state(): it shows the result of the finished tool as if it were in the history.
    saved: Any = graph.checkpointer
    messages = saved.get(thread)["channel_values"]["messages"]
    marked = [(m, m.additional_kwargs.get(PLACEHOLDER_KEY, {})) for m in messages]
    cut = {m.tool_call_id for m, mark in marked if mark.get("cause") == "malformed"}
    for message in messages:
        made = message.tool_calls if isinstance(message, AIMessage) else ()
        words = [f"{call['name']}({call['id']}) {json.dumps(call['args'])}" for call in made]
        sign = "+" if patched and message.type == "tool" else " "
        sign = "~" if cut & {call["id"] for call in made} else sign
        yield f"{sign} [{message.type}] {', '.join(words) or message.text}"
    yield f"  done in the world: {', '.join(ran) or 'nothing'}"
    if error is not None:
        yield f"  400: {error}"
    yield ""
