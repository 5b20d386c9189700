"""What a scan found in a stored thread, and what a repair did to it, as values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig

from langgraph_patch._langgraph.address import Address
from langgraph_patch._text import labelled
from langgraph_patch.history.changes import Change, Patch, json_value
from langgraph_patch.view import notebook_html, report_view

ThreadStatus = Literal["healthy", "damaged", "paused", "unreadable"]
Outcome = Literal["healthy", "planned", "repaired", "paused", "young", "moved", "refused"]


class Stopped(Exception):  # noqa: N818 - no error: an outcome
    """Why a repair is not written: its outcome and the reason, None for a healthy thread."""

    def __init__(self, outcome: Outcome, reason: str | None = None) -> None:
        super().__init__(outcome, reason)
        self.outcome, self.reason = outcome, reason


class Refused(Stopped):
    """Why a repair would not be safe."""

    def __init__(self, reason: str) -> None:
        super().__init__("refused", reason)


@dataclass(frozen=True, slots=True, repr=False)
class _Result:
    """What was found in a history or done to it, and how that is shown."""

    thread_id: str
    namespace: str

    @property
    def config(self) -> RunnableConfig:
        """The config that names the history, as in `repair_thread(saver, report.config)`."""
        return Address(self.thread_id, self.namespace).config

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values, with whole messages."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "patch": values["patch"].to_dict() if values["patch"] else None}

    def _line(self, state: str, details: str | None) -> str:
        place = f" in {self.namespace!r}" if self.namespace else ""
        return f"{self.thread_id!r}{place}: {state}" + (f" - {details}" if details else "")

    def __repr__(self) -> str:
        return labelled(self, " ")

    def __rich__(self) -> Any:
        """A table of rich."""
        return report_view(self.to_dict())

    def _repr_html_(self) -> str:
        """The same as HTML, for notebooks."""
        return notebook_html(self)


@dataclass(frozen=True, slots=True, repr=False)
class ThreadReport(_Result):
    """What a scan found in the newest checkpoint of a thread.

    Attributes:
        thread_id: The id of the thread.
        namespace: The namespace of the graph that holds the history; `""` is the root graph.
        status: `healthy`; `damaged`: a model would refuse the history with the next message, or a
            placeholder in it can be replaced; `paused`: the thread waits for a human, and
            `defects` are those that the human's answer does not repair, or it may wait at a
            breakpoint, as `reason` says; or `unreadable`: `reason` says why.
        checkpoint_id: The id of the newest checkpoint; None if it cannot be read.
        age: The seconds since that checkpoint was written, or None if it cannot be read.
        written: When that was, as a time in UTC (ISO 8601); None if it is not known.
        messages: The number of messages; None if the state has no such key, or cannot be read.
        defects: What is wrong with the history, as the changes that repair it.
        patch: What a repair would do, and the cause of each missing result; None unless the
            thread is damaged, or its pause asks nothing.
        reason: Why the thread cannot be read, or an older checkpoint with the causes of missing
            results, or why a repair leaves it as it is. If a task failed behind the answer of a
            human, or a call that runs once was started: what helps. Otherwise None.
        asks: For a paused thread, the value of each interrupt: what the human is asked.
        repaired: Whether `repair_thread` wrote the newest checkpoint, so that `undo_repair` can
            undo it.
    """

    status: ThreadStatus
    checkpoint_id: str | None = None
    age: float | None = None
    written: str | None = None
    messages: int | None = None
    defects: tuple[Change, ...] = ()
    patch: Patch | None = None
    reason: str | None = None
    asks: tuple[Any, ...] = ()
    repaired: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, with whole messages."""
        defects = [
            {"kind": c.defect, "index": c.index, "tool_call_id": c.tool_call_id, "name": c.name}
            for c in self.defects
        ]
        asks = [json_value(value) for value in self.asks]
        return {**_Result.to_dict(self), "defects": defects, "asks": asks}

    def __str__(self) -> str:
        if self.patch:
            return self._line(self.status, "; ".join(filter(None, (str(self.patch), self.reason))))
        counted = Counter(change.defect for change in self.defects)
        defects = ", ".join(f"{count} {kind}" for kind, count in counted.items())
        return self._line(self.status, defects or self.reason)


@dataclass(frozen=True, slots=True, repr=False)
class ThreadRepair(_Result):
    """What a repair did to a thread, or why it did nothing.

    Attributes:
        thread_id: The id of the thread.
        namespace: The namespace of the graph that holds the history; `""` is the root graph.
        outcome: `repaired`; `planned` (a dry run: `patch` is what the repair would do);
            `healthy` (there is nothing to repair); or why nothing was done: `paused` (the thread
            waits for a human, or may wait at a breakpoint; `on_pause="abandon"` ends that), `young`
            (a tool may be running; `min_age` is the limit), `moved` (the newest checkpoint is
            another one than expected) or `refused` (the repair would not be safe).
        reason: Why nothing was done; None if the outcome is `repaired`, `planned` or `healthy`.
        patch: The repaired history and the changes; None unless repaired or planned.
        before: The id of the newest checkpoint before the repair, which is still stored.
        after: The id of the checkpoint that the repair wrote; None if nothing was written.
    """

    outcome: Outcome
    reason: str | None = None
    patch: Patch | None = None
    before: str | None = None
    after: str | None = None

    @property
    def skipped(self) -> bool:
        """Whether the thread may still be damaged, because the repair was not done."""
        return self.outcome in ("paused", "young", "moved", "refused")

    def __str__(self) -> str:
        return self._line(self.outcome, self.reason or (str(self.patch) if self.patch else None))
