"""Find what a stored history lacks of the turns of agents that are nodes.

LangGraph drops such a turn if the user writes instead of answering, or after a failure. The history
looks valid then. A turn belongs behind the last message that the history had before; it is found
only if that place is certain.

- The newest input of the thread dropped it. A turn that an earlier input dropped is found if all
  inputs since dropped one too: after that, the model has gone on for a whole turn without it.
- Or nothing came after it, and the repair itself ends the tasks of the newest checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch._langgraph_storage import has_ended_tasks
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.checkpointer import Place, Reader, in_namespace, input_before
from langgraph_patch.evidence.nested import namespace_of
from langgraph_patch.evidence.tasks import configured_id, read_step
from langgraph_patch.evidence.turns import Turn, dropped_turns
from langgraph_patch.evidence.window import is_version
from langgraph_patch.graph.abandoned import NAME, Abandoned, place_after, turns_to_add
from langgraph_patch.threads.server import LangGraphServer
from langgraph_patch.threads.stored import starts_tasks


def lost_turns(
    saver: Any,
    saved: CheckpointTuple,
    history: Sequence[BaseMessage],
    messages_key: str,
    graph: Any = None,
) -> IOGenerator[list[Abandoned]]:
    """Find the turns that a history lacks.

    A checkpointer is asked for the newest input. Only if that dropped tasks, or if a superstep
    follows the newest checkpoint, are there more queries.

    Args:
        saver: The checkpointer. A LangGraph Server does not show what an input dropped.
        saved: The newest checkpoint.
        history: Its history, perhaps with what its finished tasks wrote.
        messages_key: The state key of the history.
        graph: The application's graph. Without it, it is not known which nodes are graphs, so all
            turns are told as those of functions.

    Returns:
        The turns, in the order of their places.

    Raises:
        EvidenceError: If the checkpointer raises.
    """
    if isinstance(saver, LangGraphServer) or not history:
        return []
    reader = Reader(saver, messages_key, required=True)
    builder, channels = None, dict[str, Any].fromkeys(saved.checkpoint["channel_versions"])
    if graph is not None:
        builder, channels = graph.builder, graph.channels
    others = {key: channel for key, channel in channels.items() if key != messages_key}
    lost: list[Abandoned] = []
    if starts_tasks(saved):
        found = yield from dropped_turns(reader, saved.config, builder, NAME)
        if found and found[0].step.id == saved.checkpoint["id"]:
            lost += filter(None, [turns_to_add(history, found, others)])
    older = saved
    while True:
        given = yield from input_before(reader, older)
        if given is None or not has_ended_tasks(given.checkpoint["channel_versions"]):
            break
        parent = configured_id(given.parent_config)
        place = in_namespace(saved.config, namespace_of(saved.config), parent)
        found = yield from dropped_turns(reader, place, builder, NAME)
        if found is None or not _is_certain(history, found, given, messages_key):
            break
        lost += filter(None, [turns_to_add(history, found, others)])
        older = found[0].step.saved
    return lost[::-1]


def _is_certain(
    history: Sequence[BaseMessage],
    found: tuple[Place, Sequence[Turn]],
    given: CheckpointTuple,
    messages_key: str,
) -> bool:
    """Whether an input stands in the history, directly behind all that was there before it.

    Otherwise it may be one of another branch, or the history was edited since. What an agent did
    after the input was given belongs to another branch as well.
    """
    before, turns = found
    index = place_after(history, before)
    step = read_step(given, messages_key)
    written = [message for task in step.written for message in task.messages]
    if not (index and written) or index == len(history):
        return False
    return (
        is_version(before.history[-1], history[index - 1])
        and is_version(written[0], history[index])
        and not isinstance(history[index], ToolMessage)
        and all(turn.place.step.id < step.id for turn in turns)
    )
