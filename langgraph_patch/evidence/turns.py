"""Read the turns of agents that are nodes, which an input dropped.

A graph that is a node, or that the function of a node calls, gives its messages to the graph above
when it ends. If it was paused, failed or was killed, an input drops its task, with all that it did.
Its checkpoints keep it: what follows the last message of the history above. A graph whose history
does not contain that message got another history: nothing of it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage

from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.graphs import Graph
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.nested import graphs_below, without
from langgraph_patch.evidence.superstep import Superstep, Task
from langgraph_patch.evidence.window import Reader, is_version, open_in_turn
from langgraph_patch.history.comparing import is_equal
from langgraph_patch.history.fields import digest_of


@dataclass(frozen=True, slots=True, eq=False)
class AbandonedTurn:
    """What one graph did.

    Attributes:
        newest: Its newest superstep.
        messages: The messages that it added to the history above.
        changed: The other state keys that it changed, with their values.
        caller: The task that ran it; that of the function that called it, if there is one above it.
        is_known: Whether LangGraph would have added these messages. What a function would have
            returned is not known.
    """

    newest: Superstep
    messages: list[BaseMessage]
    changed: Mapping[str, Any]
    caller: Task
    is_known: bool


def read_abandoned_turns(
    reader: Reader, address: Address, graph: Graph, own_node: str
) -> IOGenerator[tuple[Superstep, list[AbandonedTurn]] | None]:
    """Read the turns that an input dropped.

    Args:
        reader: The checkpointer.
        address: The checkpoint that the run of the input loaded.
        graph: The graph.
        own_node: The node that adds these turns. If it was stopped, they are still to be added.

    Returns:
        The superstep that the input dropped, and its turns in the order in which LangGraph would
        have applied them; None if there are none.
    """
    step = yield from reader.read(address)
    while step is not None:
        turns = yield from _turns_of(reader, step, graph)
        if turns:
            return step, turns
        # If nothing ran after an input or an update, what was dropped began before.
        nodes = {task.node for task in step.tasks}
        is_passed = step.source_before != "loop" or nodes == {own_node}
        step = (yield from reader.read_older(step)) if is_passed else None
    return None


def _turns_of(
    reader: Reader, step: Superstep, above: Graph | None, function: Task | None = None
) -> IOGenerator[list[AbandonedTurn]]:
    """The turns of the graphs that the tasks of an unfinished superstep ran."""
    tasks, history = step.tasks, step.history
    if not history:
        return []
    # If all tasks are finished, the thread may have gone on, and this is another branch of it.
    if all(task.is_finished for task in tasks) and (yield from reader.has_gone_on(step)):
        return []
    has_open_calls = bool(open_in_turn(history))
    turns: list[AbandonedTurn] = []
    for task in tasks:
        graph = above.graph_that_returns(task.node, reader.messages_key) if above else None
        if graph is None and has_open_calls:
            continue  # the function may run these calls, and call a graph with the whole history
        called_by = function or (None if graph or task.is_finished else task)
        for below in (yield from graphs_below(reader, task)):
            added = _added_by(task, below, history)
            if added is None:
                continue
            added = without(_with_ids(added, task.below.namespace), history)
            # What a function that returned did with the other keys is not read.
            changed = {} if task.is_finished and not graph else _changed(step, below)
            turns.append(AbandonedTurn(below, added, changed, called_by or task, called_by is None))
            turns += yield from _turns_of(reader, below, graph, called_by)
    return turns


def _added_by(
    task: Task, below: Superstep, history: Sequence[BaseMessage]
) -> Sequence[BaseMessage] | None:
    """What a task and the graph that it ran added to a history; None if that got another one."""
    if task.is_finished:
        written = [] if task.is_overwrite else task.messages
        return [message for message in written if not isinstance(message, RemoveMessage)]
    last = [i for i, message in enumerate(below.history) if is_version(message, history[-1])]
    return below.history[last[-1] + 1 :] if last else None


def _with_ids(messages: Sequence[BaseMessage], namespace: str) -> list[BaseMessage]:
    """The messages, with an id for each that has none: a reducer gives it when it takes them."""
    found = []
    for place, message in enumerate(messages):
        own_id = message.id or f"turn-{digest_of('message', namespace, place)[:32]}"
        found.append(message if message.id else message.model_copy(update={"id": own_id}))
    return found


def _changed(above: Superstep, below: Superstep) -> dict[str, Any]:
    values = below.values.items()
    return {key: value for key, value in values if not is_equal(value, above.values.get(key))}
