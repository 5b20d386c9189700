"""The place in a thread at which a call was begun: is it the same call, or that of an earlier turn?

A message of a model may be made again with its id, by a cache of model answers. Its calls are then
other calls. The message is the same one in a replay, in a fork and in another branch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from langchain_core.messages import BaseMessage, ToolMessage

from langgraph_patch._langgraph.address import Address
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.window import Reader


def is_earlier(
    reader: Reader, thread: Address, message_id: object, mine: Mapping[str, str], other: str
) -> IOGenerator[bool | None]:
    """Whether a claim is that of an earlier call, whose message had the same id.

    Args:
        reader: The checkpointer.
        thread: Any address in the thread.
        message_id: The id of the message.
        mine: The current checkpoint of each graph, by its namespace.
        other: The place of a claim (`Claim.place`) of a call of a message with this id.

    Returns:
        None if that cannot be told: checkpoints are gone, or two tasks of one superstep have it.
    """
    theirs = place_of(other)
    if not theirs:
        return False  # of the version before
    for namespace in sorted(mine, key=len):
        if namespace not in theirs:
            return None
        if mine[namespace] == theirs[namespace]:
            continue
        current, before = (thread.at(namespace, each[namespace]) for each in (mine, theirs))
        is_own = namespace == max(mine, key=len)
        return (yield from was_before(reader, current, before, message_id, is_own=is_own))
    return False


def was_before(
    reader: Reader,
    current: Address,
    before: Address,
    message_id: object,
    *,
    is_own: bool,
) -> IOGenerator[bool | None]:
    """The same, for two checkpoints of the first graph in which the places differ.

    Args:
        reader: The checkpointer.
        current: The checkpoint of one call.
        before: That of the other call.
        message_id: The id of their message.
        is_own: Whether it is the graph that has the message; else one above it.
    """
    now, then = (yield from reader.read(current)), (yield from reader.read(before))
    step, sources = now, list[str | None]()  # of the checkpoints after it, the newest first
    while then and step and step.number > then.number:
        sources.append(step.source_before)
        step = yield from reader.read_older(step)
    if now is None or then is None or step is None:
        return None
    if step.id != then.id or {"update", "fork"}.issuperset(sources):
        return False  # another branch, or a fork of the same checkpoint
    is_new = _is_made_again(now.history, message_id, is_own=is_own)
    if sources[-1] == "loop":
        return is_new or None
    return None if is_new else False


def place_of(text: str) -> Mapping[str, str]:
    """The place that a claim names; empty if it names none."""
    try:
        place = json.loads(text)
    except ValueError:
        return {}
    return place if isinstance(place, dict) else {}


def _is_made_again(history: Sequence[BaseMessage], message_id: object, *, is_own: bool) -> bool:
    """Whether the message with an id was made again: its graph has it in its history twice.

    A graph above has it not at all, or with the results of its calls.
    """
    found = [index for index, message in enumerate(history) if message.id == message_id]
    if is_own or not found:
        return not is_own or len(found) > 1
    made = {each["id"] for each in getattr(history[found[-1]], "tool_calls", ())}
    return made <= {m.tool_call_id for m in history[found[-1] :] if isinstance(m, ToolMessage)}
