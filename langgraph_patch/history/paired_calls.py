"""The calls and results of a history, and which belong together.

`pairing` makes these values, and `matching` connects them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from langchain_core.messages import AIMessage

from langgraph_patch.history.ids import valid_name
from langgraph_patch.history.tool_calls import Call
from langgraph_patch.history.tool_results import Result


@dataclass(slots=True, eq=False)
class StoredResult:
    """One result: the `part`-th of those in the message at `index`."""

    index: int
    part: int
    result: Result
    is_placeholder: bool
    is_foreign: bool = False
    """Whether it is a placeholder of another package."""
    holds_more: bool = False
    """Whether its message holds more than results."""
    paired_call: PairedCall | None = None

    @property
    def label(self) -> str | None:
        """The tool that the result names, in the form of a valid name; None if it names none."""
        return valid_name(self.result.name) if self.result.name else None


@dataclass(slots=True, eq=False)
class PairedCall:
    """One call: the `ordinal`-th of its message, and its result.

    `new_id` and `new_name` are those of the repaired history: the stored ones if they are valid.
    """

    calling: CallingMessage
    ordinal: int
    call: Call
    new_id: str
    new_name: str
    real: StoredResult | None = None
    placeholder: StoredResult | None = None

    @property
    def label(self) -> str:
        """The tool that the call names, in the form of a valid name; `""` if it names none."""
        return valid_name(self.call.name) if self.call.name else ""

    @property
    def answer(self) -> StoredResult | None:
        """The real result, else the placeholder."""
        return self.real or self.placeholder


@dataclass(slots=True, eq=False)
class CallingMessage:
    """An `AIMessage` that calls tools."""

    index: int
    message: AIMessage
    calls: list[PairedCall] = field(default_factory=list)
    end: int = 0
    """The first index after the message that does not hold one of its results."""

    def has_in_place(self, stored: StoredResult) -> bool:
        """Whether a result is stored directly after this message."""
        return self.index < stored.index < self.end
