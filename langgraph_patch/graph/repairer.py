"""Repair one history, with the options of the application and what the checkpoints recorded.

A `Repairer` reads and repairs; `apply_repair.py` writes its repairs to the state. Every place at
which a history is repaired has one: the entry check, the node wrapper, the patch node, the chat
model and the middleware.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._langgraph import (
    channels_of,
    checkpointer_of,
    runs_alone,
    stored_value,
    thread_config,
    writes_at_exit,
)
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.errors import OptionError
from langgraph_patch.evidence.reconcile import Lookup, checked_reconcile, reconcile_calls
from langgraph_patch.evidence.recover import Recovery, recover_evidence
from langgraph_patch.graph.effects import StateWrites, settle
from langgraph_patch.graph.shown_update import new_results
from langgraph_patch.graph.state_update import writes_for
from langgraph_patch.graph.state_values import get_messages, get_value, unknown_key_error
from langgraph_patch.history.answers import dangling_calls
from langgraph_patch.history.field_check import id_of
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.patch import Evidence, Patch
from langgraph_patch.history.patcher import patch_messages, patch_reading, read_if_damaged
from langgraph_patch.history.placeholders import (
    Language,
    Placeholder,
    checked_language,
    checked_placeholder,
)

OnPatch: TypeAlias = Callable[[Patch, RunnableConfig], None]

Recover: TypeAlias = "bool | Literal['required']"

CLIENT_RESULTS: Final = "client_results"
"""The key of the calls that the run's input answers, in what START sends the patch node."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A repaired history.

    Attributes:
        patch: The repair of the messages.
        restored: Writes to other state keys that recovered results need.
    """

    patch: Patch
    restored: StateWrites = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repairer:
    """Repairs the history under one state key.

    Attributes:
        placeholder: The text of the tool message for a call without a result.
        language: The language of the default texts; None for that of the process.
        messages_key: The state key of the history.
        recover: Whether to search the checkpoints; `"required"` if an unreadable one is an error.
        replace_foreign: Whether placeholders of other packages count as placeholders.
        checkpointer: The checkpointer to search; None for that of the run.
        reconcile: For each tool name a function that looks up the result of a call.
        on_patch: Called with each repair before it is written.
        allow_pending: Whether calls at the end of the history stay unanswered.
        other_histories: State keys with histories that other repairers write. Recovered results
            do not restore them.

    Raises:
        OptionError: If an option has an invalid value.
    """

    placeholder: Placeholder | None = None
    language: Language | None = None
    messages_key: str = "messages"
    recover: Recover = True
    replace_foreign: bool = False
    checkpointer: BaseCheckpointSaver[Any] | None = None
    reconcile: Mapping[str, Lookup] | None = None
    on_patch: OnPatch | None = None
    allow_pending: bool = False
    other_histories: Sequence[str] = ()

    def __post_init__(self) -> None:
        checked_placeholder(self.placeholder)
        if self.language is not None:
            checked_language(self.language)
        if not isinstance(self.messages_key, str) or not self.messages_key:
            raise OptionError(
                f"messages_key={self.messages_key!r}: expected the name of a state key."
            )
        if not isinstance(self.checkpointer, BaseCheckpointSaver | None):
            raise OptionError(
                f"checkpointer={self.checkpointer!r}: expected a BaseCheckpointSaver."
            )
        if self.on_patch is not None and not callable(self.on_patch):
            raise OptionError(f"on_patch={self.on_patch!r}: expected a callable (patch, config).")
        if self.recover not in (True, False, "required"):
            raise OptionError(f"recover={self.recover!r}: expected True, False or 'required'.")
        checked_reconcile(self.reconcile)

    # --- read ----------------------------------------------------------------------------

    def history(self, state: Any, config: RunnableConfig) -> list[BaseMessage]:
        """The messages of `state`, an empty list for a key that has no value yet.

        Raises:
            GraphError: If the graph that runs has no such key.
            MessagesError: If the value is not a list of messages.
        """
        if get_value(state, self.messages_key) is None:
            channels = channels_of(config)
            if channels and self.messages_key not in channels:
                raise unknown_key_error(self.messages_key, channels)
            return []
        return get_messages(state, self.messages_key)

    def read(
        self,
        messages: Sequence[BaseMessage],
        *,
        client_results: AbstractSet[str] = frozenset(),
        recheck: bool = True,
        in_state: bool = False,
    ) -> Reading | None:
        """Read a history; return None if there is nothing to repair.

        Args:
            messages: The history.
            client_results: The ids of results that came with the input of the run. They are
                compared with what the checkpoints recorded.
            recheck: Whether placeholders that ask for another search count. Default: True.
            in_state: Whether messages do not count that stay in the state and that no model
                reads. Default: False.
        """
        return read_if_damaged(
            messages,
            replace_foreign=self.replace_foreign,
            allow_pending=self.allow_pending,
            client_results=frozenset(client_results),
            recheck=recheck,
            in_state=in_state,
        )

    # --- repair --------------------------------------------------------------------------

    def state_repair(self, state: Any, config: RunnableConfig) -> IOGenerator[Repair | None]:
        """The repair of the history in the state; None if there is nothing to write."""
        client_calls: Sequence[str] = ()
        if isinstance(state, dict) and CLIENT_RESULTS in state:
            client_calls = state[CLIENT_RESULTS]
            state = {self.messages_key: stored_value(config, self.messages_key)}
        history = self.history(state, config)
        reading = self.read(
            history, client_results=results_of(history, client_calls), in_state=True
        )
        if reading is None:
            return None
        repair = yield from self.repair(reading, config, alone=True)
        return repair if repair.patch.for_state() else None

    def repair(
        self, reading: Reading, config: RunnableConfig, *, restore: bool = True, alone: bool = False
    ) -> IOGenerator[Repair]:
        """The repair of a damaged history, with what the checkpoints of the thread recorded.

        Args:
            reading: The history.
            config: The config of the node that runs.
            restore: Whether the caller writes the repair, so that effects can be restored. They
                are not if no form of the repair can be written. Default: True.
            alone: As in `write_repair`. Default: False.
        """
        recovery = yield from self._recover(reading, config)
        evidence, restored = self._settle(recovery, config, restore=restore)
        answers: Evidence = {}
        if self.reconcile:
            open_calls = dangling_calls(reading, evidence, allow_pending=self.allow_pending)
            answers = yield from reconcile_calls(open_calls, self.reconcile)
        patch = self._patch(reading, {**evidence, **answers})
        if restored and not self._can_write(patch.for_state(), config, alone=alone):
            evidence, restored = self._settle(recovery, config, restore=False)
            patch = self._patch(reading, {**evidence, **answers})
        return Repair(patch, restored)

    def saver(self, config: RunnableConfig) -> BaseCheckpointSaver[Any] | None:
        """The checkpointer to search, or None."""
        return (self.checkpointer or checkpointer_of(config)) if self.recover else None

    def _recover(self, reading: Reading, config: RunnableConfig) -> IOGenerator[Recovery]:
        saver, thread = self.saver(config), thread_config(config)
        if saver is None or thread is None:
            return Recovery()
        if saver is not checkpointer_of(config):
            # The run does not write its current checkpoint there.
            thread["configurable"].pop("checkpoint_id", None)
        return (
            yield from recover_evidence(
                saver,
                thread,
                reading.unanswered,
                messages_key=self.messages_key,
                required=self.recover == "required",
                client_results=reading.client_results,
                is_at_exit=writes_at_exit(config),
            )
        )

    def _settle(
        self, recovery: Recovery, config: RunnableConfig, *, restore: bool
    ) -> tuple[Evidence, StateWrites]:
        return settle(
            recovery,
            persist=restore,
            own_keys={self.messages_key, *self.other_histories},
            channels=channels_of(config) or None,
            is_ahead=writes_at_exit(config) or self.saver(config) is not checkpointer_of(config),
        )

    def _patch(self, reading: Reading, evidence: Evidence) -> Patch:
        return patch_reading(
            reading,
            placeholder=self.placeholder,
            language=self.language,
            evidence=evidence,
            allow_pending=self.allow_pending,
        )

    def _can_write(self, patch: Patch, config: RunnableConfig, *, alone: bool) -> bool:
        channel = channels_of(config).get(self.messages_key)
        options: dict[str, bool] = {"alone": alone, "after": runs_alone(config)}
        return writes_for(channel, patch.before, patch.messages, **options) is not None

    # --- calls that the model did not finish writing --------------------------------------

    def close_calls(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """`messages` with a placeholder for each call that is incomplete or has no result.

        The checkpointer is not searched: the calls were made in this superstep.
        """
        return self._closed(messages, allow_pending=False).messages

    def results_of_incomplete_calls(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """A placeholder for each incomplete call of the last message of a valid history."""
        return new_results(self._closed(messages, allow_pending=True))

    def _closed(self, messages: Sequence[BaseMessage], *, allow_pending: bool) -> Patch:
        return patch_messages(
            messages,
            placeholder=self.placeholder,
            language=self.language,
            replace_foreign=self.replace_foreign,
            allow_pending=allow_pending,
        )


def results_of(history: Sequence[BaseMessage], call_ids: Sequence[str]) -> frozenset[str]:
    """The ids of the last result of each of these calls."""
    if not call_ids:  # in every turn whose input has no results
        return frozenset()
    found = {
        message.tool_call_id: id_of(message)
        for message in history
        if isinstance(message, ToolMessage) and message.tool_call_id in call_ids
    }
    return frozenset(str(message_id) for message_id in found.values() if message_id is not None)
