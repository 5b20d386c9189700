"""Check what is known of a call against the graphs above and below the one that has it.

The namespace of a graph that a task runs is `node:task_id`; a second graph of the same task has one
more segment, its number. The metadata of a checkpoint names the checkpoints of the graphs above.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._sansio import IOGenerator
from langgraph_patch._text import cut
from langgraph_patch.evidence.judge import JudgedCall
from langgraph_patch.evidence.superstep import Superstep, Task, is_real
from langgraph_patch.evidence.window import Reader, Window, called_in, is_version, open_in_turn
from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.findings import Finding

_MAX_ARGUMENTS = 60
_MAX_TEXT = 120


# --- above --------------------------------------------------------------------------------------


def is_answered_above(reader: Reader, step: Superstep) -> IOGenerator[bool]:
    """Whether a graph above recorded an answer: it records those to all graphs below."""
    for namespace, checkpoint_id in step.graphs_above.items():
        above = yield from reader.read(step.address.at(namespace, checkpoint_id))
        if above is None or above.is_answered:
            return True
    return False


def graph_above(window: Window) -> Address | None:
    """The graph that passed a message to this one as an input, as it was at that time."""
    origin = window.origin
    if origin is None or origin.source_before != "input" or not origin.namespace:
        return None
    above = storage.parent_namespace(origin.namespace)
    return origin.address.at(above, origin.graphs_above.get(above))


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
    made, given = below or ((), ())
    results = [m for m in made if is_real(m) and m.tool_call_id == call.id]
    makers = [m for m in made if any(each.id == call.id for each in called_in([m]))]
    if results and all(is_version(maker, window.message) for maker in makers):
        return replace(judged, finding=Finding(result=results[0]))
    may_have_run = bool(makers) or any(each.id == call.id for each in open_in_turn(given))
    runs_calls = reader.nodes.runs_calls(ended.step.namespace, ended.node)
    if is_waiting:
        # In any other node, a graph with another state may have run the call.
        is_certain = below is not None and (bool(made) or runs_calls)
    else:  # in any other node, something else may have failed behind the call
        is_certain = ended.call is not None or runs_calls
    return judged if is_certain and not may_have_run else replace(judged, finding=None)


def inner_results(reader: Reader, judged: JudgedCall) -> IOGenerator[tuple[str, ...]]:
    """Short texts about the recorded results of calls inside a call, newest first."""
    tasks = {task.id: task for task in (*judged.own, judged.ended) if task is not None}
    texts: list[str] = []
    for task in tasks.values():
        below = yield from _read_below(reader, task)
        texts += _texts(below[0] if below else ())
    return tuple(reversed(texts))


def _read_below(
    reader: Reader, task: Task
) -> IOGenerator[tuple[Sequence[BaseMessage], Sequence[BaseMessage]] | None]:
    """The messages of the graphs that a task ran, oldest first, each once.

    Returns:
        Those that the graphs made, and those that a graph got as its input or had before the task;
        None if no graph is recorded.
    """
    graphs = yield from graphs_below(reader, task)
    made: list[BaseMessage] = []
    given: list[BaseMessage] = []
    for graph in graphs:
        given += without((yield from _given_to(reader, graph)), [*given, *made])
        made += without(graph.messages, [*given, *made])
    return (made, given) if graphs else None


def _given_to(reader: Reader, newest: Superstep) -> IOGenerator[Sequence[BaseMessage]]:
    """What a graph got as its newest input, and the history that it had before.

    Without a recorded input (durability "exit") nothing of its history is known to be its own.
    """
    first = newest if newest.source_before == "input" else (yield from reader.read_input(newest))
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
    return f"{name}({cut(args, _MAX_ARGUMENTS)}): {cut(text, _MAX_TEXT)}"
