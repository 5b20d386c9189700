"""Read the checkpoints of a timeline page by page.

A page of small checkpoints is longer: without the history, as in `DeltaChannel` state, a
checkpoint holds little.
"""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.checkpoint_messages import Checkpoint
from langgraph_patch.evidence.queries import (
    PAGE_WEIGHT,
    CheckpointReader,
    list_checkpoints,
    newest_checkpoints,
)
from langgraph_patch.evidence.timeline import Timeline
from langgraph_patch.evidence.tracked_calls import TrackedMessage

_PAGE = 50
"""How many checkpoints a page has."""

_PAGE_WITHOUT_HISTORY = 200
"""How many checkpoints a page has if they do not contain the history."""

_PAGES = 10
"""How many pages are read if bisection is impossible, with the first one."""


def read_newest_pages(
    reader: CheckpointReader, timeline: Timeline, current: str | None, *, is_at_exit: bool
) -> IOGenerator[None]:
    """Read the newest checkpoints, and one longer page. Damage is nearly always found there.

    Args:
        reader: The checkpointer.
        timeline: The messages.
        current: The id of the current checkpoint; None for the newest.
        is_at_exit: Whether the current checkpoint is not stored before the run ends. The newest
            one may then be that of another run.
    """
    page = yield from newest_checkpoints(reader, timeline.config, current)
    timeline.read(_without_other_runs(page, timeline.messages) if is_at_exit else page)
    is_long = timeline.oldest is not None and timeline.oldest.weight >= PAGE_WEIGHT
    for _ in range(2 if is_long else 1):  # a page of a long thread is a single checkpoint
        yield from read_page(reader, timeline, _PAGE)


def read_more_pages(reader: CheckpointReader, timeline: Timeline) -> IOGenerator[None]:
    """Read a fixed number of older pages."""
    is_small = timeline.oldest is not None and timeline.oldest.history is None
    for _ in range(_PAGES - 1):
        yield from read_page(reader, timeline, _PAGE_WITHOUT_HISTORY if is_small else _PAGE)


def read_page(reader: CheckpointReader, timeline: Timeline, limit: int) -> IOGenerator[None]:
    """Read the next older checkpoints, at most `limit`, if a message is not finished."""
    if timeline.unfinished() and timeline.oldest and timeline.has_older:
        older = list_checkpoints(reader, timeline.config, limit, before=timeline.oldest)
        timeline.read((yield from older))


def _without_other_runs(
    page: Sequence[Checkpoint], messages: Sequence[TrackedMessage]
) -> Sequence[Checkpoint]:
    """`page` without the checkpoints that other runs have stored since this run began.

    The calls are open in this run, so a checkpoint with a result of one is of another run. What
    is left begins with its parent. If nothing is left, the whole page counts.
    """
    rest = list(page)
    while rest and any(message.has_result_in(rest[0].history or []) for message in messages):
        parent = rest[0].parent_id
        rest = [checkpoint for checkpoint in rest if parent and checkpoint.id <= parent]
    return rest or page
