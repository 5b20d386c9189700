"""What was found in a stored thread, and what was done to it, as values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, get_args

from langgraph_patch.history.patch import Defect, Patch
from langgraph_patch.render.html import report_html

ThreadStatus = Literal["healthy", "damaged", "paused", "unreadable"]
Outcome = Literal["healthy", "planned", "repaired", "paused", "young", "moved", "refused"]

STATUSES: tuple[ThreadStatus, ...] = get_args(ThreadStatus)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True)
class ThreadReport:
    """What the newest checkpoint of a thread says.

    Attributes:
        thread_id: The thread.
        namespace: The namespace of the graph whose history it is; `""` is the root graph.
        status: `healthy`; `damaged` (the next message would be refused by a model);
            `paused` (it waits for a human; `defects` are those beside what it waits for);
            `unreadable` (`reason` says why).
        checkpoint_id: The newest checkpoint, or None if it is unreadable.
        age: The seconds since that checkpoint was written, or None.
        messages: The number of messages; None if the state has no such key.
        defects: How the history is broken.
        patch: What a repair would do, with the causes; None if nothing is damaged.
        reason: Why it is unreadable, or why its checkpoints tell no cause; else None.
    """

    thread_id: str
    namespace: str
    status: ThreadStatus
    checkpoint_id: str | None = None
    age: float | None = None
    messages: int | None = None
    defects: tuple[Defect, ...] = ()
    patch: Patch | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, with whole messages."""
        return {
            "thread_id": self.thread_id,
            "namespace": self.namespace,
            "status": self.status,
            "checkpoint_id": self.checkpoint_id,
            "age": self.age,
            "messages": self.messages,
            "defects": [defect.to_dict() for defect in self.defects],
            "patch": self.patch.to_dict() if self.patch else None,
            "reason": self.reason,
        }

    def _repr_html_(self) -> str:
        """What is known of the thread, and the patch beside it, as notebooks show it."""
        return report_html(self.to_dict())

    def __str__(self) -> str:
        return f"{_name(self.thread_id, self.namespace)}: {self.status}{self._details()}"

    def _details(self) -> str:
        if self.patch:
            return f" - {self.patch}" + (f"; {self.reason}" if self.reason else "")
        if self.defects:
            counted = Counter(defect.kind for defect in self.defects)
            return " - " + ", ".join(f"{count} {kind}" for kind, count in counted.items())
        return f" - {self.reason}" if self.reason else ""


@dataclass(frozen=True, slots=True)
class ThreadRepair:
    """What a repair did to a thread, or why it did nothing.

    Attributes:
        thread_id: The thread.
        namespace: The namespace of the graph whose history it is; `""` is the root graph.
        outcome: `repaired`; `planned` (a dry run: `patch` is what would be done); `healthy`
            (nothing to do); or nothing was done because the thread is `paused`, `young`, has
            `moved` on meanwhile, or because the repair was `refused`.
        reason: Why nothing was done; None if something was, or there was nothing to do.
        patch: The repaired history and the changes; None if none was made.
        before: The newest checkpoint before the repair. It is still there.
        after: The checkpoint that the repair wrote; None if nothing was written.
    """

    thread_id: str
    namespace: str
    outcome: Outcome
    reason: str | None = None
    patch: Patch | None = None
    before: str | None = None
    after: str | None = None

    @property
    def skipped(self) -> bool:
        """Whether damage may be left, because nothing was done on purpose."""
        return self.outcome in ("paused", "young", "moved", "refused")

    def to_dict(self) -> dict[str, Any]:
        """The repair as JSON values, with whole messages."""
        return {
            "thread_id": self.thread_id,
            "namespace": self.namespace,
            "outcome": self.outcome,
            "reason": self.reason,
            "patch": self.patch.to_dict() if self.patch else None,
            "before": self.before,
            "after": self.after,
        }

    def __str__(self) -> str:
        said = self.reason or (str(self.patch) if self.patch else "")
        return f"{_name(self.thread_id, self.namespace)}: {self.outcome}" + (said and f" - {said}")


def _name(thread_id: str, namespace: str) -> str:
    return f"{thread_id!r} in {namespace!r}" if namespace else repr(thread_id)
