"""`langgraph-patch demo`: run the same agent without patching and with it, on a SQLite file.

A ReAct agent calls two tools in parallel. One asks a human, who writes something else instead of
an answer. The model is scripted, so that no key and no network is needed.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
_NEXT_MESSAGE = "Never mind the money. What did you do?"
_ANSWER = "Bob has my mail. No money was wired."
_CALLS = [
    {"name": "send_email", "args": {"to": "bob"}, "id": "c1"},
    {"name": "wire_money", "args": {"amount": 100}, "id": "c2"},
]


class _ScriptedModel(GenericFakeChatModel):
    def bind_tools(self, *_: Any, **__: Any) -> _ScriptedModel:
        return self


def _tools(sent: list[str]) -> list[Any]:
    """The tools of the agent; `sent` records each mail."""

    @tool
    def send_email(to: str) -> str:
        """Send an email."""
        sent.append(to)
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
        mails: How many mails were sent.
    """

    before: Sequence[BaseMessage]
    after: Sequence[BaseMessage]
    error: Exception | None
    mails: int


def run_once(path: Path, *, patched: bool) -> Outcome:
    """Run the agent on the SQLite file at `path` until it fails or answers.

    Args:
        path: The file; it is created.
        patched: Whether the graph is patched.
    """
    sent: list[str] = []
    script = iter([AIMessage("", tool_calls=_CALLS), AIMessage(_ANSWER)])
    config: RunnableConfig = {"configurable": {"thread_id": "demo"}}
    with _agent(path, _ScriptedModel(messages=script), _tools(sent)) as bare:
        graph = with_patching(bare) if patched else bare
        graph.invoke({"messages": [("human", _QUESTION)]}, config)
        # Not get_state(): it shows the result of the finished tool as if it were in the history.
        before = _stored(bare, config)
        error = None
        try:
            graph.invoke({"messages": [("human", _NEXT_MESSAGE)]}, config)
        except ValueError as raised:  # what create_react_agent raises on a broken history
            error = raised
        return Outcome(before, _stored(bare, config), error, len(sent))


@contextmanager
def _agent(
    path: Path, model: _ScriptedModel, tools: list[Any]
) -> Iterator[CompiledStateGraph[Any, Any, Any, Any]]:
    with SqliteSaver.from_conn_string(str(path)) as saver, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # create_react_agent is deprecated
        yield create_react_agent(model, tools, checkpointer=saver)


def _stored(graph: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig) -> Any:
    checkpointer = graph.checkpointer
    assert isinstance(checkpointer, SqliteSaver)  # noqa: S101 - by _agent
    found = checkpointer.get_tuple(config)
    return found.checkpoint["channel_values"]["messages"] if found else []


def run(console: Console | None = None) -> int:
    """Run the agent without patching and with it, and print both conversations.

    Args:
        console: Where to print. Default: standard output.

    Returns:
        0 if the run without patching failed and the patched one answered, else 1.
    """
    console = console or Console(highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        bare = run_once(Path(folder) / "bare.sqlite", patched=False)
        patched = run_once(Path(folder) / "patched.sqlite", patched=True)
    _print_run(console, "1. create_react_agent(...)", bare)
    _print_run(console, "2. with_patching(create_react_agent(...))", patched)
    is_as_expected = _failed(bare) and _answered(patched)
    verdict = (
        "Without patching, this turn fails, and so does every later turn of the thread.\n"
        "With patching, the thread continues, and the model knows that the mail was sent."
        if is_as_expected
        else "This is not what should have happened: please report it."
    )
    console.print(Text(verdict, style="bold"))
    return 0 if is_as_expected else 1


def _failed(outcome: Outcome) -> bool:
    return outcome.error is not None and "INVALID_CHAT_HISTORY" in str(outcome.error)


def _answered(outcome: Outcome) -> bool:
    contents = [m.content for m in outcome.after if isinstance(m, AIMessage | ToolMessage)]
    return outcome.error is None and contents[-1] == _ANSWER and "sent to bob" in contents


def _print_run(console: Console, title: str, outcome: Outcome) -> None:
    console.print(Text(title, style="bold"))
    ids_before = {message.id for message in outcome.before}
    for message in outcome.after:
        is_inserted = isinstance(message, ToolMessage) and message.id not in ids_before
        console.print(_line(message, is_inserted=is_inserted))
    console.print(Text(f"  mails sent: {outcome.mails}", style="dim"))
    if outcome.error is not None:
        reason = str(outcome.error).splitlines()[0]
        code = "INVALID_CHAT_HISTORY: " if _failed(outcome) else ""
        console.print(Text(f"  {type(outcome.error).__name__}: {code}{reason}", style="red"))
    console.print()


def _line(message: BaseMessage, *, is_inserted: bool) -> Text:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    content = ", ".join(f"{call['name']}({call['id']})" for call in calls) or message.text
    sign, style = ("+", "green") if is_inserted else (" ", "")
    return Text(f"{sign} [{message.type}] {content}", style=style)
