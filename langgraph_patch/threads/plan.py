"""Plan the repair of a stored thread: its options, what it changes, and why it may not be done.

`repair` writes the plan to a checkpointer, `server_repair` to a LangGraph Server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch._sansio import IOGenerator
from langgraph_patch.errors import OptionError
from langgraph_patch.evidence.recover import Recovery, recover_evidence
from langgraph_patch.graph.repairer import Repair, Repairer
from langgraph_patch.history.patch import Patch, changes_history
from langgraph_patch.threads.reports import Outcome
from langgraph_patch.threads.server import Activity
from langgraph_patch.threads.stored import age_of

OnPause = Literal["keep", "abandon"]

MOVED: Final = (
    "something else wrote to it during the repair, and that write takes precedence: scan it again"
)
NEEDS_GRAPH: Final = "{}: repair it with the graph of the application (--graph)"
KILLED: Final = "a run was stopped before its first superstep: continue it with invoke(None) first"

_WAITS = "it waits for a human: answer it, or abandon the pause (on_pause='abandon')"
_ENDS = "it waits for a human, and nothing in it is damaged: the next message ends the pause"
_YOUNG = (
    "its newest checkpoint is {:.0f} s old and a tool may be running: wait until it is {:.0f} s "
    "old, or force the repair"
)
_BUSY = "a run of it is in progress: wait until it has ended"


class Stopped(Exception):  # noqa: N818 - no error: an outcome
    """Why a repair is not written: its outcome and the reason, None for a healthy thread."""

    def __init__(self, outcome: Outcome, reason: str | None = None) -> None:
        super().__init__(outcome, reason)
        self.outcome, self.reason = outcome, reason


class Refused(Stopped):
    """Why a repair would not be safe."""

    def __init__(self, reason: str) -> None:
        super().__init__("refused", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """The options of `repair_thread`, which documents them.

    Raises:
        OptionError: If one has an invalid value.
    """

    repairer: Repairer
    on_pause: OnPause = "keep"
    min_age: float = 60.0
    force: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.on_pause not in ("keep", "abandon"):
            raise OptionError(f"on_pause={self.on_pause!r:.200}: expected 'keep' or 'abandon'.")
        age = self.min_age
        if not isinstance(age, int | float) or not 0 <= age < float("inf"):
            raise OptionError(f"min_age={age!r:.200}: expected seconds, 0 or more.")

    @property
    def messages_key(self) -> str:
        """The state key of the history."""
        return self.repairer.messages_key


# --- the plan ----------------------------------------------------------------------------


def plan_repair(
    saver: Any,
    config: RunnableConfig,
    messages: list[BaseMessage],
    options: RepairOptions,
    *,
    channels: Mapping[str, Any] | None = None,
) -> IOGenerator[Repair]:
    """The repair of a history, with what the checkpoints of the thread recorded.

    A final placeholder gives way only to what states more: a recorded result, or a cause for an
    unknown one.

    Args:
        saver: The checkpointer.
        config: The checkpoint that has the history.
        messages: The history.
        options: The options of the repair.
        channels: The channels of the application's graph. Other state keys that recovered results
            need are restored through them. None: the results name what is not restored.
        turns: The turns that the history lacks.

    Raises:
        EvidenceError: If the checkpointer raises.
    """
    repairer = options.repairer

    reading = repairer.read_all(messages)
    recovery = Recovery()
    if repairer.recover:
        recovery = yield from recover_evidence(
            saver,
            config,
            reading.messages,
            reading.without_result,
            messages_key=repairer.messages_key,
            required=True,
        )
    evidence = {
        key: replace(found, detail=None) if found.detail == "paused" else found
        for key, found in recovery.evidence.items()
    }
    recovery = replace(recovery, evidence=evidence)
    restore = channels is not None
    return (yield from repairer.repair_with(recovery, reading, channels or {}, restore=restore))


def check_due(
    base: CheckpointTuple, patch: Patch, options: RepairOptions, activity: Activity | None
) -> None:
    """Check that there is something to repair, and that it may be written now.

    Args:
        base: The newest checkpoint.
        patch: The repair of its history.
        options: The options of the repair.
        activity: Whether the thread waits for a human, or a run of it is in progress.

    Raises:
        Stopped: If not.
    """
    if activity == "running":
        raise Stopped("busy", _BUSY)
    if activity == "waiting" and options.on_pause == "keep":
        raise Stopped("paused", _WAITS)
    if not changes_history(patch):
        raise Stopped("paused", _ENDS) if activity else Stopped("healthy")
    age = age_of(base)
    if age < options.min_age and not options.force:
        raise Stopped("young", _YOUNG.format(age, options.min_age))


def with_committed(first: Patch, patch: Patch) -> Patch:
    """The repair of a history to which finished tasks wrote, as one of the history before that.

    Args:
        first: The repair of the history before.
        patch: The repair of the history with what they wrote.
    """
    ids = {message.id for message in first.before}
    results = [m for m in patch.before if isinstance(m, ToolMessage) and m.id not in ids]
    written = {message.tool_call_id: message for message in results}
    kept = [
        replace(change, kind="recovered", cause=None, after=written[change.tool_call_id])
        for change in first.changes
        if change.kind in ("inserted", "recovered") and change.tool_call_id in written
    ]
    return Patch(patch.messages, (*kept, *patch.changes), first.before)
