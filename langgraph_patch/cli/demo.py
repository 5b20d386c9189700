"""`langgraph-patch demo`: the same run without patching and with it, on a SQLite file.

A real ReAct agent, two parallel tools, a question to a human, and a human who writes
something else. No key, no network; the model is scripted.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import interrupt
from rich.console import Console
from rich.text import Text

from langgraph_patch.graph.patching import with_patching

_QUESTION = "Write to Bob and wire him 100."
_OTHER = "Never mind the money. What did you do?"
_ANSWER = "Bob has my mail. No money was wired."
_CALLS = [
    {"name": "send_email", "args": {"to": "bob"}, "id": "c1"},
    {"name": "wire_money", "args": {"amount": 100}, "id": "c2"},
]


class _ScriptedModel(GenericFakeChatModel):
    def bind_tools(self, *_: Any, **__: Any) -> _ScriptedModel:
        return self


@dataclass
class _World:
    """What the tools have really done."""

    mails: list[str] = field(default_factory=list)

    def tools(self) -> list[Any]:
        @tool
        def send_email(to: str) -> str:
            """Send an email."""
            self.mails.append(to)
            return f"sent to {to}"

        @tool
        def wire_money(amount: int) -> str:
            """Wire money, if a human agrees."""
            return str(interrupt(f"Wire {amount}?"))

        return [send_email, wire_money]


@dataclass(frozen=True)
class Outcome:
    """How one run ended.

    Attributes:
        before: The history when the agent waited for the human.
        after: The history after the human wrote something else.
        error: What the second call raised, or None if the agent answered.
        mails: How many mails went out.
    """

    before: Sequence[BaseMessage]
    after: Sequence[BaseMessage]
    error: Exception | None
    mails: int


def run_once(path: Path, *, patched: bool) -> Outcome:
    """Run the agent over the SQLite file at `path` until it dies or answers."""
    world = _World()
    script = iter([AIMessage("", tool_calls=_CALLS), AIMessage(_ANSWER)])
    config: RunnableConfig = {"configurable": {"thread_id": "demo"}}
    with _agent(path, _ScriptedModel(messages=script), world.tools()) as bare:
        graph = with_patching(bare) if patched else bare
        graph.invoke({"messages": [("human", _QUESTION)]}, config)
        # get_state() shows the finished tool's result as if it were safe. It is not yet.
        before = _stored(bare, config)
        error = None
        try:
            graph.invoke({"messages": [("human", _OTHER)]}, config)
        except ValueError as raised:  # what create_react_agent raises on a broken history
            error = raised
        return Outcome(before, _stored(bare, config), error, len(world.mails))


@contextmanager
def _agent(
    path: Path, model: _ScriptedModel, tools: list[Any]
) -> Iterator[CompiledStateGraph[Any, Any, Any, Any]]:
    with SqliteSaver.from_conn_string(str(path)) as saver, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it moved to langchain; here LangGraph's own is shown
        yield create_react_agent(model, tools, checkpointer=saver)


def _stored(graph: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig) -> Any:
    checkpointer = graph.checkpointer
    assert isinstance(checkpointer, SqliteSaver)  # noqa: S101 - by _agent
    found = checkpointer.get_tuple(config)
    return found.checkpoint["channel_values"]["messages"] if found else []


def run(console: Console | None = None) -> int:
    """Run both and print them.

    Args:
        console: Where to print. Default: the standard output.

    Returns:
        0 if the bare thread died of its history and the patched one went on, else 1.
    """
    console = console or Console(highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        bare = run_once(Path(folder) / "bare.sqlite", patched=False)
        patched = run_once(Path(folder) / "patched.sqlite", patched=True)
    _print_run(console, "1. create_react_agent(...)", bare)
    _print_run(console, "2. with_patching(create_react_agent(...))", patched)
    good = _died(bare) and _went_on(patched)
    verdict = (
        "Without patching the thread is dead, and so is every later turn.\n"
        "With it the thread goes on, and the model knows that the mail went out."
        if good
        else "This is not what should have happened: please report it."
    )
    console.print(Text(verdict, style="bold"))
    return 0 if good else 1


def _died(outcome: Outcome) -> bool:
    return outcome.error is not None and "INVALID_CHAT_HISTORY" in str(outcome.error)


def _went_on(outcome: Outcome) -> bool:
    said = [m.content for m in outcome.after if isinstance(m, AIMessage | ToolMessage)]
    return outcome.error is None and said[-1] == _ANSWER and "sent to bob" in said


def _print_run(console: Console, title: str, outcome: Outcome) -> None:
    console.print(Text(title, style="bold"))
    known = {message.id for message in outcome.before}
    for message in outcome.after:
        console.print(_line(message, inserted=_is_inserted(message, known)))
    console.print(Text(f"  mails sent: {outcome.mails}", style="dim"))
    if outcome.error is not None:
        reason = str(outcome.error).splitlines()[0]
        code = "INVALID_CHAT_HISTORY: " if _died(outcome) else ""
        console.print(Text(f"  {type(outcome.error).__name__}: {code}{reason}", style="red"))
    console.print()


def _is_inserted(message: BaseMessage, known: set[str | None]) -> bool:
    return isinstance(message, ToolMessage) and message.id not in known


def _line(message: BaseMessage, *, inserted: bool) -> Text:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    said = ", ".join(f"{call['name']}({call['id']})" for call in calls) or message.text
    mark, style = ("+", "green") if inserted else (" ", "")
    return Text(f"{mark} [{message.type}] {said}", style=style)
