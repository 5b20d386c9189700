"""The supersteps of one thread, stored by hand in a real checkpointer.

The ids of tasks are those that LangGraph derives from a checkpoint. A row of a table is a message,
what is found of its calls, and the supersteps after the one that wrote it:

    made("mail:c1", "wire:c2"), "sent to bob, awaiting_input", sent("sent to bob", ASKS)
"""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, TASKS
from langgraph.types import Interrupt, Send

from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.storage import own_interrupt_id
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.recover import Recovery, recover_evidence
from langgraph_patch.evidence.superstep import Superstep, Task, superstep_of
from langgraph_patch.history.calls import read_calls

GO, MORE = HumanMessage("go", id="h1"), HumanMessage("never mind", id="h2")
ASKS = "asks a human"
"""An interrupt that a task raised itself."""

CLIENT = "f" * 32
"""The id of a task that LangGraph did not start in the superstep, as `update_state` writes it."""


def made(*named: str, id: str = "m1", **fields: Any) -> AIMessage:  # noqa: A002 - of a message
    """A message with calls. Each is written `name:id`, or `name:id:city` with an argument."""
    parts = [(*each.split(":"), "")[:3] for each in named]
    calls = [
        {"name": name, "id": call_id, "args": {"city": city} if city else {}, "type": "tool_call"}
        for name, call_id, city in parts
    ]
    return AIMessage("", id=id, tool_calls=calls, **fields)


def result(text: str, call_id: str = "c1", name: str | None = None) -> ToolMessage:
    """A result."""
    return ToolMessage(text, tool_call_id=call_id, name=name)


def sent(*wrote: Any, by: AIMessage | None = None, **fields: Any) -> dict[str, Any]:
    """A superstep with a `Send` for each call of a message, and what each task wrote.

    A text is the result of the call, `ASKS` an interrupt, an error is recorded, a message goes to
    the history, and a pair is a channel with a value. A list has several of these.
    """
    return {"wrote": wrote, "sent_by": by or "itself", **fields}


def ran(nodes: str | list[str] = (), *wrote: Any, **fields: Any) -> dict[str, Any]:
    """A superstep with a node and what it wrote; or with several, and what each of them wrote."""
    if isinstance(nodes, str):
        nodes, wrote = [nodes], ([*wrote],)
    return {"nodes": nodes, "wrote": wrote, **fields}


def news(message: AIMessage, *wrote: Any) -> dict[str, Any]:
    """The next message of the user, and what the model did; the message as it is then."""
    return ran("agent", *wrote, source="input", history=[GO, message, MORE])


class Thread:
    """A thread in which a node wrote a message that makes calls.

    Without a `history` of its own, a superstep begins with the question and the message.
    """

    def __init__(self, message: AIMessage, *steps: dict[str, Any], **first: Any) -> None:
        self.message = message
        self.saver = InMemorySaver()
        self.place: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
        self.config = self.place
        self.count = 0
        for step in ({**ran("agent", message, history=[GO]), **first}, *steps):
            self.add(**step)

    def add(
        self,
        *,
        wrote: Sequence[Any] = (),
        sent_by: AIMessage | str | None = None,
        nodes: Sequence[str] = (),
        history: Sequence[AnyMessage] | None = (),
        others: Sequence[tuple[str, str, Any]] = (),
        source: str = "loop",
        ts: str = "2024-01-01T00:00:00+00:00",
        skip: int = 0,
        values: dict[str, Any] | None = None,
    ) -> None:
        """Add a superstep: its checkpoint, and what its tasks and `others` wrote.

        A `history` of None is not stored, as by a `DeltaChannel`. `skip` supersteps are not stored.
        """
        stored = dict(values or {})
        if history is not None:
            stored["messages"] = list(history) or [GO, self.message]
        sender = self.message if sent_by == "itself" else sent_by
        if isinstance(sender, AIMessage):
            stored[TASKS] = [Send("tools", [call]) for call in sender.tool_calls]
        stored |= {f"branch:to:{node}": None for node in nodes}
        self.count += 1 + skip
        versions: Any = dict.fromkeys([*stored, "messages"], self.count)
        changes = {"ts": ts, "channel_values": stored, "channel_versions": versions}
        checkpoint: Any = {**empty_checkpoint(), **changes}
        metadata: Any = {"source": source, "step": self.count, "parents": {}}
        self.config = self.saver.put(self.config, checkpoint, metadata, versions)
        for task, parts in zip(self.step.tasks, wrote, strict=False):
            several = parts if isinstance(parts, list) else [parts]
            writes = [self._write(task, part) for part in several if part is not None]
            if writes:
                self.saver.put_writes(self.config, writes, task.id)
        for task_id, channel, value in others:
            self.saver.put_writes(self.config, [(channel, value)], task_id)

    def _write(self, task: Task, part: Any) -> tuple[str, Any]:
        if part == ASKS:
            own = own_interrupt_id(task.below.namespace)
            return INTERRUPT, [Interrupt("well?", id=own)]
        if isinstance(part, str):
            call: Any = task.call
            part = result(part, call["id"], call["name"])
        if isinstance(part, BaseException):
            return ERROR, part
        return ("messages", [part]) if isinstance(part, BaseMessage) else part

    @property
    def step(self) -> Superstep:
        """The newest superstep."""
        saved = InMemorySaver.get_tuple(self.saver, self.config)
        assert saved is not None
        return superstep_of(saved, "messages")

    def search(self, *messages: AnyMessage, **options: Any) -> Recovery:
        """What is recovered of the calls of the last of these messages (default: of its own)."""
        history = list(messages) or [GO, self.message]
        calls = read_calls(history[-1], len(history) - 1)
        return run_sync(
            recover_evidence(self.saver, Address.of(self.config), history, calls, **options)
        )

    def found(self, *messages: AnyMessage, **options: Any) -> str:
        """A short text for each finding."""
        return shortly(self.search(*messages, **options))


def shortly(recovery: Recovery) -> str:
    """For each call the result; or the cause, its detail, the error and the inner results.

    `final` stands behind what the next turn does not search for once more.
    """
    found = []
    for each in recovery.evidence.values():
        mark = None if each.look_again else "final"
        parts = filter(None, (each.cause, each.detail, each.error, *each.inner, mark))
        found.append(str(each.result.content) if each.result else " | ".join(parts))
    return ", ".join(found)


def wrong_in(
    table: dict[str, tuple[Any, ...]], message: AIMessage | None = None, **first: Any
) -> dict[str, str]:
    """What is found in the cases of a table (message, expectation, supersteps), if it is wrong."""
    wrong = {}
    for case, row in table.items():
        by, expected, *steps = (message, *row) if message else row
        text = Thread(by, *steps, **first).found()
        wrong |= {} if text == expected else {case: text}
    return wrong
