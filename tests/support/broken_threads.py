"""Threads in a database, broken in every way by graphs that know nothing of this package.

`make_threads(saver, count)` runs real agents: each ends as an application's thread would after
a closed tab, a crash, a cancelled task or an edited history. The outcome of each is returned.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from unittest.mock import patch

from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from support.agents import KINDS, Graph, Kind, Tools, both_calls, human, thread
from support.damaged import DAMAGED
from support.strict import RefusedError, StrictModel, ai

Saver = BaseCheckpointSaver[Any]


class KilledError(BaseException):
    """Simulates `kill -9`: nothing of the process runs on."""


@dataclass(frozen=True, slots=True)
class Made:
    """One thread, and its expected outcome.

    Attributes:
        thread_id: The thread.
        kind: The agent that ran it.
        way: What happened to it.
        status: What a scan must find.
        real_results: Results of tools that really ran: a repair must not lose them.
        namespace: Where the damage is.
    """

    thread_id: str
    kind: str
    way: str
    status: str
    real_results: frozenset[str] = frozenset()
    namespace: str = ""


def kind_of(name: str) -> Kind:
    """The kind with that name."""
    return next(kind for kind in KINDS if kind.name == name)


def application(name: str, saver: Saver | None, *script: Any, asynchronous: bool = False) -> Graph:
    """The graph that the application runs; `script` is what its model says."""
    if name == "parent_of_stateful":
        return stateful_child(saver, *script)
    tools = Tools(asynchronous=asynchronous, asks=kind_of(name).asks)
    value = [*tools.tools(), StructuredTool.from_function(boom)]
    return kind_of(name).build(StrictModel(script=list(script)), value, checkpointer=saver)


@cache
def _silent(name: str) -> Graph:
    return application(name, None)


def silent(name: str, saver: Saver) -> Graph:
    """The application's graph with a model that has no script: enough to read and to repair."""
    return _silent(name).copy({"checkpointer": saver})


def boom(x: int) -> str:
    """Fail, if possible after a sibling has finished."""
    time.sleep(0.02)
    raise RuntimeError(f"kaput {x}")


def sent(saver: Saver, config: Any) -> frozenset[str]:
    """What is on record of the mail: a sibling that fails first leaves it unrecorded."""
    saved = list(saver.list(config))
    return _SENT if any("sent to bob" in repr(each.pending_writes) for each in saved) else _NONE


def say(graph: Graph, config: Any, text: str, **options: Any) -> None:
    """Write to a thread as a human does; a model that refuses it is what breaks threads."""
    with suppress(RefusedError, ValueError, RuntimeError, KilledError, GraphRecursionError):
        graph.invoke({"messages": [human(text, f"{text}-{config['configurable']['thread_id']}")]},
                     config, **options)  # fmt: skip


def answer() -> AIMessage:
    """A plain answer of the model; the id is the graph's business."""
    return AIMessage("done")


# --- ways to end -------------------------------------------------------------------------

_SENT, _NONE = frozenset({"sent to bob"}), frozenset[str]()
Way = Callable[[str, Saver, Any], tuple[str, frozenset[str]]]


def healthy(kind: str, saver: Saver, config: Any) -> tuple[str, frozenset[str]]:
    """Two turns, the first with a tool."""
    graph = application(kind, saver, ai(("send_email", {"to": "bob"}, "c1")), answer(), answer())
    say(graph, config, "go")
    say(graph, config, "thanks")
    return "healthy", _SENT


def resumed(kind: str, saver: Saver, config: Any) -> tuple[str, frozenset[str]]:
    """A human was asked and answered."""
    graph = application(kind, saver, both_calls(), answer())
    say(graph, config, "go")
    graph.invoke(Command(resume=kind_of(kind).yes), config)
    return "healthy", _SENT


def paused(kind: str, saver: Saver, config: Any) -> tuple[str, frozenset[str]]:
    """A human is asked."""
    say(application(kind, saver, both_calls()), config, "go")
    return "paused", frozenset()


def abandoned(kind: str, saver: Saver, config: Any) -> tuple[str, frozenset[str]]:
    """F1, F2: a human was asked, and wrote something else; the sibling had finished."""
    graph = application(kind, saver, both_calls(), answer())
    say(graph, config, "go")
    say(graph, config, "never mind")
    return "damaged", _SENT if kind in _ONE_TASK_EACH else frozenset()


def abandoned_long_ago(kind: str, saver: Saver, config: Any) -> tuple[str, frozenset[str]]:
    """The same; the human tried again and again."""
    expected_results = abandoned(kind, saver, config)[1]
    for attempt in range(3):
        say(application(kind, saver, answer()), config, f"hello {attempt}")
    return "damaged", expected_results


def failed(kind: str, saver: Saver, config: Any) -> tuple[str, frozenset[str]]:
    """F2: a sibling raised, and the human wrote again."""
    calls = ai(("send_email", {"to": "bob"}, "c1"), ("boom", {"x": 1}, "c2"), id="a1")
    graph = application(kind, saver, calls, answer())
    say(graph, config, "go")
    say(graph, config, "what happened?")
    return "damaged", sent(saver, config)


def failed_at_the_tail(kind: str, saver: Saver, config: Any) -> tuple[str, frozenset[str]]:
    """The same, before the human wrote again."""
    calls = ai(("send_email", {"to": "bob"}, "c1"), ("boom", {"x": 1}, "c2"), id="a1")
    say(application(kind, saver, calls), config, "go")
    return "damaged", sent(saver, config)


