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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
_CUT_CALLS = [{"name": "pay", "args": _CUT, "id": "p1", "index": 0}]
_CONVERSATIONS = (
    (
        "a new message over a pause",
        _CALLS,
        ["Write to Bob and wire him 100.", "Never mind the money. What did you do?"],
    ),
    (f"the model's stream ends after {_CUT}", _CUT_CALLS, ["Pay the invoice of 1000."]),
)
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


class Outcome(NamedTuple):
    """How a conversation ended.

    Attributes:
        history: The history at the end.
        error: What the last turn raised, or None if the agent answered.
        ran: What the tools did in the world.
    """

    history: Sequence[BaseMessage]
    error: Exception | None
    ran: Sequence[str]


def converse(calls: list[dict[str, Any]], texts: Sequence[str], *, patched: bool) -> Outcome:
    """A human writes to the agent, and writes again over its pause if there are two texts.

    Args:
        calls: The calls that the model makes.
        texts: What the human writes.
        patched: Whether the graph is patched.
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
    return Outcome(saved.checkpoint["channel_values"]["messages"], error, ran)


# --- what is shown -----------------------------------------------------------------------

_AGENTS = {"a": "create_react_agent(...)", "b": "with_patching(create_react_agent(...))"}
_INTRODUCTION = "The model is scripted. LangGraph, the tools and the checkpoints are real."
_ENDS: Sequence[tuple[str, Sequence[str]]] = (
    ("INVALID_CHAT_HISTORY", ["a mail to bob"]),
    ("Bob has my mail. No money was wired.", ["a mail to bob"]),
    ("I paid 10.", ["a payment of 10"]),
    ("The payment was not made.", []),
)
"""What the verdict rests on: the error or the answer of each conversation, and what was done."""
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
    outcomes: list[Outcome] = []
    shown = [Text(f"{_INTRODUCTION}\n", "bright_black")]
    for number, (title, calls, texts) in enumerate(_CONVERSATIONS, 1):
        for letter, agent in _AGENTS.items():
            outcomes.append(converse(calls, texts, patched=letter == "b"))
            shown.append(Text(f"{number}{letter}. {agent}: {title}", "bold"))
            bare = outcomes[-1 if letter == "a" else -2]
            shown += [*_drawn(outcomes[-1], bare), Text("")]
    is_as_expected = all(
        end in str(outcome.error or outcome.history[-1].text) and outcome.ran == ran
        for outcome, (end, ran) in zip(outcomes, _ENDS, strict=True)
    )
    shown.append(Text(_VERDICT if is_as_expected else _UNEXPECTED, "bold"))
    return Group(*shown), 0 if is_as_expected else 1


def _drawn(outcome: Outcome, bare: Outcome) -> Iterator[Text]:
    """The messages of a conversation, with a `+` before the results that it has only patched."""
    results = [message.text for message in bare.history if message.type == "tool"]
    for message in outcome.history:
        content = str(message.text)
        if isinstance(message, AIMessage):
            calls = [*message.tool_calls, *message.invalid_tool_calls]
            content = ", ".join(map(_call_in_words, calls)) or content
        is_new = message.type == "tool" and message.text not in results
        sign, style = ("+", "green") if is_new else (" ", "")
        yield Text(f"{sign} [{message.type}] {content}", style)
    yield Text(f"  done in the world: {', '.join(outcome.ran) or 'nothing'}", "bright_black")
    if outcome.error is not None:
        text, _, code = str(outcome.error).partition(". ")  # the rest repeats the calls
        code = "INVALID_CHAT_HISTORY: " if "INVALID_CHAT_HISTORY" in code else ""
        yield Text(f"  {type(outcome.error).__name__}: {code}{text}", "red")


def _call_in_words(call: Mapping[str, object]) -> str:
    args = call["args"]
    return f"{call['name']}({call['id']}) {args if isinstance(args, str) else json.dumps(args)}"
