"""What the tasks of one run of an `@entrypoint` returned, in order, and how its calls ended.

Checkpointers do not store the order of tasks. The messages are ordered by the time in their ids
(UUIDs of version 7), or else by the start marks of their calls.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch._langgraph_names import RETURN
from langgraph_patch.evidence.checkpoint_messages import Checkpoint
from langgraph_patch.evidence.effects import effects_of
from langgraph_patch.evidence.open_calls import OpenCall, is_record_of
from langgraph_patch.evidence.task_outcomes import outcome_of_call
from langgraph_patch.evidence.tracked_calls import Source
from langgraph_patch.history.patch import Finding, RecordedResult
from langgraph_patch.recording.records import STARTED, Record, read_record

_MESSAGES: Final = "messages"
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_UNKNOWN: Final = float("inf")

Ending: TypeAlias = ToolMessage | RecordedResult | Finding


def messages_in(value: object) -> list[BaseMessage]:
    """A message or a list of messages; an empty list for any other value."""
    parts = value if isinstance(value, list | tuple) else [value]
    messages = [part for part in parts if isinstance(part, BaseMessage)]
    return messages if len(messages) == len(parts) else []


@dataclass(frozen=True, slots=True)
class _Result:
    """A result of a call, and where it is recorded."""

    message: ToolMessage
    task_id: str
    record: Record | None

    @property
    def started(self) -> float:
        """When the tool started, in nanoseconds since the epoch; infinite if it is not recorded."""
        return (self.record or {}).get("started") or _UNKNOWN


class EntrypointRun:
    """What the tasks of one run returned."""

    def __init__(self, saved: CheckpointTuple) -> None:
        self._checkpoint = Checkpoint(saved, _MESSAGES)
        self._groups: list[list[BaseMessage]] = []
        self._results: list[_Result] = []
        for task_id, channel, value in self._checkpoint.writes:
            if channel == RETURN:
                self._add(task_id, value)
        self._starts = [
            record
            for _, channel, value in self._checkpoint.writes
            if channel == STARTED and (record := read_record(value)) is not None
        ]

    def _add(self, task_id: str, value: object) -> None:
        record = read_record(value)
        group = [] if record is not None else messages_in(value)
        if any(isinstance(message, AIMessage) for message in group):
            self._groups.append(group)
            return
        written = Checkpoint(
            self._checkpoint.saved._replace(pending_writes=[(task_id, RETURN, value)]), _MESSAGES
        ).written()
        results = group if record is None else [m for _, messages in written for m in messages]
        self._results += [
            _Result(message, task_id, record)
            for message in results
            if isinstance(message, ToolMessage)
        ]

    def messages(self) -> list[BaseMessage]:
        """The messages of all tasks, in order, without the results that a task returned alone."""
        ordered = sorted(self._groups, key=self._order)
        return [message for group in ordered for message in group]

    def _order(self, group: Sequence[BaseMessage]) -> tuple[float, int, bool]:
        made = [message for message in group if isinstance(message, AIMessage)]
        calls = [(message, call["id"]) for message in made for call in message.tool_calls]
        is_answered = bool(calls) and all(self._results_of(*call) for call in calls)
        first = min(made, key=self._time_of)
        return self._time_of(first), _uuid7_of(first), not is_answered

    def _time_of(self, message: AIMessage) -> float:
        """When a message was made, in milliseconds; infinite if that is not recorded."""
        if number := _uuid7_of(message):
            return number >> 80
        starts = [
            record["started"] / 1e6
            for call in message.tool_calls
            for record in self._starts
            if is_record_of(record, _open_call(message, call["id"]))
        ]
        return min(starts, default=_UNKNOWN)

    # --- results ------------------------------------------------------------------------------

    def endings(self, made: Sequence[AIMessage]) -> dict[tuple[str | None, str], Ending]:
        """The result of each call of the messages, or the cause why it has none."""
        found: dict[tuple[str | None, str], Ending] = {}
        for message in made:
            ids = [call["id"] for call in message.tool_calls]
            for call in message.tool_calls:
                if call["id"] and ids.count(call["id"]) == 1:
                    ending = self._ending_of(message, call, made)
                    found |= {(message.id, call["id"]): ending} if ending is not None else {}
        return found

    def _ending_of(
        self, message: AIMessage, call: ToolCall, made: Sequence[AIMessage]
    ) -> Ending | None:
        call_id = str(call["id"])
        results = self._results_of(message, call_id)
        # A result that is not recorded belongs to any call with its id.
        by_args = all(result.record is not None for result in results)
        equal = [other for other in made if _makes_call(other, call, by_args=by_args)]
        result = self._result_of(message, results, equal)
        if result is not None:
            return self._with_effects(result)
        return self._finding_of(message, call) if len(equal) == 1 else None

    def _results_of(self, message: AIMessage, call_id: str | None) -> list[_Result]:
        """The results that may belong to a call, oldest first."""
        call = _open_call(message, call_id)
        names = {made["name"] for made in message.tool_calls if made["id"] == call_id}
        own = [
            result
            for result in self._results
            if result.message.tool_call_id == call_id
            and (not result.message.name or result.message.name in names)
            and (result.record is None or is_record_of(result.record, call))
        ]
        # A task that ran the recorded tool returned the same result.
        recorded = [result for result in own if result.record is not None]
        return sorted(recorded or own, key=lambda result: result.started)

    def _result_of(
        self, message: AIMessage, results: Sequence[_Result], equal: Sequence[AIMessage]
    ) -> _Result | None:
        """The result of a call that several messages may make: by count, or else by time."""
        times = [_uuid7_of(other) >> 80 for other in equal]
        index = next(i for i, other in enumerate(equal) if other is message)
        if len(equal) == 1 and results:
            return results[-1]
        if len(results) == len(equal):
            return results[index]
        if not all(times):
            return None
        end = [*times[1:], _UNKNOWN][index]
        own = [result for result in results if times[index] <= result.started / 1e6 < end]
        return own[-1] if own else None

    def _with_effects(self, result: _Result) -> ToolMessage | RecordedResult:
        """The result, with the names of the other state keys that it wrote, which are lost."""
        source = Source(self._checkpoint, result.task_id, child=None)
        effects = effects_of(source, None, result.message) if result.record is not None else None
        if effects is None:
            return result.message
        keys = sorted({key for key, _ in effects.writes})
        return RecordedResult(result.message, (*keys, *(["goto"] if effects.goto else [])))

    def _finding_of(self, message: AIMessage, call: ToolCall) -> Finding | None:
        open_call = _open_call(message, call["id"])
        outcome = outcome_of_call(self._checkpoint, open_call, is_pending=True)
        if outcome is not None:
            return outcome.finding
        if any(start["name"] == call["name"] for start in self._starts):
            return Finding("not_started", detail="start_marks")  # its tool marks each start
        return None


def _open_call(message: AIMessage, call_id: str | None) -> OpenCall:
    ids = [call["id"] for call in message.tool_calls]
    return OpenCall(message, str(call_id), ids.index(call_id))


def _uuid7_of(message: AIMessage) -> int:
    """The UUID of version 7 in the id of a message, which begins with the time; 0 if none."""
    found = _UUID7.search(message.id or "")
    return uuid.UUID(found[0]).int if found is not None else 0


def _makes_call(message: AIMessage, call: ToolCall, *, by_args: bool) -> bool:
    return any(
        (other["id"], other["name"]) == (call["id"], call["name"])
        and (not by_args or other["args"] == call["args"])
        for other in message.tool_calls
    )
