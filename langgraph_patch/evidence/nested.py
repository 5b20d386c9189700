"""Check what is known of a call against the graphs above and below the one that has it.

The namespace of a graph that a task runs is `node:task_id`; a second graph of the same task has one
more segment, its number. The metadata of a checkpoint names the checkpoints of the graphs above.

A graph that is a node, or that the function of a node calls, gives its messages to the graph above
when it ends. If it was paused, failed or was killed, an input drops its task, with all that it did.
Its checkpoints keep it: what follows the last message of the history above. A graph whose history
does not contain that message got another history: nothing of it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage

from langgraph_patch._langgraph.graphs import Graph
from langgraph_patch._langgraph.storage import parent_namespace
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.address import Address
from langgraph_patch.evidence.effects import is_equal
from langgraph_patch.evidence.judge import JudgedCall
from langgraph_patch.evidence.superstep import Superstep, Task, is_real
from langgraph_patch.evidence.window import Reader, Window, called_in, is_version, open_before
from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.fields import digest_of
from langgraph_patch.history.findings import Finding
from langgraph_patch.history.texts import shortened

TOOLS = "tools"
"""LangGraph's name for the node that runs tools. In a node with another name, a middleware may have
failed."""

_MAX_ARGUMENTS = 60
_MAX_TEXT = 120


# --- above --------------------------------------------------------------------------------------


def is_answered_above(reader: Reader, step: Superstep) -> IOGenerator[bool]:
    """Whether a graph above recorded an answer: it records those to all graphs below."""
    for namespace, checkpoint_id in step.parents.items():
        above = yield from reader.read(step.address.at(namespace, checkpoint_id))
        if above is None or above.is_answered:
            return True
    return False


def graph_above(window: Window) -> Address | None:
    """The graph that passed a message to this one as an input, as it was at that time."""
    origin = window.origin
    if origin is None or origin.source != "input" or not origin.namespace:
        return None
    above = parent_namespace(origin.namespace)
    return origin.address.at(above, origin.parents.get(above))


# --- below --------------------------------------------------------------------------------------


def graph_of_writer(window: Window) -> Address | None:
    """The graph below that wrote a message: after a handoff, results of other calls are there."""
    writer = window.writer
    return None if writer is None or writer.node is None else writer.below


def check_below(
    reader: Reader, window: Window, call: Call, judged: JudgedCall
) -> IOGenerator[JudgedCall]:
    """Check the ending of a call against the graphs that its task ran.

    A graph below may have run the call and recorded its result. If it may have run the call and did
    not, how the task ended says nothing of the call.
    """
    ending, ended = judged.finding, judged.ended
    if ending is None or ended is None or ending.result is not None:
        return judged
    is_waiting = ending.cause == "awaiting_input"
    if is_waiting and (yield from is_answered_above(reader, ended.step)):
        return replace(judged, finding=None)
    if is_waiting and ended.owns_interrupts:
        return judged
    below = yield from _read_below(reader, ended)
    made, given = below or ([], [])
    results = [m for m in made if is_real(m) and m.tool_call_id == call.id]
    makers = [m for m in made if any(each.id == call.id for each in called_in([m]))]
    if results and all(is_version(maker, window.message) for maker in makers):
        return replace(judged, finding=Finding(result=results[0]))
    may_have_run = bool(makers) or any(each.id == call.id for each in open_before(given))
    if is_waiting:
        # In a node with another name, a graph with another state may have run the call.
        is_certain = below is not None and (bool(made) or ended.node == TOOLS)
    else:
        is_certain = ended.call is not None or ended.node == TOOLS
    return judged if is_certain and not may_have_run else replace(judged, finding=None)


def inner_results(reader: Reader, judged: JudgedCall) -> IOGenerator[tuple[str, ...]]:
    """Short texts about the recorded results of calls inside a call, newest first."""
    tasks = {task.id: task for task in (*judged.own, judged.ended) if task is not None}
    texts: list[str] = []
    for task in tasks.values():
        below = yield from _read_below(reader, task)
        texts += _texts(below.made if below else [])
    return tuple(reversed(texts))


class _Below(NamedTuple):
    """The messages of the graphs that a task ran, oldest first, each once.

    Attributes:
        made: Those that the graphs made.
        given: Those that a graph got as its input, or had before the task.
    """

    made: Sequence[BaseMessage]
    given: Sequence[BaseMessage]


def _read_below(reader: Reader, task: Task) -> IOGenerator[_Below | None]:
    """The messages of the graphs that a task ran; None if no graph is recorded."""
    graphs = yield from graphs_below(reader, task)
    made: list[BaseMessage] = []
    given: list[BaseMessage] = []
    for graph in graphs:
        given += without((yield from _given_to(reader, graph)), [*given, *made])
        made += without(graph.messages, [*given, *made])
    return _Below(made, given) if graphs else None


def _given_to(reader: Reader, newest: Superstep) -> IOGenerator[Sequence[BaseMessage]]:
    """What a graph got as its newest input, and the history that it had before.

    Without a recorded input (durability "exit") nothing of its history is known to be its own.
    """
    first = newest if newest.source == "input" else (yield from reader.read_input(newest))
    return newest.history if first is None else first.messages


def without(messages: Iterable[BaseMessage], others: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The messages that are not among others, each once."""
    ids = {message.id for message in others} - {None}
    unnamed = [message for message in others if message.id is None]
    found: list[BaseMessage] = []
    for message in messages:
        is_new = message.id not in ids and not any(is_version(message, each) for each in unnamed)
        if is_new:
            found.append(message)
        if message.id is not None:
            ids.add(message.id)
    return found


