"""`langgraph-patch demo`: run the same agent without patching and with it, on SQLite files.

Two things happen to a ReAct agent. It calls two tools in parallel, one asks a human, and the human
writes something else. And the stream of its model is cut inside the arguments of a tool call. The
model is scripted, so that no key and no network is needed; all else is real.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import interrupt

from langgraph_patch.cli.output import page_width, print_lines, terminal_width
from langgraph_patch.graph.with_patching import with_patching
from langgraph_patch.history.placeholders import is_placeholder
from langgraph_patch.render.columns import Line, Piece, wrapped

_QUESTION = "Write to Bob and wire him 100."
_NEXT_MESSAGE = "Never mind the money. What did you do?"
_ANSWER = "Bob has my mail. No money was wired."
_CALLS = AIMessage(
    "",
    tool_calls=[
        {"name": "send_email", "args": {"to": "bob"}, "id": "c1"},
        {"name": "wire_money", "args": {"amount": 100}, "id": "c2"},
    ],
)

_CUT_QUESTION = "Pay the invoice of 1000."
_CUT_ARGUMENTS = '{"amount": 10'  # 1000 was not written to its end
_CUT_CALL = AIMessageChunk(
    content="", tool_call_chunks=[{"name": "pay", "args": _CUT_ARGUMENTS, "id": "p1", "index": 0}]
)
_CUT_ANSWER = "The result above is all that I know of the payment."


class _ScriptedModel(BaseChatModel):
    """Gives one message of a script after the other; a chunk is all that a cut stream gives."""

    script: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> _ScriptedModel:
        return self

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.script.pop(0))])

    def _stream(self, *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        message = self.script.pop(0)
        chunk = (
            message if isinstance(message, AIMessageChunk) else AIMessageChunk(content=message.text)
        )
        yield ChatGenerationChunk(message=chunk)


@dataclass(frozen=True)
class Outcome:
    """How one run ended.

    Attributes:
        before: The history when the agent waited for the human.
        after: The history after the human wrote something else.
        error: What the second call raised, or None if the agent answered.
        ran: What the tools did in the world.
    """

    before: Sequence[BaseMessage]
    after: Sequence[BaseMessage]
    error: Exception | None
    ran: Sequence[str]


# --- the two conversations ---------------------------------------------------------------


def run_once(path: Path, *, patched: bool) -> Outcome:
    """A human writes something else over a pause; the agent fails or answers.

    Args:
        path: The SQLite file; it is created.
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

    model = _ScriptedModel(script=[_CALLS, AIMessage(_ANSWER)])
    with _agent(path, model, [send_email, wire_money]) as bare:
        graph = with_patching(bare) if patched else bare
        graph.invoke({"messages": [("human", _QUESTION)]}, _THREAD)
        # Not get_state(): it shows the result of the finished tool as if it were in the history.
        before = _stored(bare)
        error = None
        try:
            graph.invoke({"messages": [("human", _NEXT_MESSAGE)]}, _THREAD)
        except ValueError as raised:  # what create_react_agent raises on a broken history
            error = raised
        return Outcome(before, _stored(bare), error, ran)


def run_cut(path: Path, *, patched: bool) -> Outcome:
    """The stream of the model is cut inside the arguments of a tool call.

    Args:
        path: The SQLite file; it is created.
        patched: Whether the graph is patched.
    """
    ran: list[str] = []

    @tool
    def pay(amount: int) -> str:
        """Pay an invoice."""
        ran.append(f"a payment of {amount}")
        return f"paid {amount}"

    model = _ScriptedModel(script=[_CUT_CALL, AIMessage(_CUT_ANSWER)])
    with _agent(path, model, [pay]) as bare:
        graph = with_patching(bare) if patched else bare
        for _ in graph.stream(
            {"messages": [("human", _CUT_QUESTION)]}, _THREAD, stream_mode="messages"
        ):
            pass
        return Outcome((), _stored(bare), None, ran)


_THREAD: RunnableConfig = {"configurable": {"thread_id": "demo"}}


@contextmanager
def _agent(
    path: Path, model: _ScriptedModel, tools: list[Any]
) -> Iterator[CompiledStateGraph[Any, Any, Any, Any]]:
    with SqliteSaver.from_conn_string(str(path)) as saver, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # create_react_agent is deprecated
        yield create_react_agent(model, tools, checkpointer=saver)


def _stored(graph: CompiledStateGraph[Any, Any, Any, Any]) -> Any:
    checkpointer = graph.checkpointer
    assert isinstance(checkpointer, SqliteSaver)  # noqa: S101 - by _agent
    found = checkpointer.get_tuple(_THREAD)
    return found.checkpoint["channel_values"]["messages"] if found else []


