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

from langgraph_patch._langgraph_names import may_run_in_task, parent_namespace, task_of_namespace
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.checkpoint_messages import Checkpoint, configured_id
from langgraph_patch.evidence.conclusions import (
    add_calls_that_did_not_start,
    read_only_task,
    settle,
)
from langgraph_patch.evidence.inner_results import inner_results
from langgraph_patch.evidence.open_calls import index_of, is_subsequence
from langgraph_patch.evidence.queries import (
    PAGE_WEIGHT,
    CheckpointReader,
    list_checkpoints,
    newest_checkpoints,
    parent_checkpoints,
    subgraph_checkpoints,
)
from langgraph_patch.evidence.supersteps import is_answered, send_task
from langgraph_patch.evidence.task_outcomes import (
    TaskOutcome,
    applies_to_call,
    evidence_in_subgraphs,
    interrupted_itself,
)
from langgraph_patch.evidence.timeline import Timeline
from langgraph_patch.evidence.tracked_calls import Origin, TrackedCall, TrackedMessage, track
from langgraph_patch.history.patch import Finding

_PAGE = 50
_PAGE_WITHOUT_HISTORY = 200
"""How many checkpoints a page has if they do not contain the history, and so are small."""

_PAGES = 10
"""How many pages are read if bisection is impossible."""

_NEAR = 8
"""Bisection stops within this many steps, and the rest is read as a page."""

_GUESSES = 4
"""Every so many probes, the middle is probed instead of a guess."""

_PROBES = 4 * PAGE_WEIGHT
"""How much the probes that are kept for other messages may weigh."""

_AFTER = 3
"""How many steps after the one in which a message was new are read at least."""

_BISECTED_PAGES = 3
"""How many pages are read after bisection."""

_BRANCHES = 4
"""How many checkpoints of one step are listed, each on a branch of its own."""


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
    page = yield from newest_checkpoints(reader, timeline.config, configured_id(config))
    timeline.read(_without_other_runs(page, messages) if is_at_exit else page)
    is_long = timeline.oldest is not None and timeline.oldest.weight >= PAGE_WEIGHT
    for _ in range(2 if is_long else 1):  # a page is then a single checkpoint
        yield from _read_page(reader, timeline, _PAGE)
    # The number of queries is limited: the newest messages come first.
    rest = timeline.unfinished()
    for message in reversed([message for message in messages if message.is_finished]):
        yield from _add_findings(reader, timeline.config, message)
    if rest and not (yield from _bisect(reader, timeline)):
        yield from _read_pages(reader, timeline)
    for message in reversed(rest):
        settle(message)
        yield from _add_findings(reader, timeline.config, message)
    return timeline.newest


def _without_other_runs(
    page: Sequence[Checkpoint], messages: Sequence[TrackedMessage]
) -> Sequence[Checkpoint]:
    """`page` from the newest checkpoint that a run may have begun at in which calls are open.

    One with a result of such a call was stored by another run in the meantime.
    """
    rest = list(page)
    while rest and any(message.has_result_in(rest[0].history or []) for message in messages):
        parent = rest[0].parent_id
        rest = [checkpoint for checkpoint in rest if parent and checkpoint.id <= parent]
    return rest or page


def _add_findings(
    reader: CheckpointReader, config: RunnableConfig, message: TrackedMessage
) -> IOGenerator[None]:
    """Add what the other graphs and the supersteps after a message show about its calls."""
    pause = add_calls_that_did_not_start(message)
    if pause is not None and message.oldest is not None:
        yield from _drop_answered(reader, config, message)
    if pause is None and message.origin is not None and message.calls_without_evidence():
        yield from _follow(reader, config, message, message.origin)
    for tracked in message.calls:
        outcome = tracked.outcome
        if outcome and outcome.finding and tracked.evidence is outcome.finding:
            yield from _check_outcome(reader, config, tracked, outcome)
        if not isinstance(tracked.evidence, ToolMessage):
            yield from _add_inner_results(reader, config, tracked)


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


