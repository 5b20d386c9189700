"""Why a repair is not written, or not undone: the reasons, and the caller who may refuse it."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.options import RepairOptions
from langgraph_patch.threads.reports import ThreadRepair

WAITS = "it waits for a human: answer it, or abandon the pause"
ENDS = "it waits for a human, and nothing in it is damaged: the next message ends the pause"
YOUNG = (
    "its newest checkpoint is {:.0f} s old and a tool may be running: wait until it is {:.0f} s "
    "old, or force the repair"
)
MOVED = "something else wrote to it during the repair, and that write takes precedence"


def confirmed(options: RepairOptions, planned: ThreadRepair) -> IOGenerator[str | None]:
    """Show a repair to the caller; the reason if the caller refuses it, otherwise None.

    Args:
        options: The options of the repair; `confirm` is the caller's function.
        planned: The repair as it would be written.
    """
    confirm = options.confirm
    if confirm is None:
        return None

    async def asynchronously() -> Any:
        answer = confirm(planned)
        return await answer if isawaitable(answer) else answer

    reason: str | None = yield IORequest(lambda: confirm(planned), asynchronously)
    return reason


def gone_error(repair: ThreadRepair) -> ThreadError:
    """The error for an undo after the thread was deleted."""
    return ThreadError(
        f"There is no thread {repair.thread_id!r} any more: there is nothing to undo."
    )


def not_undone_error(repair: ThreadRepair, *, is_undone: bool) -> ThreadError:
    """The error for an undo if the checkpoint of the repair is not the newest.

    Args:
        repair: The repair.
        is_undone: Whether the newest checkpoint is the one before it.
    """
    if is_undone:
        return ThreadError(
            f"The repair of thread {repair.thread_id!r} has been undone already, or was never "
            f"written."
        )
    return ThreadError(
        f"Thread {repair.thread_id!r} has moved on from checkpoint {repair.after}, so its repair "
        f"cannot be undone. The history before the repair is checkpoint {repair.before}."
    )
