"""Check what a checkpointer supports, each capability on new threads of a real graph.

The store need not be empty.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt

from langgraph_patch._sansio import IOGenerator, IORequest, call_method, run_async, run_sync
from langgraph_patch.errors import ThreadError
from langgraph_patch.graph.with_patching import with_patching
from langgraph_patch.history.patch import validate_messages
from langgraph_patch.threads import (
    ThreadRepair,
    ThreadReport,
    arepair_thread,
    ascan_threads,
    aundo_repair,
    repair_thread,
    scan_threads,
    undo_repair,
)

Capability = Literal["recover", "scan", "repair", "undo"]
"""What a checkpointer may support."""

CAPABILITIES: tuple[Capability, ...] = get_args(Capability)
"""All capabilities: `recover` (a patched graph finds recorded results), `scan` (`scan_threads`),
`repair` (`repair_thread`) and `undo` (`undo_repair`)."""


def check_checkpointer(
    capability: Capability,
    open_saver: Callable[[], AbstractContextManager[BaseCheckpointSaver[Any]]],
) -> None:
    """Check one capability of a checkpointer; its tables exist already.

    Raises:
        AssertionError: If the checkpointer does not behave as the capability needs it.
        ThreadError: If it does not support the capability. The message says why.
    """
    with open_saver() as saver:
        run_sync(_CHECKS[capability](_Threads(saver, uuid.uuid4().hex)))


async def acheck_checkpointer(
    capability: Capability,
    open_saver: Callable[[], AbstractAsyncContextManager[BaseCheckpointSaver[Any]]],
) -> None:
    """As `check_checkpointer`, for an asynchronous checkpointer."""
    async with open_saver() as saver:
        await run_async(_CHECKS[capability](_Threads(saver, uuid.uuid4().hex)))


# --- the checks --------------------------------------------------------------------------


def _check_recover(threads: _Threads) -> IOGenerator[None]:
    """The next message of a patched graph goes through, and the model reads the real result."""
    yield from threads.pause("a")
    yield from threads.say("a", "never mind", graph=with_patching(threads.graph))
    history = yield from threads.history("a")
    _expect("the history of the next turn", _texts(history), ["go", "", _SENT, _ANY, *_NEVER_MIND])


def _check_scan(threads: _Threads) -> IOGenerator[None]:
    """Each thread has its status, alone and among all others."""
    yield from threads.say("a", "hello")
    yield from threads.damage("b")
    yield from threads.pause("c")
    expected = {"a": "healthy", "b": "damaged", "c": "paused"}
    ids = [threads.id_of(name) for name in expected]
    chosen = yield from threads.scan(thread_ids=ids)
    _expect("the statuses of chosen threads", [r.status for r in chosen], [*expected.values()])
    every = yield from threads.scan()
    found = {r.thread_id: r.status for r in every if r.thread_id in ids}
    _expect("the statuses of all threads", found, dict(zip(ids, expected.values(), strict=True)))
    [damaged] = [report for report in chosen if report.patch]
    planned = damaged.patch.messages if damaged.patch else []
    _expect("the planned history", _texts(planned), ["go", "", _SENT, _ANY, "never mind"])


def _check_repair(threads: _Threads) -> IOGenerator[None]:
    """A damaged thread accepts its next message, and a pause keeps waiting for its answer."""
    yield from threads.damage("a")
    yield from threads.pause("b")
    repair = yield from threads.repair("a")
    _expect(f"the outcome ({repair})", repair.outcome, "repaired")
    repaired = ["go", "", _SENT, _ANY, "never mind"]
    _expect("the history", _texts((yield from threads.history("a"))), repaired)
    _expect("the outcome again", (yield from threads.repair("a")).outcome, "healthy")
    yield from threads.say("a", "hello")
    history = yield from threads.history("a")
    _expect("the history of the next turn", _texts(history), [*repaired, "hello", "done"])
    _expect("the outcome of a pause", (yield from threads.repair("b")).outcome, "paused")
    yield from call_method(threads.graph, "invoke", Command(resume="yes"), threads.config("b"))
    answered = _texts((yield from threads.history("b")))
    _expect("the answered pause", answered, ["go", "", _SENT, "wired: yes", "done"])


def _check_undo(threads: _Threads) -> IOGenerator[None]:
    """The thread is as it was before its repair, and a second undo is an error."""
    yield from threads.damage("a")
    before = yield from threads.history("a")
    yield from threads.repair("a")
    yield from threads.undo("a")
    _expect("the history after the undo", (yield from threads.history("a")), before)
    try:
        yield from threads.undo("a")
    except ThreadError:
        pass
    else:
        raise AssertionError("A second undo raised no error.")
    _expect("the outcome again", (yield from threads.repair("a")).outcome, "repaired")


_CHECKS: Mapping[str, Callable[[_Threads], IOGenerator[None]]] = {
    "recover": _check_recover,
    "scan": _check_scan,
    "repair": _check_repair,
    "undo": _check_undo,
}


class _Anything:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "<any text>"


_SENT, _NEVER_MIND = "sent to bob", ["never mind", "done"]
_ANY: Any = _Anything()
"""The text of a placeholder."""


def _expect(what: str, found: object, expected: object) -> None:
    if expected != found:
        raise AssertionError(f"{what[0].upper()}{what[1:]}: expected {expected!r}, found {found!r}")


def _texts(messages: list[BaseMessage]) -> list[str]:
    return [str(message.text) for message in messages]


# --- the threads -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Threads:
    """New threads of a checkpointer.

    Attributes:
        saver: The checkpointer.
        prefix: How the ids of the threads begin.
    """

    saver: BaseCheckpointSaver[Any]
    prefix: str

    def id_of(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def config(self, name: str) -> RunnableConfig:
        return {"configurable": {"thread_id": self.id_of(name)}}

    @property
    def graph(self) -> Any:
        """An agent that refuses a damaged history, as providers do."""
        builder = StateGraph(MessagesState)
        builder.add_node("agent", _answer)
        builder.add_node("tools", ToolNode([_send_email, _wire_money]))
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", _send_calls, ["tools", END])
        builder.add_edge("tools", "agent")
        return builder.compile(checkpointer=self.saver)

    def say(self, name: str, text: str, graph: Any = None) -> IOGenerator[None]:
        """Send a message to a thread."""
        message = {"messages": [HumanMessage(text, id=f"{text}-{name}")]}
        yield from call_method(graph or self.graph, "invoke", message, self.config(name))

    def pause(self, name: str) -> IOGenerator[None]:
        """Make a thread that waits for a human; one of its two calls is finished."""
        yield from self.say(name, "go")

    def damage(self, name: str) -> IOGenerator[None]:
        """Make a thread whose pause was abandoned."""
        yield from self.pause(name)
        try:
            yield from self.say(name, "never mind")
        except _RefusedError:
            return
        raise AssertionError("The history of an abandoned pause was valid.")

    def history(self, name: str) -> IOGenerator[list[BaseMessage]]:
        """The messages of the newest checkpoint."""
        state = yield from call_method(self.graph, "get_state", self.config(name))
        messages: list[BaseMessage] = state.values["messages"]
        return messages

    def scan(self, **options: Any) -> IOGenerator[list[ThreadReport]]:
        """The reports of a scan."""

        async def asynchronously() -> list[ThreadReport]:
            return [report async for report in ascan_threads(self.saver, **options)]

        reports: list[ThreadReport] = yield IORequest(
            lambda: list(scan_threads(self.saver, **options)), asynchronously
        )
        return reports

    def repair(self, name: str) -> IOGenerator[ThreadRepair]:
        """Repair a thread."""
        config = self.config(name)
        repair: ThreadRepair = yield IORequest(
            lambda: repair_thread(self.graph, config, min_age=0),
            lambda: arepair_thread(self.graph, config, min_age=0),
        )
        return repair

    def undo(self, name: str) -> IOGenerator[None]:
        """Undo the last repair of a thread."""
        config = self.config(name)
        yield IORequest(
            lambda: undo_repair(self.graph, config), lambda: aundo_repair(self.graph, config)
        )


class _RefusedError(Exception):
    """The history was damaged."""


def _answer(state: MessagesState) -> dict[str, Any]:
    messages = state["messages"]
    if defects := validate_messages(messages):
        raise _RefusedError(str(defects))
    if messages[-1].text != "go":
        return {"messages": [AIMessage("done")]}
    calls = [("_send_email", {"to": "bob"}, "c1"), ("_wire_money", {"amount": 3}, "c2")]
    made = [{"name": name, "args": args, "id": i, "type": "tool_call"} for name, args, i in calls]
    return {"messages": [AIMessage("", tool_calls=made)]}


def _send_calls(state: MessagesState) -> Any:
    last = state["messages"][-1]
    calls = last.tool_calls if isinstance(last, AIMessage) else []
    return [Send("tools", [call]) for call in calls] or END


@tool
def _send_email(to: str) -> str:
    """Finish at once."""
    return f"sent to {to}"


@tool
def _wire_money(amount: int) -> str:
    """Wait for a human."""
    return f"wired: {interrupt(f'wire {amount}?')}"