def _near(checkpoint: Checkpoint) -> int:
    """How many checkpoints like this one are read instead of bisecting further."""
    return max(1, min(_NEAR, PAGE_WEIGHT // max(checkpoint.weight, 1)))


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
    for message in reversed(timeline.unfinished()):
        high = yield from _step_of(reader, timeline, message, probes)
        if high is None or not (yield from _read_below(reader, timeline, message, high)):
            return False
    return True


def _step_of(
    reader: CheckpointReader,
    timeline: Timeline,
    message: TrackedMessage,
    probes: dict[int, list[Checkpoint]],
) -> IOGenerator[int | None]:
    """The step in which a message was new, or one soon after it; None if that is uncertain."""
    bottom = timeline.oldest
    if bottom is None or bottom.history is None:
        return None
    index = index_of(bottom.history, message.message) or 0
    low, high, below, above = -2, bottom.step, 0, len(bottom.history)
    count = 0
    while high - low > _near(bottom):
        count += 1
        middle = (low + high) // 2
        if count % _GUESSES and above > below:  # a thread grows evenly, more or less
            guess = low + round((high - low) * (index - below) / (above - below))
            middle = min(max(guess, low + 1), high - 1)
        if middle not in probes:
            if sum(c.weight for page in probes.values() for c in page) > _PROBES:
                probes.clear()
            probes[middle] = yield from _list_step(reader, timeline, middle, bottom)
        found = _ancestor(probes[middle], bottom, message)
        if found is None:
            return None
        history = found.history or []
        if message.is_in(history):
            high, above = middle, min(above, len(history))
        else:
            low, below = middle, max(below, min(index, len(history)))
    return high


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
    reader: CheckpointReader, timeline: Timeline, message: TrackedMessage, high: int
) -> IOGenerator[bool]:
    """Read the checkpoints around step `high` for one message; False if that is uncertain."""
    above = bottom = timeline.oldest
    top = high + max(_near(bottom), _AFTER) if bottom else high
    if bottom is not None and top < bottom.step:
        found = yield from _list_step(reader, timeline, top, bottom)
        above = _ancestor(found, bottom, message)
    part = Timeline(timeline.config, [message], oldest=above)
    message.later = None
    for _ in range(_BISECTED_PAGES):
        yield from _read_page(reader, part, 3 * _near(bottom) if bottom else 1)
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
    first, _ = yield from subgraph_checkpoints(reader, config, origin.checkpoint, step=-1)
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
    other = TrackedMessage(message.message, [track(tracked.call) for tracked in calls])
    yield from find_evidence(reader, config, [other])
    for tracked, found in zip(calls, other.calls, strict=True):
        if isinstance(found.evidence, ToolMessage) or not results_only:
            tracked.evidence, tracked.source = found.evidence, found.source
            tracked.inner = found.inner


# --- the tasks of calls -------------------------------------------------------------------


def _check_outcome(
    reader: CheckpointReader, config: RunnableConfig, tracked: TrackedCall, outcome: TaskOutcome
) -> IOGenerator[None]:
    """Check an outcome against the subgraphs of its task: their checkpoints take precedence."""
    finding, namespace = outcome.finding, config["configurable"]["checkpoint_ns"]
    is_waiting = finding is not None and finding.cause == "awaiting_input"
    if is_waiting and (yield from _is_answered_above(reader, config, outcome.checkpoint)):
        tracked.evidence = None
        return
    if outcome.node is None or interrupted_itself(outcome, namespace):
        return
    tracked.evidence = None
    found, is_whole = yield from subgraph_checkpoints(reader, config, outcome.checkpoint)
    if not is_whole:
        return
    own = [c for c in found if may_run_in_task(c.namespace, namespace, outcome.task_id)]
    evidence = evidence_in_subgraphs(own, outcome, tracked.forms)
    if not isinstance(evidence, Finding) or applies_to_call(outcome, namespace, own):
        tracked.evidence = evidence


def _is_answered_above(
    reader: CheckpointReader, config: RunnableConfig, checkpoint: Checkpoint
) -> IOGenerator[bool]:
    """Whether a graph above recorded an answer: it records those to all graphs below."""
    if not config["configurable"]["checkpoint_ns"]:
        return False
    above = yield from parent_checkpoints(reader, config, checkpoint)
    return any(map(is_answered, above)) or reader.error is not None


def _drop_answered(
    reader: CheckpointReader, config: RunnableConfig, message: TrackedMessage
) -> IOGenerator[None]:
    """Drop the cause of calls that were not approved, if a graph above recorded an answer."""
    newest = message.newest_pending
    if newest is not None and (yield from _is_answered_above(reader, config, newest)):
        for tracked in message.calls:
            if isinstance(tracked.evidence, Finding) and tracked.evidence.detail == "approval":
                tracked.evidence = None


def _add_inner_results(
    reader: CheckpointReader, config: RunnableConfig, tracked: TrackedCall
) -> IOGenerator[None]:
    """Add the results of the calls inside a call, if its own task is known."""
    namespace, outcome = config["configurable"]["checkpoint_ns"], tracked.outcome
    if tracked.inner or (outcome is not None and interrupted_itself(outcome, namespace)):
        return
    checkpoint = outcome.checkpoint if outcome else tracked.sent_in
    if checkpoint is None:
        return
    found, _ = yield from subgraph_checkpoints(reader, config, checkpoint)
    if not found:
        return
    sent = filter(None, (send_task(checkpoint, form) for form in tracked.forms))
    task_id = outcome.task_id if outcome else next(sent, ("",))[0]
    tracked.inner = inner_results(found, namespace, task_id)
