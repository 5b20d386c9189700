"""Decide which checkpoints to read for the evidence about tool calls.

First the newest page, then one longer page. If a message appeared before those, bisection by the
step number finds the checkpoint in which it was new. Where bisection is impossible, a fixed
number of pages is read. Then the search follows each message to the graph that it came from: the
parent graph if it was an input, else the subgraph of the task that wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig

from langgraph_patch._langgraph import may_run_in_task, parent_namespace, task_of_namespace
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.checkpoint_messages import (
    Checkpoint,
    configured_id,
    index_of,
    is_subsequence,
)
from langgraph_patch.evidence.queries import (
    MAX_SUBGRAPH_CHECKPOINTS,
    CheckpointReader,
    list_checkpoints,
    newest_checkpoints,
    subgraph_checkpoints,
)
from langgraph_patch.evidence.task_outcomes import (
    TaskOutcome,
    applies_to_call,
    evidence_in_subgraphs,
    interrupted_itself,
)
from langgraph_patch.evidence.timeline import (
    Origin,
    Timeline,
    TrackedCall,
    TrackedMessage,
    drop_stale_outcomes,
    read_only_task,
)
from langgraph_patch.history.patch import Finding

_PAGE = 50
_PAGE_WITHOUT_HISTORY = 200
"""How many checkpoints a page has if they do not contain the history, and so are small."""

_PAGES = 10
"""How many pages are read if bisection is impossible."""

_NEAR = 8
"""Bisection stops within this many steps, and the rest is read as a page."""

_BISECTED_PAGES = 3
"""How many pages are read after bisection."""

_BRANCHES = 4
"""How many checkpoints of one step are listed, each on a branch of its own."""


def find_evidence(
    reader: CheckpointReader, config: RunnableConfig, messages: Sequence[TrackedMessage]
) -> IOGenerator[None]:
    """Find the evidence about all calls of `messages`, in the namespace of `config` and below.

    Args:
        reader: The checkpointer.
        config: The thread, the namespace, and the current checkpoint if it is not the newest.
        messages: The messages. The evidence is stored in their calls.
    """
    if not messages:
        return
    timeline = Timeline(_without_checkpoint(config), messages)
    newest = newest_checkpoints(reader, timeline.config, configured_id(config))
    timeline.read((yield from newest))
    yield from _read_page(reader, timeline, _PAGE)
    if timeline.unfinished() and not (yield from _bisect(reader, timeline)):
        yield from _read_pages(reader, timeline)
    for message in messages:
        if message.origin is not None and message.calls_without_evidence():
            yield from _follow(reader, timeline.config, message, message.origin)
        for call, outcome in drop_stale_outcomes(message):
            yield from _check_outcome(reader, timeline.config, call, outcome)


def _without_checkpoint(config: RunnableConfig, namespace: str | None = None) -> RunnableConfig:
    """`config` without a checkpoint, in its own namespace or in another one."""
    configurable = {"checkpoint_ns": "", **config.get("configurable", {})}
    configurable.pop("checkpoint_id", None)
    if namespace is not None:
        configurable["checkpoint_ns"] = namespace
    return RunnableConfig(configurable=configurable)


# --- pages --------------------------------------------------------------------------------


def _read_page(reader: CheckpointReader, timeline: Timeline, limit: int) -> IOGenerator[None]:
    if timeline.unfinished() and timeline.oldest and timeline.has_older:
        older = list_checkpoints(reader, timeline.config, limit, before=timeline.oldest)
        timeline.read((yield from older))


def _read_pages(reader: CheckpointReader, timeline: Timeline) -> IOGenerator[None]:
    is_small = timeline.oldest is not None and timeline.oldest.history is None
    for _ in range(_PAGES - 1):
        yield from _read_page(reader, timeline, _PAGE_WITHOUT_HISTORY if is_small else _PAGE)


# --- bisection ----------------------------------------------------------------------------


def _bisect(reader: CheckpointReader, timeline: Timeline) -> IOGenerator[bool]:
    """Read the checkpoints in which each unfinished message was new.

    Returns:
        False if they cannot be determined for each message.
    """
    bottom = timeline.oldest
    if bottom is None or bottom.history is None:
        return False
    probes: dict[int, list[Checkpoint]] = {}
    for message in timeline.unfinished():
        low, high = -2, bottom.step
        while high - low > _NEAR:
            middle = (low + high) // 2
            if middle not in probes:
                probes[middle] = yield from _list_step(reader, timeline, middle, bottom)
            found = _ancestor(probes[middle], bottom, message)
            if found is None:
                return False
            contains = message.is_in(found.history or [])
            low, high = (low, middle) if contains else (middle, high)
        if not (yield from _read_below(reader, timeline, message, high + _NEAR)):
            return False
    return True


def _list_step(
    reader: CheckpointReader, timeline: Timeline, step: int, before: Checkpoint
) -> IOGenerator[list[Checkpoint]]:
    """List the checkpoints of one superstep: several, if the thread has branches."""
    wanted = {"step": step}
    found = list_checkpoints(reader, timeline.config, _BRANCHES, metadata=wanted, before=before)
    return (yield from found)


def _ancestor(
    candidates: Sequence[Checkpoint], bottom: Checkpoint, message: TrackedMessage
) -> Checkpoint | None:
    """The one of several checkpoints that `bottom` was made from; None if that is uncertain."""
    ancestors = []
    for checkpoint in candidates:
        history = checkpoint.history
        if history is None:
            return None
        contains = message.is_in(history)
        # What came before the message may have been summarised since.
        rest = history[index_of(history, message.message) or 0 :] if contains else history
        is_only = not contains and len(candidates) == 1
        if is_only or is_subsequence(rest, bottom.history or []):
            ancestors.append(checkpoint)
    return ancestors[0] if len(ancestors) == 1 else None


def _read_below(
    reader: CheckpointReader, timeline: Timeline, message: TrackedMessage, top: int
) -> IOGenerator[bool]:
    """Read the checkpoints below step `top` for one message; False if `top` is uncertain."""
    above = bottom = timeline.oldest
    if bottom is not None and top < bottom.step:
        found = yield from _list_step(reader, timeline, top, bottom)
        above = _ancestor(found, bottom, message)
    part = Timeline(timeline.config, [message], oldest=above)
    for _ in range(_BISECTED_PAGES):
        yield from _read_page(reader, part, 3 * _NEAR)
    return above is not None


# --- other graphs -------------------------------------------------------------------------


def _follow(
    reader: CheckpointReader, config: RunnableConfig, message: TrackedMessage, origin: Origin
) -> IOGenerator[None]:
    """Search the graph that a message came from."""
    if origin.checkpoint.source == "input" and config["configurable"]["checkpoint_ns"]:
        yield from _search_parent(reader, config, message, origin)
    else:
        yield from _search_subgraphs(reader, config, message, origin)


def _search_parent(
    reader: CheckpointReader, config: RunnableConfig, message: TrackedMessage, origin: Origin
) -> IOGenerator[None]:
    """Search the graph that passed the message to this subgraph, as it was at that time."""
    namespace = parent_namespace(config["configurable"]["checkpoint_ns"])
    current = origin.checkpoint.saved.metadata.get("parents", {}).get(namespace)
    if current is not None:
        parent = _without_checkpoint(config, namespace)
        parent["configurable"]["checkpoint_id"] = current
        # Only results count: an open call of the parent may be the call that runs this subgraph.
        yield from _search_graph(reader, parent, message, results_only=True)


def _search_subgraphs(
    reader: CheckpointReader, config: RunnableConfig, message: TrackedMessage, origin: Origin
) -> IOGenerator[None]:
    """Search the subgraph of the task that wrote the message, or else the task itself.

    A handoff moves the message out of a subgraph, but the results of its other calls stay there.
    """
    first = yield from subgraph_checkpoints(reader, config, origin.checkpoint, step=-1)
    found = {checkpoint.namespace for checkpoint in first}
    namespaces = sorted(ns for ns in found if task_of_namespace(ns) == origin.task_id)
    for namespace in namespaces:
        yield from _search_graph(reader, _without_checkpoint(config, namespace), message)
    if not namespaces:
        read_only_task(message)


def _search_graph(
    reader: CheckpointReader,
    config: RunnableConfig,
    message: TrackedMessage,
    *,
    results_only: bool = False,
) -> IOGenerator[None]:
    """Search another namespace for the calls of a message that have no evidence yet."""
    calls = message.calls_without_evidence()
    other = TrackedMessage(message.message, [TrackedCall(tracked.call) for tracked in calls])
    yield from find_evidence(reader, config, [other])
    for tracked, found in zip(calls, other.calls, strict=True):
        if isinstance(found.evidence, ToolMessage) or not results_only:
            tracked.evidence = found.evidence


def _check_outcome(
    reader: CheckpointReader, config: RunnableConfig, tracked: TrackedCall, outcome: TaskOutcome
) -> IOGenerator[None]:
    """Check an outcome against the subgraphs of its task: their checkpoints take precedence."""
    namespace = config["configurable"]["checkpoint_ns"]
    if outcome.node is None or interrupted_itself(outcome, namespace):
        return
    tracked.evidence = None
    if not reader.queries_left:
        return
    found = yield from subgraph_checkpoints(reader, config, outcome.checkpoint)
    if len(found) == MAX_SUBGRAPH_CHECKPOINTS:
        return
    own = [c for c in found if may_run_in_task(c.namespace, namespace, outcome.task_id)]
    evidence = evidence_in_subgraphs(own, outcome, tracked.call)
    if not isinstance(evidence, Finding) or applies_to_call(outcome, namespace, own):
        tracked.evidence = evidence
