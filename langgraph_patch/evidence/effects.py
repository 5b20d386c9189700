"""What a task wrote beside a recorded result: the effects of the call.

LangGraph drops all writes of an abandoned superstep. The result is recovered from them, so it may
state effects that the state does not have: "Updated file", "Successfully transferred to bob".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.serde.types import TASKS
from langgraph.types import Send

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.graphs import Graph
from langgraph_patch.evidence.superstep import Superstep, Task


@dataclass(frozen=True, slots=True)
class Effects:
    """The other writes of the task that recorded a result, which the state does not have.

    Attributes:
        writes: The state key and the value of each write.
        unchanged: The keys that nothing has written since. Applying the writes now has the same
            effect as then.
        goes_elsewhere: Whether the task started a node that no edge starts.
        task: The task. Results of one task have the same writes.
        is_current: Whether its superstep is the current one, so that they will be applied.
    """

    writes: tuple[tuple[str, Any], ...]
    unchanged: frozenset[str]
    goes_elsewhere: bool
    task: Task
    is_current: bool


def effects_of(task: Task, newest: Superstep, *, is_over: bool) -> Effects | None:
    """The effects of a task; None if it had none, or if they were applied.

    Args:
        task: The task.
        newest: The superstep after the current checkpoint of the graph that has the call.
        is_over: Whether the run of that graph is abandoned: nothing more will be applied.
    """
    step = task.step
    names = {*storage.state_keys(channel for channel, _ in task.writes)} - {step.messages_key}
    writes = [(channel, value) for channel, value in task.writes if channel in names]
    goes_elsewhere = _goes_elsewhere(task)
    if step.was_applied or not (writes or goes_elsewhere):
        return None
    keys = {key for key in names if _is_unchanged(key, step, newest)}
    is_current = not is_over and (step.id, step.namespace) == (newest.id, newest.namespace)
    return Effects(tuple(writes), frozenset(keys), goes_elsewhere, task, is_current=is_current)


def _is_unchanged(key: str, step: Superstep, newest: Superstep) -> bool:
    """Whether nothing has written a state key since a superstep, and nothing is about to."""
    if step.namespace != newest.namespace:
        return False
    old, new = (each.saved.checkpoint["channel_versions"].get(key) for each in (step, newest))
    return old == new and (
        step.id == newest.id or not any(task.written_to(key) for task in newest.writers)
    )


def _goes_elsewhere(task: Task) -> bool:
    """Whether a task started a node that had not run in the turn: a later one may not start it."""
    edges = {storage.triggered_node(c) or "" for c, _ in task.writes if c.startswith("branch:to:")}
    sends = {value.node for c, value in task.writes if c == TASKS and isinstance(value, Send)}
    known = storage.nodes_of_turn(task.step.saved) | {Graph.name_behind(task.node or "")}
    return not edges | sends <= known