# --- what is printed ---------------------------------------------------------------------

_INTRODUCTION = "The model is scripted. LangGraph, the tools and the checkpoints are real."
_BARE_VERDICT = (
    "Without patching, the first thread is dead: every later turn fails too. In the second one "
    "a tool ran with an amount that the model did not write."
)
_PATCHED_VERDICT = (
    "With patching, both threads go on. The model knows that the mail was sent, and nothing ran "
    "that it did not finish writing."
)
_UNEXPECTED = "This is not what should have happened: please report it."


def run(_: argparse.Namespace) -> int:
    """Run both conversations without patching and with it, and print them.

    Returns:
        0 if they failed without patching and went on with it, else 1.
    """
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            function(Path(folder) / f"{function.__name__}-{patched}.sqlite", patched=patched)
            for function in (run_once, run_cut)
            for patched in (False, True)
        ]
    titles = [
        f"{number}{letter}. {agent}: {title}"
        for number, title in (
            (1, "a new message over a pause"),
            (2, f"the model's stream ends after {_CUT_ARGUMENTS}"),
        )
        for letter, agent in (
            ("a", "create_react_agent(...)"),
            ("b", "with_patching(create_react_agent(...))"),
        )
    ]
    width = terminal_width()
    print_lines([*_fitted([Piece(_INTRODUCTION, "dim")], width), []])
    for title, outcome in zip(titles, runs, strict=True):
        print_lines(_fitted(_pieces_of_run(title, outcome), width))
        print_lines([[]])
    is_as_expected = _is_as_expected(*runs)
    verdict = (_BARE_VERDICT, _PATCHED_VERDICT) if is_as_expected else (_UNEXPECTED,)
    print_lines(_fitted((Piece(text, "bold") for text in verdict), page_width(), indent=""))
    return 0 if is_as_expected else 1


def _is_as_expected(bare: Outcome, patched: Outcome, cut: Outcome, guarded: Outcome) -> bool:
    contents = [m.content for m in patched.after if isinstance(m, AIMessage | ToolMessage)]
    goes_on = patched.error is None and contents[-1] == _ANSWER and "sent to bob" in contents
    return (
        _has_failed(bare)
        and goes_on
        and list(cut.ran) == ["a payment of 10"]
        and not guarded.ran
        and guarded.after[-1].text == _CUT_ANSWER
    )


def _has_failed(outcome: Outcome) -> bool:
    return outcome.error is not None and "INVALID_CHAT_HISTORY" in str(outcome.error)


def _pieces_of_run(title: str, outcome: Outcome) -> Iterator[Piece]:
    yield Piece(title, "bold")
    ids_before = {message.id for message in outcome.before}
    for message in outcome.after:
        is_recovered = isinstance(message, ToolMessage) and message.id not in ids_before
        is_inserted = is_placeholder(message) or (is_recovered and bool(outcome.before))
        yield _piece_of_message(message, is_inserted=is_inserted)
    yield Piece(f"  done in the world: {', '.join(outcome.ran) or 'nothing'}", "dim")
    if outcome.error is not None:
        reason, _, _ = str(outcome.error).partition(". ")  # the rest repeats the calls
        code = "INVALID_CHAT_HISTORY: " if _has_failed(outcome) else ""
        yield Piece(f"  {type(outcome.error).__name__}: {code}{reason}", "red")


def _fitted(pieces: Iterable[Piece], width: int | None, indent: str = "    ") -> Iterator[Line]:
    """Each piece as one line, or as several lines if the terminal is narrower."""
    for text, style in pieces:
        # The sign in front is no word: it must not be broken off, or taken as the indentation.
        sign, rest = text[: len(indent) // 2], text[len(indent) // 2 :]
        first, *others = [rest] if width is None else wrapped(rest, width - len(indent))
        yield [Piece(sign + first, style)]
        yield from ([Piece(indent + other, style)] for other in others)


def _piece_of_message(message: BaseMessage, *, is_inserted: bool) -> Piece:
    content = str(message.text)
    if isinstance(message, AIMessage):
        calls = [*message.tool_calls, *message.invalid_tool_calls]
        content = ", ".join(_call_in_words(call) for call in calls) or content
    sign, style = ("+", "green") if is_inserted else (" ", "")
    return Piece(f"{sign} [{message.type}] {content}", style)


def _call_in_words(call: Mapping[str, object]) -> str:
    args = call["args"]
    return f"{call['name']}({call['id']}) {args if isinstance(args, str) else json.dumps(args)}"