def limited(kind: str, saver: Saver, config: Any) -> tuple[str, frozenset[str]]:
    """F22: the recursion limit came before the tools."""
    graph = application(kind, saver, both_calls())
    hooks = [name for name in graph.nodes if ".before_" in name]
    say(graph, {**config, "recursion_limit": len(hooks) + 1}, "go")
    return "damaged", frozenset()


def killed(kind: str, saver: Saver, config: Any) -> tuple[str, frozenset[str]]:
    """F34: the tools wrote their results, and no checkpoint took them."""
    calls = ai(("send_email", {"to": "bob"}, "c1"), ("send_email", {"to": "eve"}, "c2"), id="a1")
    graph = application(kind, saver, calls, answer())
    with patch.object(saver, "put", partial(_killed_after_tools, saver.put)):
        say(graph, config, "go", durability="sync")
    return "damaged", frozenset({"sent to bob", "sent to eve"})


def _killed_after_tools(put: Any, config: Any, checkpoint: Any, *rest: Any) -> Any:
    stored = checkpoint["channel_values"].get("messages") or []
    seen = checkpoint["versions_seen"]
    if any(m.type == "tool" for m in getattr(stored, "value", stored)) or "tools" in seen:
        raise KilledError
    return put(config, checkpoint, *rest)


def cancelled(kind: str, saver: Saver, config: Any) -> tuple[str, frozenset[str]]:
    """F22: the run's task was cancelled while a tool was at work."""
    began = asyncio.Event()

    async def slow(x: int) -> str:
        """Take long."""
        began.set()
        await asyncio.sleep(60)
        return "late"

    tools = [StructuredTool.from_function(coroutine=slow, name="slow")]
    model = StrictModel(script=[ai(("slow", {"x": 1}, "c1"), id="a1")])
    graph = kind_of(kind).build(model, tools, checkpointer=_InThreads(saver))

    async def run() -> None:
        message = {"messages": [human("go", f"go-{config['configurable']['thread_id']}")]}
        task = asyncio.create_task(graph.ainvoke(message, config))
        await began.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(run())
    return "damaged", frozenset()


class _InThreads(Saver):
    """A sync saver for an async run."""

    def __init__(self, saver: Saver) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.saver.get_next_version(current, channel)

    async def aget_tuple(self, config: Any) -> Any:
        return self.saver.get_tuple(config)

    async def aput(self, *args: Any) -> Any:
        return self.saver.put(*args)

    async def aput_writes(self, *args: Any) -> None:
        self.saver.put_writes(*args)

    async def aget_delta_channel_history(self, **kwargs: Any) -> Any:
        return self.saver.get_delta_channel_history(**kwargs)


def edited(name: str) -> Way:
    """The history was damaged when it was written: an import, a trim, another framework."""

    def way(kind: str, saver: Saver, config: Any) -> tuple[str, frozenset[str]]:
        graph = silent(kind, saver)
        history = copy.deepcopy(DAMAGED[name])
        graph.update_state(config, {"messages": history}, as_node=START)
        graph.update_state(config, None, as_node="__end__")
        return "damaged", frozenset()

    way.__doc__ = name
    return way


_ONE_TASK_EACH = ("react_v2", "create_agent", "create_deep_agent")
_RUN: dict[str, Way] = {
    way.__name__: way
    for way in (
        healthy,
        resumed,
        paused,
        abandoned,
        abandoned_long_ago,
        failed,
        failed_at_the_tail,
        limited,
        killed,
        cancelled,
    )
}
_HEALS = ("abandoned", "abandoned_long_ago", "failed")
"""What the repair of deepagents itself makes valid (and untrue)."""

_SOUND = ("F25-stored-chunk-answered", "F27-server-tool", "F27-server-tool-still-running")
"""Histories that need no repair, and must get none."""


def ways_of(kind: str) -> list[tuple[str, Way]]:
    """All that can happen to one kind of agent."""
    run = [(name, way) for each, name, way in ways() if each == kind and name in _RUN]
    return run + [(name, way) for _, name, way in ways() if name not in _RUN]


def ways() -> list[tuple[str, str, Way]]:
    """Every kind of agent and what can happen to it."""
    found = []
    for kind in KINDS:
        for name, way in _RUN.items():
            if kind.heals and name in _HEALS:
                continue
            if kind.name.startswith("react") and way is limited:
                continue  # it says that it needs more steps
            found.append((kind.name, name, way))
    edits = [name for name in DAMAGED if name not in _SOUND]
    for place, name in enumerate(edits):
        found.append((KINDS[place % 5].name, name, edited(name)))
    return found


def make_threads(saver: Saver, count: int) -> list[Made]:
    """`count` threads; every way at least once if there are that many."""
    made = []
    every = ways()
    for number in range(count):
        kind, name, way = every[number % len(every)]
        thread_id = f"thread-{number:05}"
        status, expected_results = way(kind, saver, thread(thread_id))
        made.append(Made(thread_id, kind, name, status, expected_results))
    return made


# --- a subgraph with a memory of its own ----------------------------------------------------


def stateful_child(saver: Saver | None, *script: Any) -> Graph:
    """A graph with a node that runs an agent with its own history (`checkpointer=True`)."""
    model = StrictModel(script=list(script))
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(Tools().tools()))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    child = builder.compile(checkpointer=True)

    def delegate(state: Any) -> Any:
        texts = child.invoke({"messages": [state["messages"][-1]]})
        return {"messages": [AIMessage(texts["messages"][-1].text)]}

    parent = StateGraph(MessagesState)
    parent.add_node("delegate", delegate)
    parent.add_edge(START, "delegate")
    return parent.compile(checkpointer=saver)
