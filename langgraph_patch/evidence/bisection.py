"""Find the checkpoint in which a message was new, by bisection over the step numbers.

A probe lists the checkpoints of one superstep. If the one of this branch contains the message,
the search goes on below that step, else above it. Bisection is impossible if checkpoints do not
store the history (`DeltaChannel`), if a step has no checkpoint (durability "exit"), or if the
branches cannot be distinguished.
"""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.checkpoint_messages import Checkpoint
from langgraph_patch.evidence.open_calls import index_of, is_subsequence
from langgraph_patch.evidence.pages import read_page
from langgraph_patch.evidence.queries import PAGE_WEIGHT, CheckpointReader, list_checkpoints
from langgraph_patch.evidence.timeline import Timeline
from langgraph_patch.evidence.tracked_calls import TrackedMessage

_NEAR = 8
"""Bisection stops within this many steps, and the rest is read as a page."""

_GUESSES = 4
"""Every so many probes, the middle is probed instead of a guess."""

_PROBES = 4 * PAGE_WEIGHT
"""How much the probes that are kept for other messages may weigh."""

_AFTER = 3
"""How many steps after the one in which a message was new are read at least."""

_PAGES = 3
"""How many pages are read after bisection."""

_BRANCHES = 4
"""How many checkpoints of one step are listed, each on a branch of its own."""


def bisect(reader: CheckpointReader, timeline: Timeline) -> IOGenerator[bool]:
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
    for _ in range(_PAGES):
        yield from read_page(reader, part, 3 * _near(bottom) if bottom else 1)
    return above is not None


def _near(checkpoint: Checkpoint) -> int:
    """How many checkpoints like this one are read instead of bisecting further."""
    return max(1, min(_NEAR, PAGE_WEIGHT // max(checkpoint.weight, 1)))
