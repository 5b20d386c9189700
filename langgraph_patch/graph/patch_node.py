"""`PatchNode`: a graph node that repairs the tool-call history of the state.

It reads the history, asks the checkpointer for results that are recorded but missing, repairs
the history and writes the repair. `with_patching` and the middleware use the same class.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.message import push_message
from langgraph.types import Command

from langgraph_patch._langgraph import (
    channels_of,
    checkpointer_of,
    is_in_node,
    runs_alone,
    stored_value,
    thread_config,
    writes_at_exit,
)
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.errors import OptionError
from langgraph_patch.evidence.reconcile import Lookup, checked_reconcile, reconcile_calls
from langgraph_patch.evidence.recover import Recovery, recover_evidence
from langgraph_patch.graph.effects import StateWrites, settle
from langgraph_patch.graph.shown_update import new_messages, new_results, show_repair
from langgraph_patch.graph.state_update import Writes, values_once, writes_for
from langgraph_patch.graph.state_values import get_messages, get_value, unknown_key_error
from langgraph_patch.history.answers import dangling_calls
from langgraph_patch.history.field_check import id_of
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.patch import Evidence, Patch, changes_history
from langgraph_patch.history.patcher import patch_messages, patch_reading, read_if_damaged
from langgraph_patch.history.placeholders import (
    Language,
    Placeholder,
    checked_language,
    checked_placeholder,
)

logger: logging.Logger = logging.getLogger("langgraph_patch")

OnPatch: TypeAlias = Callable[[Patch, RunnableConfig], None]

Recover: TypeAlias = "bool | Literal['required']"

CLIENT_RESULTS: Final = "client_results"
"""The key of the calls that the run's input answers, in what START sends the node."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A repaired history.

    Attributes:
        patch: The repair of the messages.
        restored: Writes to other state keys that recovered results need.
    """

    patch: Patch
    restored: StateWrites = ()


class PatchNode(Runnable[Any, Any]):
    """A graph node that repairs the tool-call history of the state.

    It writes nothing if the history is valid. Place it directly before the model, or let
    `with_patching` place it. It works in synchronous and asynchronous graphs, with a state that
    is a dict, a dataclass or a pydantic model, and with every reducer.

    Results that a client sends with its next message are not compared with the checkpoints: only
    START sees the input of a run, so `with_patching` compares them. What known clients invent
    (agent-chat-ui, assistant-ui) counts as a placeholder.

    The logger `langgraph_patch` reports each repair, with the thread id and the changes: on
    level INFO if the repair is written to the state, on level DEBUG if only the input of a model
    is repaired.

    Args:
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. Default: a text that names the cause.
        language: The language of the default texts, `"en"` or `"zh"`. Default: the language of
            the process (`set_language`).
        messages_key: The state key that has the history. Default: `"messages"`.
        recover: Whether to search the checkpoints of the thread for results that were recorded
            but are missing in the history. They are searched only if the history is damaged.
            If a checkpoint cannot be read, a WARNING reports it and the calls count as `unknown`;
            with `"required"` an `EvidenceError` is raised.
            What the tool wrote to other state keys is restored with its result, if these keys
            have not changed since; otherwise the result names what was not kept. Default: True.
        replace_foreign: Whether to treat the tool messages that deepagents or
            langgraph-checkpoint-aws wrote for calls without a result as placeholders: they are
            replaced by the recorded result, or by a placeholder with the recorded cause. Set it
            for threads that such a package has repaired, as its "was cancelled" may be false.
            It has a cost: every history is then read in full, also a valid one. Default: False,
            such messages count as results.
        checkpointer: The checkpointer to search. Default: the checkpointer of the run.
        reconcile: For each tool name a function that takes a `DanglingCall` and returns the
            result of the call as a `ToolMessage` or a text, or None if it does not know. It is
            asked about calls of which no outcome is recorded (`unknown`, `cancelled`,
            `awaiting_input`). It may be asynchronous if the run is. If it raises, a WARNING
            reports it and the call stays as it was. Default: None.
        on_patch: A function that is called with the `Patch` and the config of the run for each
            repair, before it is written: for metrics, alerts and audits. If it raises, the run
            fails with its exception and nothing is written. Default: None.
        allow_pending: Whether to leave tool calls at the end of the history unanswered, for a
            node that runs after this one and executes them. Default: False, they are answered,
            since a model comes next.

    Raises:
        OptionError: If an option has an invalid value.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.graph import START, MessagesState, StateGraph
        >>> from langgraph_patch import patch_node
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("patch_tool_calls", patch_node)
        >>> _ = builder.add_node("model", lambda state: {"messages": [AIMessage("hello")]})
        >>> _ = builder.add_edge(START, "patch_tool_calls")
        >>> _ = builder.add_edge("patch_tool_calls", "model")
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> history = [AIMessage("", tool_calls=[call]), HumanMessage("never mind")]
        >>> [m.type for m in builder.compile().invoke({"messages": history})["messages"]]
        ['ai', 'tool', 'human', 'ai']
    """

    name: str | None = "patch_tool_calls"

    def __init__(
        self,
        *,
        placeholder: Placeholder | None = None,
        language: Language | None = None,
        messages_key: str = "messages",
        recover: Recover = True,
        replace_foreign: bool = False,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        reconcile: Mapping[str, Lookup] | None = None,
        on_patch: OnPatch | None = None,
        allow_pending: bool = False,
    ) -> None:
        self.placeholder: Placeholder | None = checked_placeholder(placeholder)
        self.language = checked_language(language) if language is not None else None
        if not isinstance(messages_key, str) or not messages_key:
            raise OptionError(f"messages_key={messages_key!r}: expected the name of a state key.")
        if checkpointer is not None and not isinstance(checkpointer, BaseCheckpointSaver):
            raise OptionError(f"checkpointer={checkpointer!r}: expected a BaseCheckpointSaver.")
        if on_patch is not None and not callable(on_patch):
            raise OptionError(f"on_patch={on_patch!r}: expected a callable (patch, config).")
        if recover not in (True, False, "required"):
            raise OptionError(f"recover={recover!r}: expected True, False or 'required'.")
        self.messages_key = messages_key
        self.own_keys = frozenset({messages_key})
        """State keys that hold histories, which repairs write and no recovered result restores."""
        self.recover: Recover = recover
        self.replace_foreign = replace_foreign
        self.checkpointer = checkpointer
        self.reconcile = checked_reconcile(reconcile)
        self.on_patch = on_patch
        self.allow_pending = allow_pending

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        """Return the state update that repairs the history; None if there is nothing to repair.

        Args:
            input: The state.
            config: The config of the run.

        Raises:
            GraphError: If the state has no key `messages_key`.
            MessagesError: If the value of that key is not a list of messages.
            EvidenceError: If the checkpointer raises an error and `recover="required"`.
        """
        return run_sync(self._update(input, config or {}))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        """Do the same as `invoke`, and read the checkpointer asynchronously."""
        return await run_async(self._update(input, config or {}))

    def _update(self, state: Any, config: RunnableConfig) -> IOGenerator[Command[Any] | None]:
        return (yield from write_repairs([self], state, config, node=self))

    # --- the steps, which the entry check, the model node wrapper and the middleware use ---

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

    def saver(self, config: RunnableConfig) -> BaseCheckpointSaver[Any] | None:
        """The checkpointer to search, or None."""
        return (self.checkpointer or checkpointer_of(config)) if self.recover else None

    def repair(
        self, reading: Reading, config: RunnableConfig, *, restore: bool = True, alone: bool = False
    ) -> IOGenerator[Repair]:
        """The repair of a damaged history, with what the checkpoints of the thread recorded.

        Args:
            reading: The history.
            config: The config of the node that runs.
            restore: Whether the caller writes the repair, so that effects can be restored. They
                are not if no form of the repair can be written.
            alone: As in `write`.
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
            )
        )

    def _settle(
        self, recovery: Recovery, config: RunnableConfig, *, restore: bool
    ) -> tuple[Evidence, StateWrites]:
        return settle(
            recovery,
            persist=restore,
            own_keys=self.own_keys,
            channels=channels_of(config) or None,
            is_ahead=writes_at_exit(config) or self.saver(config) is not checkpointer_of(config),
        )

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

    def write(self, repair: Repair, config: RunnableConfig, *, alone: bool) -> Command[Any] | None:
        """Report a repair and return the state update that writes it.

        Clients in `stream_mode="messages"` receive the new tool messages.

        Args:
            repair: A repair of the history that the state has.
            config: The config of the node that runs.
            alone: Whether no other node runs in the same superstep, and the node writes nothing
                else to the history.

        Returns:
            The state update, or None if no update has the wanted effect.
        """
        writes = self._writes(repair, config, alone=alone)
        pairs = [*((self.messages_key, write) for write in writes), *repair.restored]
        return Command(update=pairs) if pairs else None

    def write_as_dict(
        self, repair: Repair, config: RunnableConfig
    ) -> dict[str, Any] | Command[Any] | None:
        """Do the same as `write` for a node that writes nothing else, with each key written once.

        Returns:
            A dict; a `Command` if a key must be written several times, for another node of the
            superstep or for a channel that knows no `Overwrite`; or None.
        """
        values = values_once(channels_of(config), repair.restored)
        if values is None or not runs_alone(config):
            return self.write(repair, config, alone=runs_alone(config))
        writes = self._writes(repair, config, alone=True, once=True)
        return {**({self.messages_key: writes[0]} if writes else {}), **values} or None

    def _writes(
        self, repair: Repair, config: RunnableConfig, *, alone: bool, once: bool = False
    ) -> Writes:
        """Report a repair; the values to write to the history, or none."""
        patch = repair.patch.for_state()
        channel = channels_of(config).get(self.messages_key)
        writes = None
        if patch:
            writes = writes_for(
                channel,
                patch.before,
                patch.messages,
                alone=alone,
                after=runs_alone(config),
                once=once,
            )
        self.report(repair.patch, config, written=writes is not None)
        if writes is not None and is_in_node(config):
            for message in new_results(patch):
                push_message(message, state_key=None)
        return writes or []

    def report(self, patch: Patch, config: RunnableConfig, *, written: bool) -> None:
        """Call `on_patch` and log the repair, if it changes what a model reads."""
        if not changes_history(patch):
            return
        if self.on_patch is not None:
            self.on_patch(patch, config)
        thread_id = config.get("configurable", {}).get("thread_id")
        if written:
            logger.info("repaired thread %r: %s", thread_id, patch)
        else:
            logger.debug("repaired the input of a model in thread %r: %s", thread_id, patch)


