"""Which earlier supersteps a run continues.

After an `update_state` between a pause and its resume, the node runs on a new checkpoint, under
another task id. The records of the call are in the checkpoint of the pause. They are also there
if a new input was stored in between but not applied, because the update drops that input.
"""

from __future__ import annotations

from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._sansio import IOGenerator, IORequest, call_method

MAX_UPDATES: Final = 50
"""How many consecutive updates of the state, and inputs that they drop, are followed."""


def continued_supersteps(
    saver: BaseCheckpointSaver[Any], thread: RunnableConfig, checkpoint_id: str
) -> IOGenerator[list[CheckpointTuple]]:
    """The checkpoint of a run, and the earlier ones with the same superstep, newest first.

    `update_state` on the newest checkpoint continues its superstep. On an older one it makes a
    fork, and a fork runs its tasks again. So the parent of an update counts only if it was the
    newest checkpoint when the update was made.

    Args:
        saver: The checkpointer.
        thread: The thread and the namespace.
        checkpoint_id: The checkpoint that the run is on.
    """
    saved = yield from call_method(saver, "get_tuple", thread)
    supersteps = [saved] if saved is not None else []
    if saved is None or saved.checkpoint["id"] != checkpoint_id:
        return supersteps
    sources = {"update"}
    while len(supersteps) <= MAX_UPDATES and saved.metadata.get("source") in sources:
        sources = {"update", "input"}  # an update drops an input that was not applied
        before = yield from _newest_before(saver, thread, saved)
        if before is None or before.checkpoint["id"] != _parent_id(saved):
            break
        saved = before
        supersteps.append(saved)
    return supersteps


def _newest_before(
    saver: BaseCheckpointSaver[Any], thread: RunnableConfig, saved: CheckpointTuple
) -> IOGenerator[CheckpointTuple | None]:
    """The newest checkpoint of the namespace that is older than `saved`, or None."""
    options: dict[str, Any] = {"before": saved.config, "limit": 1}

    async def alist() -> list[CheckpointTuple]:
        return [found async for found in saver.alist(thread, **options)]

    try:
        found = yield IORequest(lambda: list(saver.list(thread, **options)), alist)
    except NotImplementedError:
        # `BaseCheckpointSaver.list` of a saver that does not have one. No earlier record can be
        # read, so the calls run again after an `update_state`, as they do without a record.
        return None
    return found[0] if found else None


def _parent_id(saved: CheckpointTuple) -> str | None:
    parent: RunnableConfig = saved.parent_config or {}
    return parent.get("configurable", {}).get("checkpoint_id")