# --- the graphs that a task ran -------------------------------------------------------------------

_GAPS = 3
"""How many numbers of graphs in a row may be missing if a graph below is known to wait: a graph
without a checkpointer has a number, too."""


def graphs_below(reader: Reader, task: Task) -> IOGenerator[list[Superstep]]:
    """The newest superstep of each graph that a task ran, in the order in which they began."""
    graphs: list[Superstep] = []
    missing, number = 0, 0
    while missing <= (0 if graphs or task.owns_interrupts else _GAPS):
        below = task.below.at(f"{task.below.namespace}|{number}") if number else task.below
        newest = yield from reader.read(below)
        missing, number = (0 if newest else missing + 1), number + 1
        graphs += [newest] if newest else []
    return graphs


def _texts(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """A text about each result, in the order of the messages."""
    makers: dict[str, Call] = {}
    for message in messages:
        if isinstance(message, AIMessage):
            # The next message may use an id again: a result belongs to the nearest call.
            makers |= {call.id: call for call in read_calls(message)}
        elif is_real(message):
            yield _text(makers.get(message.tool_call_id), message)


def _text(call: Call | None, result: ToolMessage) -> str:
    name = call.name if call else result.name or "tool"
    args = json.dumps(call.args, ensure_ascii=False, default=repr) if call and call.args else ""
    text = " ".join(str(result.text).split())
    return f"{name}({shortened(args, _MAX_ARGUMENTS)}): {shortened(text, _MAX_TEXT)}"


# --- the turns that an input dropped --------------------------------------------------------------


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
        is_passed = step.source != "loop" or nodes == {own_node}
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
    has_open_calls = bool(open_before(history))
    turns: list[AbandonedTurn] = []
    for task in tasks:
        graph = above.graph_that_returns(task.node, reader.messages_key) if above else None
        if graph is None and has_open_calls:
            continue  # the function may run these calls, and call a graph with the whole history
        called_by = function or (None if graph or task.is_finished else task)
        for below in (yield from graphs_below(reader, task)):
            if task.is_finished:
                written = [] if task.is_overwrite else task.messages
                added = [m for m in written if not isinstance(m, RemoveMessage)]
            elif (start := _end_of(history, below.history)) is not None:
                added = list(below.history[start:])
            else:
                continue
            added = without(_with_ids(added, task.below.namespace), history)
            # What a function that returned did with the other keys is not read.
            changed = {} if task.is_finished and not graph else _changed(step, below)
            turns.append(AbandonedTurn(below, added, changed, called_by or task, called_by is None))
            turns += yield from _turns_of(reader, below, graph, called_by)
    return turns


def _end_of(history: Sequence[BaseMessage], below: Sequence[BaseMessage]) -> int | None:
    """Where a history ends in that of a graph below; None if the graph got another one."""
    last = [i for i, message in enumerate(below) if is_version(message, history[-1])]
    return last[-1] + 1 if last else None


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
