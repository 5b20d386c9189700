"""Stored threads that graphs without this package broke, and checkpointers that fail."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any
from unittest.mock import patch

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

import kit
from kit import Agent, DeltaState, calls, loop, send_each
from langgraph_patch import PatchError
from langgraph_patch.testing import RefusedError
from langgraph_patch.threads import scan_threads
from support import placeholder_texts as texts

MAIL, WIRE, BOOM = ("mail", {"to": "bob"}), ("wire", {"amount": 5}), ("boom", {"text": "x"})
WAITED = texts.WAITED.format("wire", "{}")


def thread(name: str = "1", **names: str) -> Any:
    """The config of a thread."""
    return {"configurable": {"thread_id": name, **names}}


# --- graphs ---------------------------------------------------------------------------------


def delta(model: Any, tools: Any, saver: Any) -> Any:
    """A loop whose history is spread over checkpoints."""
    return loop(model, tools, state=DeltaState, router=send_each).compile(checkpointer=saver)


def stateful_child(model: Any, tools: Any, saver: Any) -> Any:
    """A graph that calls an agent with a history of its own, in the namespace `delegate`."""
    child = loop(model, tools).compile(checkpointer=True)

    def delegate(state: MessagesState) -> Any:
        answer = child.invoke({"messages": [state["messages"][-1]]})
        return {"messages": [AIMessage(answer["messages"][-1].text)]}

    parent = StateGraph(MessagesState).add_node("delegate", delegate).add_edge(START, "delegate")
    return parent.compile(checkpointer=saver)


def deep(model: Any, tools: Any, saver: Any) -> Any:
    """A deep agent, whose history is in a `DeltaChannel`; not every run has its package."""
    return import_module("deepagents").create_deep_agent(model, tools, checkpointer=saver)


BARE = {graph.__name__: graph for graph in (delta, stateful_child, deep)}
BARE |= {"hand_built": kit.BARE["hand_built"], "agent": kit.BARE["create_agent"]}
"""A hand-built loop runs its tools in one task, so that no result beside a pause is recorded."""


# --- threads --------------------------------------------------------------------------------


class KilledError(BaseException):
    """The process died."""


def stored(way: str, kind: str = "agent", saver: Any = None, thread_id: str = "1") -> Agent:
    """An agent of `BARE` without this package, and what happened to its thread.

    `healthy`, `paused`, `abandoned` (the human wrote something else), `failed` (a tool),
    `failed_and_on`, `limited` (before the tools), `killed` (after them) or `new`.
    """
    script = {
        "healthy": [calls(MAIL), AIMessage("mailed")],
        "failed": [calls(MAIL, BOOM)],
        "failed_and_on": [calls(MAIL, BOOM)],
        "killed": [calls(MAIL, ("mail", {"to": "eve"}))],
    }.get(way, [calls(MAIL, WIRE)])
    made = Agent(BARE[kind], *script, saver=saver)
    put = made.graph.checkpointer.put

    def dies(config: Any, checkpoint: Any, *rest: Any) -> Any:
        if "tools" in checkpoint["versions_seen"]:
            raise KilledError
        return put(config, checkpoint, *rest)

    made.config = {**thread(thread_id), **({"recursion_limit": 1} if way == "limited" else {})}
    with suppress(RuntimeError, KilledError):  # of the tool, or of the recursion limit
        if way == "killed":
            with patch.object(made.graph.checkpointer, "put", dies):
                made.say("go", durability="sync")
        elif way != "new":
            made.say("go")
    made.config = thread(thread_id)
    if way in ("abandoned", "failed_and_on"):
        with suppress(RefusedError):
            made.say("never mind")
    return made


def write(made: Agent, messages: Sequence[Any], node: str = START) -> Agent:
    """Put messages into a thread, as an import or an editor does."""
    made.graph.update_state(made.config, {"messages": list(messages)}, as_node=node)
    return made


def lines(messages: Sequence[BaseMessage]) -> list[str]:
    """A line for each message: its type, and its calls or its text."""
    return [
        f"{m.type}: {', '.join(c['name'] for c in getattr(m, 'tool_calls', ())) or m.text}"
        for m in messages
    ]


def results(messages: Sequence[BaseMessage]) -> list[str]:
    """The texts of the results."""
    return [message.text for message in messages if isinstance(message, ToolMessage)]


def scanned(saver: Any, **options: Any) -> list[tuple[str, str]]:
    """The id and the status of each history."""
    return [(report.thread_id, report.status) for report in scan_threads(saver, **options)]


# --- checkpointers of other packages --------------------------------------------------------


class Foreign(BaseCheckpointSaver[str]):
    """Keeps to the interface of a checkpointer, and lists no threads."""

    def __init__(self) -> None:
        self.kept = InMemorySaver()
        super().__init__(serde=self.kept.serde)

    def get_tuple(self, config: Any) -> Any:
        return self.kept.get_tuple(config)

    def list(self, config: Any, **options: Any) -> Any:
        if config is None:
            raise ValueError("Runnable config must contain thread_id")
        yield from self.kept.list(config, **options)

    def put(self, *args: Any) -> Any:
        return self.kept.put(*args)

    def put_writes(self, *args: Any) -> None:
        self.kept.put_writes(*args)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.kept.get_next_version(current, channel)


# --- checkpointers that fail once, at a call that the test chooses -------------------------------


class FaultError(Exception):
    """What a broken checkpointer raises."""


class Faults:
    """Counts the calls of a checkpointer; call number `at` fails, 0 for none."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    @property
    def failed(self) -> bool:
        """Whether the call that was to fail has come."""
        return 0 < self.at <= self.seen

    def note(self, method: str) -> None:
        """Count a call."""
        self.seen += 1
        if self.seen == self.at:
            raise FaultError(f"call {self.at}: {method}")


def _counted(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.faults.note(name)
        return getattr(InMemorySaver, name)(self, *args, **kwargs)

    return method


class FaultyMemory(InMemorySaver):
    """A checkpointer with `faults`."""

    faults: Faults
    get_tuple = _counted("get_tuple")
    put = _counted("put")
    put_writes = _counted("put_writes")
    get_delta_channel_history = _counted("get_delta_channel_history")

    def list(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Count the begin and the end."""
        self.faults.note("list")
        yield from super().list(*args, **kwargs)
        self.faults.note("the end of list")


def each_fault(source: InMemorySaver) -> Iterator[Any]:
    """Copies of a checkpointer; in each the next call fails, until all calls were done."""
    at, failed = 0, True
    while failed:
        at += 1
        saver = FaultyMemory()
        for part in ("storage", "writes", "blobs"):
            setattr(saver, part, copy.deepcopy(getattr(source, part)))
        faults = saver.faults = Faults(at)
        yield saver
        failed = faults.failed
    assert at > 3


def result_of(act: Callable[[], Any]) -> Any:
    """What `act` returns, or the checkpointer's own error, or a `PatchError` that names it."""
    try:
        return act()
    except (FaultError, PatchError) as error:
        if isinstance(error, FaultError) or ("FaultError" in str(error) and error.__cause__):
            return error
        raise
