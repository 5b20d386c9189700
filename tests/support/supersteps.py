"""The supersteps of one thread, stored by hand in a real checkpointer.

The ids of tasks are those that LangGraph derives from a checkpoint; `evidence/test_tasks.py`
compares them with the tasks that LangGraph ran. A table of such threads tests what is concluded
from them:

    both = made("mail:c1", "wire:c2")
    findings(both, sent("sent to bob", ASKS))  # ["sent to bob", "awaiting_input"]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, TASKS
from langgraph.types import Interrupt, Send

from langgraph_patch._langgraph_storage import own_interrupt_id
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.recover import Recovery, recover_evidence
from langgraph_patch.evidence.tasks import Step, Task, read_step
from langgraph_patch.history.calls import read_calls
from langgraph_patch.history.texts import Finding

GO = HumanMessage("go", id="h1")
MORE = HumanMessage("never mind", id="h2")
ASKS = "asks a human"
"""A task that was interrupted by itself."""

ASKS_BELOW = (INTERRUPT, [Interrupt("well?", id="0" * 32)])
"""A task that a graph below it interrupted."""

LONG_AGO = "2024-01-01T00:00:00+00:00"


def made(*named: str, id: str = "m1", **fields: Any) -> AIMessage:  # noqa: A002 - of a message
    """A message with calls. Each is written `name:id`, or `name:id:city` with an argument."""
    parts = [(*each.split(":"), "")[:3] for each in named]
    calls = [
        {"name": name, "id": call_id, "args": {"city": city} if city else {}, "type": "tool_call"}
        for name, call_id, city in parts
    ]
    return AIMessage("", id=id, tool_calls=calls, **fields)


def result(text: str, call_id: str, name: str | None = None, **fields: Any) -> ToolMessage:
    """A result."""
    return ToolMessage(text, tool_call_id=call_id, name=name, **fields)


def sent(*wrote: Any, calls: Sequence[Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A superstep with a `Send` for each call (default: of the message), and what each wrote.

    A text is a result of the call, `ASKS` an interrupt, an error is recorded, and a pair is a
    channel with a value. A list has several of these.
    """
    return {"wrote": wrote, "calls": calls, **fields}


def ran(*nodes: str, wrote: Sequence[Any] = (), **fields: Any) -> dict[str, Any]:
    """A superstep with these nodes, in the order of their names, and what each wrote."""
    return {"nodes": nodes, "wrote": wrote, "calls": (), **fields}


class Thread:
    """A thread with a message that makes calls.

    Its first superstep wrote the message. Without a `history` of its own, each one that is added
    begins with the question and the message.
    """

    def __init__(self, message: AIMessage, *, first: dict[str, Any] | None = None) -> None:
        self.message = message
        self.saver = InMemorySaver()
        self.place: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
        self.config = self.place
        self.count = 0
        default = ran("agent", wrote=[message], history=[GO])
        self.add(**{**default, **(first or {})})

    def add(
        self,
        *,
        wrote: Sequence[Any] = (),
        calls: Sequence[Any] | None = None,
        nodes: Sequence[str] = (),
        history: Sequence[AnyMessage] | None = (),
        others: Sequence[tuple[str, str, Any]] = (),
        source: str = "loop",
        ts: str = LONG_AGO,
        skip: int = 0,
        values: dict[str, Any] | None = None,
    ) -> None:
        """Add a superstep: its checkpoint, and what its tasks and `others` wrote.

        A `history` of None is not stored, as by a `DeltaChannel`. `skip` supersteps are not stored.
        """
        stored = dict(values or {})
        if history is not None:
            stored["messages"] = list(history) or [GO, self.message]
        listed = self.message.tool_calls if calls is None else calls
        sends = [Send("tools", [call]) for call in listed]
        stored |= {f"branch:to:{node}": None for node in nodes} | ({TASKS: sends} if sends else {})
        self.count += 1 + skip
        versions: Any = dict.fromkeys(stored, self.count)
        checkpoint: Any = {
            **empty_checkpoint(),
            "ts": ts,
            "channel_values": stored,
            "channel_versions": versions,
        }
        metadata: Any = {"source": source, "step": self.count, "parents": {}}
        self.config = self.saver.put(self.config, checkpoint, metadata, versions)
        for task, parts in zip(self.step.tasks, wrote, strict=False):
            several = parts if isinstance(parts, list) else [parts]
            writes = [write for part in several for write in self._writes(task, part)]
            if writes:
                self.saver.put_writes(self.config, writes, task.id)
        for task_id, channel, value in others:
            self.saver.put_writes(self.config, [(channel, value)], task_id)

    def _writes(self, task: Task, part: Any) -> list[tuple[str, Any]]:
        if part is None:
            return []
        if part == ASKS:
            own = own_interrupt_id("", task.node or "", task.id)
            return [(INTERRUPT, [Interrupt("well?", id=own)])]
        if isinstance(part, BaseException):
            return [(ERROR, part)]
        if isinstance(part, str):
            call = task.call or self.message.tool_calls[0]
            part = result(part, call["id"], call["name"])
        return [("messages", [part])] if isinstance(part, BaseMessage) else [part]

    @property
    def step(self) -> Step:
        """The newest superstep."""
        saved = InMemorySaver.get_tuple(self.saver, self.config)
        assert saved is not None
        return read_step(saved, "messages", None)[0]

    @property
    def saved(self) -> dict[int, CheckpointTuple]:
        """The checkpoints by their number, which begins with 1."""
        rows = InMemorySaver.list(self.saver, self.place)
        return {row.metadata["step"]: row for row in rows}

    def search(self, *messages: AnyMessage, **options: Any) -> Recovery:
        """What is recovered of the calls of the last of these messages (default: of its own)."""
        history = list(messages) or [GO, self.message]
        calls = read_calls(history[-1], len(history) - 1)
        return run_sync(recover_evidence(self.saver, self.config, history, calls, **options))

    def findings(self, *messages: AnyMessage) -> list[str]:
        """A short text for each finding."""
        return [short(found) for found in self.search(*messages).evidence.values()]


def short(found: Finding) -> str:
    """The content of a result; or the cause, its detail, the error and the inner results."""
    if found.result is not None:
        return str(found.result.content)
    marks = "look again" if found.look_again else None
    parts = (found.cause, found.detail, found.error, *found.inner, marks)
    return " | ".join(part for part in parts if part)


def findings(message: AIMessage, *steps: dict[str, Any], **options: Any) -> list[str]:
    """What is found of each call of a message, after these supersteps."""
    thread = Thread(message, **options)
    for step in steps:
        thread.add(**step)
    return thread.findings()