def write_repairs(
    nodes: Sequence[PatchNode], state: Any, config: RunnableConfig, *, node: object
) -> IOGenerator[Command[Any] | None]:
    """Repair the histories in the state, and show clients what is new.

    Args:
        nodes: For each history the node that repairs it.
        state: The state.
        config: The config of the node that runs.
        node: The runnable that LangGraph runs as that node.

    Returns:
        The state update, or None if there is nothing to repair. What a recovered result of
        several histories restores is restored once.
    """
    update: list[tuple[str, Any]] = []
    restored: list[tuple[str, Any]] = []
    new: dict[str, list[BaseMessage]] = {}
    for each in nodes:
        repair = yield from each.state_repair(state, config)
        if repair is None:
            continue
        taken = {key for key, _ in restored}
        own = tuple(pair for pair in repair.restored if pair[0] not in taken)
        written = each.write(replace(repair, restored=own), config, alone=True)
        if written is not None:
            update += written.update or ()
            restored += own
            new[each.messages_key] = new_messages(repair.patch)
    if not update:
        return None
    show_repair(config, new, node=[node], restored=tuple(restored))
    return Command(update=update)


def results_of(history: Sequence[BaseMessage], call_ids: Sequence[str]) -> frozenset[str]:
    """The ids of the last result of each of these calls."""
    found = {
        message.tool_call_id: id_of(message)
        for message in history
        if isinstance(message, ToolMessage) and message.tool_call_id in call_ids
    }
    return frozenset(str(message_id) for message_id in found.values() if message_id is not None)


patch_node: PatchNode = PatchNode()
"""A `PatchNode` with all defaults: `builder.add_node("patch_tool_calls", patch_node)`."""
