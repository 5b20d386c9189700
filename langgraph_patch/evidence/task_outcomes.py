"""What the tasks of a step claim of the one call that each of them ran.

An interrupt or an error is a task's own. Of its call it says something only if the task ran
nothing else, or if it is plain that no other part of it asked or failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.types import Interrupt

from langgraph_patch._langgraph import RETURN
from langgraph_patch.evidence.checkpoint_messages import (
    answer_in,
    history_in,
    id_in,
    id_of,
    is_same,
    last_maker,
    place_of,
    written_in,
)
from langgraph_patch.evidence.supersteps import (
    finding_of,
    is_given,
    marked_tasks,
    nodes_in,
    sends_in,
    task_of_send,
)
from langgraph_patch.history.patch import Finding
from langgraph_patch.history.tool_calls import read_calls
from langgraph_patch.recording.recorded_call import MARK

_TOOLS = "tools"
"""What LangGraph calls the node that runs tools; another may run anything."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a task says of the one call that it ran.

    Attributes:
        finding: What it says.
        saved: The checkpoint of its step.
        task: Its id.
        node: Its node; None if `record_tool_calls` made it, which runs nothing but the tool.
    """

    finding: Finding
    saved: CheckpointTuple
    task: str
    node: str | None

    def is_own_interrupt(self, space: str) -> bool:
        """Whether the task asked by itself; LangGraph names an interrupt after its place."""
        place = f"{space}|{self.node}:{self.task}".removeprefix("|")
        own = Interrupt.from_ns(None, place).id
        asked = {interrupt for by, interrupt in self._asked() if by == self.task}
        return self.finding.cause == "awaiting_input" and asked <= {own}

    def is_certain(self, space: str, inside: Sequence[CheckpointTuple]) -> bool:
        """Whether it is of the call, although the task did not ask by itself."""
        if self.finding.cause == "failed":  # else it may be a middleware's
            return self.node == _TOOLS or bool(sends_in(self.saved))
        unnamed = bool(space) and any(":" not in part for part in space.split("|"))
        if inside or unnamed:
            return True
        # A @task of the tool asked, which notes it too; else a subgraph did that keeps nothing.
        by_others = {interrupt for by, interrupt in self._asked() if by != self.task}
        return by_others >= {interrupt for by, interrupt in self._asked() if by == self.task}

    def _asked(self) -> Iterator[tuple[str, str | None]]:
        """The tasks that asked in this step, and the ids of their interrupts."""
        for by, channel, value in self.saved.pending_writes or ():
            if channel == INTERRUPT:
                for interrupt in value if isinstance(value, list | tuple) else [value]:
                    yield by, interrupt.id if isinstance(interrupt, Interrupt) else None

    def is_of(self, space: str, inner: str) -> bool:
        """Whether `inner`, a namespace below `space`, may be that of a subgraph of the task."""
        first = inner.removeprefix(f"{space}|").partition("|")[0]
        return first.endswith(f":{self.task}") or ":" not in first  # it keeps its state over runs


def claim_in(
    saved: CheckpointTuple, message: AIMessage, call_id: str, *, pending: bool
) -> Claim | None:
    """What the tasks say that ran this one call; an error before an interrupt."""
    ran: list[tuple[str, str | None]] = []
    if pending:
        ran += [(task, None) for task in marked_tasks(saved, call_id)]
    if sent := task_of_send(saved, message, call_id):
        ran.append(sent)
    claims = [
        Claim(finding, saved, task, node)
        for task, node in ran
        if (finding := finding_of(saved, task)) is not None
    ]
    return max(claims, key=lambda claim: claim.finding.cause == "failed", default=None)


def claim_of_only_call(
    message: AIMessage, step: CheckpointTuple, made: CheckpointTuple, maker: str, key: str
) -> Claim | None:
    """What a task that was given the whole state says, where `message` makes a single call.

    It ran in `step`, the oldest that has the message, which `maker` made in the step `made`.
    """
    # After an input comes the model or the tools: nobody can tell which of them ended so.
    if id_of(step.parent_config) != id_in(made) or made.metadata.get("source") == "input":
        return None
    nodes, writes = nodes_in(step), step.pending_writes or ()
    ended = {task for task, channel, _ in writes if channel in (INTERRUPT, ERROR)}
    recorded = any(channel in (MARK, RETURN) for _, channel, _ in writes)
    # A task that brought results along with the message has run its tools already.
    ran = any(
        isinstance(stored, ToolMessage)
        for task, held in written_in(made, key)
        for stored in held[(place_of(held, message) or 0) :]
        if task == maker
    )
    # A node runs all calls of a message, also those that a client has answered meanwhile.
    alone = len(read_calls(message)) == len(nodes) == len(ended) == 1
    if not alone or sends_in(step) or recorded or ran:
        return None
    finding = finding_of(step, task := ended.pop())
    return Claim(finding, step, task, nodes.pop()) if finding else None


def told_inside(
    inside: Sequence[CheckpointTuple], claim: Claim, message: AIMessage, call_id: str, key: str
) -> ToolMessage | Finding | None:
    """What is known of a call whose task ran subgraphs, of which `inside` is all.

    A subgraph that was given the call may have run it, and asked or failed in a later node.
    One that was not is a part of the tool, which is not through.
    """
    held = [history_in(saved, key) or [] for saved in inside]
    held += [written for saved in inside for _, written in written_in(saved, key)]
    places = [(messages, last_maker(messages, call_id)) for messages in held]
    if all(place is None or is_same(messages[place], message) for messages, place in places):
        for messages in held:
            if result := answer_in(messages, message, call_id):
                return result
    stored = [(saved.checkpoint["channel_values"], saved.pending_writes) for saved in inside]
    return None if is_given(stored, call_id) else claim.finding
