"""Whether a call may have been started again after an outcome of it was recorded.

An outcome is stale as soon as its call may have been started again: the later start may have
finished without a record. Starts themselves are not recorded, so this module collects the nodes
that may have made one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, TASKS
from langgraph.types import Send

from langgraph_patch._langgraph import NO_TASK, sent_call, triggered_node
from langgraph_patch.evidence.checkpoint_messages import (
    Checkpoint,
    OpenCall,
    adds_other_message,
)
from langgraph_patch.evidence.supersteps import pending_sends, triggered_nodes
from langgraph_patch.evidence.task_outcomes import TaskOutcome


class PossibleStart(NamedTuple):
    """A node that may have started a call in a superstep.

    Attributes:
        node: The node.
        sends_version: The version of the `Send`s that started it, or None if it ran over the
            whole state.
        is_finished: Whether all nodes of the superstep finished.
        is_certain: Whether the call was certainly open when the node ran.
    """

    node: str
    sends_version: object | None
    is_finished: bool
    is_certain: bool


def with_starts_of(
    starts: set[PossibleStart], checkpoint: Checkpoint, call: OpenCall, *, is_pending: bool
) -> set[PossibleStart]:
    """Add the possible starts of one superstep to those of newer ones.

    Args:
        starts: The possible starts in newer supersteps.
        checkpoint: The checkpoint before the superstep.
        call: The call.
        is_pending: Whether the call was still pending.
    """
    finished, has_history = _all_nodes_finished(checkpoint), checkpoint.history is not None
    certain = _starting_nodes(checkpoint, call.id, is_pending=is_pending and has_history)
    found = {PossibleStart(node, sent, finished, is_certain=True) for node, sent in certain}
    if not has_history:
        if adds_other_message(checkpoint, call.message):
            # A later node over the whole state did not see the call open.
            starts = {start for start in starts if start.is_certain}
        nodes = triggered_nodes(checkpoint)
        found |= {PossibleStart(node, None, finished, is_certain=False) for node in nodes}
    return starts | found


def is_stale(
    outcome: TaskOutcome, later_starts: Collection[PossibleStart], origin_nodes: set[str]
) -> bool:
    """Whether the call of an outcome may have been started again.

    Args:
        outcome: The outcome.
        later_starts: The possible starts of the call in supersteps after that of the outcome.
        origin_nodes: The nodes that do not count, because they made the message of the call.
    """
    ran_whole_state = (
        set() if pending_sends(outcome.checkpoint) else triggered_nodes(outcome.checkpoint)
    )
    # `Send`s that were not run are stored again with the next checkpoints, in the same version.
    version = _sends_version(outcome.checkpoint)
    again = {
        start.node
        for start in later_starts
        if (start.sends_version is None or start.sends_version != version)
        and (start.is_certain or start.node in ran_whole_state)
        # Another node that finished and left no result did not run the call.
        and not (start.is_finished and outcome.node not in (None, start.node))
    }
    return bool((again | _nodes_added_by_client(outcome.checkpoint)) - origin_nodes)


def nodes_that_made(origin: Checkpoint, oldest: Checkpoint) -> set[str]:
    """The node that made a message, which is not a node that runs its calls; empty if uncertain.

    Args:
        origin: The checkpoint that has the message in its pending writes.
        oldest: The oldest checkpoint that contains the message.
    """
    if oldest.source != "loop" or oldest.parent_id != origin.id or pending_sends(origin):
        return set()
    nodes = triggered_nodes(origin)
    return nodes if len(nodes) == 1 else set()


def _starting_nodes(
    checkpoint: Checkpoint, call_id: str, *, is_pending: bool
) -> set[tuple[str, object | None]]:
    """The nodes that may have started a call, and the version of their `Send`s.

    While the call is pending, these include the nodes that run over the whole state.
    """
    sends = [(s.node, sent_call(s)) for s in pending_sends(checkpoint) if isinstance(s, Send)]
    sent = {node for node, call in sends if call is not None and call.get("id") == call_id}
    if is_pending:
        sent |= {node for node, call in sends if call is None}
    starting: set[tuple[str, object | None]] = {(node, _sends_version(checkpoint)) for node in sent}
    if is_pending:
        starting |= {
            (n, None) for n in triggered_nodes(checkpoint) | _nodes_added_by_client(checkpoint)
        }
    return starting


def _all_nodes_finished(checkpoint: Checkpoint) -> bool:
    """Whether all nodes of a superstep finished, without an error or an interrupt."""
    writes = [(task, c) for task, c, _ in checkpoint.writes if task != NO_TASK]
    if pending_sends(checkpoint) or any(channel in (ERROR, INTERRUPT) for _, channel in writes):
        return False
    return len({task for task, _ in writes}) >= len(triggered_nodes(checkpoint)) > 0


def _nodes_added_by_client(checkpoint: Checkpoint) -> set[str]:
    """The nodes that a client started with `Command(goto=...)`."""
    writes = [(c, value) for task, c, value in checkpoint.writes if task == NO_TASK]
    triggered = {node for channel, _ in writes if (node := triggered_node(channel))}
    sent = {value.node for c, value in writes if c == TASKS and isinstance(value, Send)}
    return triggered | sent


def _sends_version(checkpoint: Checkpoint) -> object | None:
    """The version of the `Send`s of a superstep; None for a fork, which runs them again."""
    if checkpoint.source == "fork":
        return None
    return checkpoint.saved.checkpoint["channel_versions"].get(TASKS)
