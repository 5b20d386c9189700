"""Search the checkpoints of a thread for the evidence about tool calls.

First the newest page, then one longer page. If a message appeared before those, bisection finds
the checkpoint in which it was new. Where bisection is impossible, a fixed number of pages is
read. Then the search follows each message to the graph that it came from: the parent graph if it
was an input, else the subgraph of the task that wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig

from langgraph_patch._langgraph_storage import parent_namespace, task_of_namespace
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.bisection import bisect
from langgraph_patch.evidence.checkpoint_messages import Checkpoint, configured_id
from langgraph_patch.evidence.conclusions import (
    add_calls_that_did_not_start,
    read_only_task,
)
from langgraph_patch.evidence.nested_graphs import (
    add_inner_results,
    check_outcome,
    drop_answered,
)
from langgraph_patch.evidence.pages import read_more_pages, read_newest_pages
from langgraph_patch.evidence.queries import CheckpointReader, subgraph_checkpoints
from langgraph_patch.evidence.timeline import Timeline
from langgraph_patch.evidence.tracked_calls import Origin, TrackedMessage, track


def find_evidence(
    reader: CheckpointReader,
    config: RunnableConfig,
    messages: Sequence[TrackedMessage],
    *,
    is_at_exit: bool = False,
) -> IOGenerator[Checkpoint | None]:
    """Find the evidence about all calls of `messages`, in the namespace of `config` and below.

    Args:
        reader: The checkpointer.
        config: The thread, the namespace, and the current checkpoint if it is not the newest.
        messages: The messages. The evidence is stored in their calls.
        is_at_exit: Whether the current checkpoint is not stored before the run ends. The newest
            one may then be that of another run. Default: False.

    Returns:
        The newest checkpoint that was read, or None.
    """
    if not messages:
        return None
    timeline = Timeline(_without_checkpoint(config), messages)
    current = configured_id(config)
    yield from read_newest_pages(reader, timeline, current, is_at_exit=is_at_exit)
    # The number of queries is limited: the newest messages come first.
    rest = timeline.unfinished()
    for message in reversed([message for message in messages if message.is_finished]):
        yield from _add_findings(reader, timeline.config, message)
    if rest and not (yield from bisect(reader, timeline)):
        yield from read_more_pages(reader, timeline)
    for message in reversed(rest):
        if not message.is_finished:
            message.drop_uncertain()
        yield from _add_findings(reader, timeline.config, message)
    return timeline.newest


def _add_findings(
    reader: CheckpointReader, config: RunnableConfig, message: TrackedMessage
) -> IOGenerator[None]:
    """Add what the other graphs and the supersteps after a message show about its calls."""
    pause = add_calls_that_did_not_start(message)
    if pause is not None and message.oldest is not None:
        yield from drop_answered(reader, config, message)
    if pause is None and message.calls_without_evidence():
        yield from _follow(reader, config, message)
    for tracked in message.calls:
        outcome = tracked.outcome
        if outcome and outcome.finding and tracked.evidence is outcome.finding:
            yield from check_outcome(reader, config, tracked, outcome)
        if not isinstance(tracked.evidence, ToolMessage):
            yield from add_inner_results(reader, config, tracked)


def _without_checkpoint(config: RunnableConfig, namespace: str | None = None) -> RunnableConfig:
    """`config` without a checkpoint, in its own namespace or in another one."""
    configurable = {"checkpoint_ns": "", **config.get("configurable", {})}
    configurable.pop("checkpoint_id", None)
    if namespace is not None:
        configurable["checkpoint_ns"] = namespace
    return RunnableConfig(configurable=configurable)


# --- other graphs -------------------------------------------------------------------------


def _follow(
    reader: CheckpointReader, config: RunnableConfig, message: TrackedMessage
) -> IOGenerator[None]:
    """Search the graph that a message came from."""
    origin = message.origin
    if origin is None:
        yield from _search_unwritten(reader, config, message)
    elif origin.checkpoint.source == "input" and config["configurable"]["checkpoint_ns"]:
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
    first, _ = yield from subgraph_checkpoints(reader, config, origin.checkpoint, step=-1)
    found = {checkpoint.namespace for checkpoint in first}
    namespaces = sorted(ns for ns in found if task_of_namespace(ns) == origin.task_id)
    for namespace in namespaces:
        yield from _search_graph(reader, _without_checkpoint(config, namespace), message)
    if not namespaces:
        read_only_task(message)


def _search_unwritten(
    reader: CheckpointReader, config: RunnableConfig, message: TrackedMessage
) -> IOGenerator[None]:
    """Search the subgraphs of the superstep before a message, if no task is recorded that wrote it.

    That is so with durability "exit". A subgraph has checkpoints if an earlier run stopped in it,
    and these have what a later run wrote, too.
    """
    if message.unwritten is None or message.oldest is None or message.oldest.source != "loop":
        return
    found, _ = yield from subgraph_checkpoints(reader, config, message.unwritten)
    has_message = {c.namespace for c in found if c.history and message.is_in(c.history)}
    for namespace in sorted(has_message):
        yield from _search_graph(reader, _without_checkpoint(config, namespace), message)


def _search_graph(
    reader: CheckpointReader,
    config: RunnableConfig,
    message: TrackedMessage,
    *,
    results_only: bool = False,
) -> IOGenerator[None]:
    """Search another namespace for the calls of a message that have no evidence yet."""
    calls = message.calls_without_evidence()
    other = TrackedMessage(message.message, [track(tracked.call) for tracked in calls])
    yield from find_evidence(reader, config, [other])
    for tracked, found in zip(calls, other.calls, strict=True):
        if isinstance(found.evidence, ToolMessage) or not results_only:
            tracked.evidence, tracked.source = found.evidence, found.source
            tracked.inner = found.inner
