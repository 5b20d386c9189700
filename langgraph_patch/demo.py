"""`langgraph-patch demo`: run the same agent without patching and with it.

Two things happen to a ReAct agent. It calls two tools in parallel, one asks a human, and the human
writes something else. And the stream of its model is cut inside the arguments of a tool call. The
model is scripted, so that no key and no network is needed; what it answers depends on the results
that it reads. All else is real.
"""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent
from langgraph.types import interrupt
from rich.console import Group
from rich.text import Text

from langgraph_patch.graph.with_patching import with_patching

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
        [
            ("INVALID_CHAT_HISTORY", ["a mail to bob"]),
            ("Bob has my mail. No money was wired.", ["a mail to bob"]),
        ],
    ),
    (
        f"the model's stream ends after {_CUT}",
        [{"name": "pay", "args": _CUT, "id": "p1", "index": 0}],
        ["Pay the invoice of 1000."],
        [("I paid 10.", ["a payment of 10"]), ("The payment was not made.", [])],
    ),
)
"""For each conversation its title, the calls of the model, what the human writes, and without and
with patching the error or the answer at the end, and what the tools must have done."""
_ANSWERS = {
    "sent to bob": "Bob has my mail.",
    "wire_money with id c2 was waiting for human input": "No money was wired.",
    "paid 10": "I paid 10.",
    "pay with id p1 was not run": "The payment was not made.",
}
"""What the model says of each result that it reads."""


class _Model(BaseChatModel):
    """Makes its calls, and then says what it read."""

    calls: list[dict[str, Any]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> _Model:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return generate_from_stream(self._stream(messages))

    def _stream(
        self, messages: list[BaseMessage], *_: Any, **__: Any
    ) -> Iterator[ChatGenerationChunk]:
        read = " ".join(message.text for message in messages if message.type == "tool")
        said = " ".join(answer for result, answer in _ANSWERS.items() if result in read)
        calls: Any = [] if read else self.calls
        yield ChatGenerationChunk(message=AIMessageChunk(content=said, tool_call_chunks=calls))


def converse(
    calls: list[dict[str, Any]], texts: Sequence[str], *, patched: bool
) -> tuple[list[BaseMessage], Exception | None, list[str]]:
    """A human writes to the agent, and writes again over its pause if there are two texts.

    Args:
        calls: The calls that the model makes.
        texts: What the human writes.
        patched: Whether the graph is patched.

    Returns:
        The history at the end, what the last turn raised (None if the agent answered), and what
        the tools did in the world.
    """
    ran: list[str] = []

    @tool
    def send_email(to: str) -> str:
        """Send an email."""
        ran.append(f"a mail to {to}")
        return f"sent to {to}"

    @tool
    def wire_money(amount: int) -> str:
        """Wire money, if a human agrees."""
        return str(interrupt(f"Wire {amount}?"))

    @tool
    def pay(amount: int) -> str:
        """Pay an invoice."""
        ran.append(f"a payment of {amount}")
        return f"paid {amount}"

    saver, error = InMemorySaver(), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # create_react_agent is deprecated
        tools = [send_email, wire_money, pay]
        bare = create_react_agent(_Model(calls=calls), tools, checkpointer=saver)
    graph = with_patching(bare) if patched else bare
    thread: RunnableConfig = {"configurable": {"thread_id": "demo"}}
    for text in texts:
        sent = {"messages": [("human", text)]}
        try:
            deque(graph.stream(sent, thread, stream_mode="messages"), maxlen=0)
        except ValueError as raised:  # what create_react_agent raises on a broken history
            error = raised
    # Not get_state(): it shows the result of the finished tool as if it were in the history.
    [saved] = saver.list(thread, limit=1)
    return saved.checkpoint["channel_values"]["messages"], error, ran


# --- what is shown -----------------------------------------------------------------------

_AGENTS = {"a": "create_react_agent(...)", "b": "with_patching(create_react_agent(...))"}
_INTRODUCTION = "The model is scripted. LangGraph, the tools and the checkpoints are real."
_VERDICT = (
    "Without patching, the first thread is dead: every later turn fails too. In the second one "
    "a tool ran with an amount that the model did not finish writing.\n"
    "With patching, both threads go on. The model knows that the mail was sent, and nothing ran "
    "that it did not finish writing."
)
_UNEXPECTED = "This is not what should have happened: please report it."


def run() -> tuple[Group, int]:
    """Run both conversations without patching and with it.

    Returns:
        What is shown, and 0 if they failed without patching and went on with it, else 1.
    """
    shown, is_as_expected = [Text(f"{_INTRODUCTION}\n", "bright_black")], True
    for number, (title, calls, texts, ends) in enumerate(_CONVERSATIONS, 1):
        for (letter, agent), (end, did) in zip(_AGENTS.items(), ends, strict=True):
            history, error, ran = converse(calls, texts, patched=letter == "b")
            is_as_expected &= end in str(error or history[-1].text) and ran == did
            shown.append(Text(f"{number}{letter}. {agent}: {title}", "bold"))
            shown += (_drawn(message, patched=letter == "b") for message in history)
            shown.append(
                Text(f"  done in the world: {', '.join(ran) or 'nothing'}", "bright_black")
            )
            if error is not None:
                text, _, code = str(error).partition(". ")  # the rest repeats the calls
                code = "INVALID_CHAT_HISTORY: " if "INVALID_CHAT_HISTORY" in code else ""
                shown.append(Text(f"  {type(error).__name__}: {code}{text}", "red"))
            shown.append(Text(""))
    shown.append(Text(_VERDICT if is_as_expected else _UNEXPECTED, "bold"))
    return Group(*shown), 0 if is_as_expected else 1


def _drawn(message: BaseMessage, *, patched: bool) -> Text:
    """A message, with a `+` before a result: no thread here has the same one without patching."""
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    words = [f"{call['name']}({call['id']}) {json.dumps(call['args'])}" for call in calls]
    sign, style = ("+", "green") if patched and message.type == "tool" else (" ", "")
    return Text(f"{sign} [{message.type}] {', '.join(words) or message.text}", style)
