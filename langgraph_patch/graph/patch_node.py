"""`PatchNode`: a graph node that repairs the tool-call history of the state.

It reads the history, asks the checkpointer for results that are recorded but missing, repairs
the history and writes the repair. `with_patching` and the middleware use the same class.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
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
    stored_value,
    thread_config,
)
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.errors import OptionError
from langgraph_patch.evidence.reconcile import Lookup, checked_reconcile, reconcile_calls
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.graph.effects import StateWrites, settle
from langgraph_patch.graph.state_update import writes_for
from langgraph_patch.graph.state_values import get_messages, get_value, unknown_key_error
from langgraph_patch.history.answers import dangling_calls
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.patch import Evidence, Patch
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

    Example:
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
        client_calls: Sequence[str] = ()
        if isinstance(state, dict) and CLIENT_RESULTS in state:
            client_calls = state[CLIENT_RESULTS]
            state = {self.messages_key: stored_value(config, self.messages_key)}
        history = self.history(state, config)
        reading = self.read(history, client_results=results_of(history, client_calls))
        if reading is None:
            return None
        repair = yield from self.repair(reading, config)
        return self.write(repair, config, alone=True) if repair.patch else None

    # --- the steps, which the entry check, the model node wrapper and the middleware use ---

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
    ) -> Reading | None:
        """Read a history; return None if there is nothing to repair.

        Args:
            messages: The history.
            client_results: The ids of results that came with the input of the run. They are
                compared with what the checkpoints recorded.
            recheck: Whether placeholders that ask for another search count. Default: True.
        """
        return read_if_damaged(
            messages,
            replace_foreign=self.replace_foreign,
            allow_pending=self.allow_pending,
            client_results=frozenset(client_results),
            recheck=recheck,
        )

    def saver(self, config: RunnableConfig) -> BaseCheckpointSaver[Any] | None:
        """The checkpointer to search, or None."""
        return (self.checkpointer or checkpointer_of(config)) if self.recover else None

    def repair(
        self, reading: Reading, config: RunnableConfig, *, restore: bool = True
    ) -> IOGenerator[Repair]:
        """The repair of a damaged history, with what the checkpoints of the thread recorded.

        Args:
            reading: The history.
            config: The config of the node that runs.
            restore: Whether the caller writes the repair, so that effects can be restored.
        """
        evidence, restored = yield from self._evidence(reading, config, restore=restore)
        if self.reconcile:
            open_calls = dangling_calls(reading, evidence, allow_pending=self.allow_pending)
            answers = yield from reconcile_calls(open_calls, self.reconcile)
            evidence = {**evidence, **answers}
        patch = patch_reading(
            reading,
            placeholder=self.placeholder,
            language=self.language,
            evidence=evidence,
            allow_pending=self.allow_pending,
        )
        return Repair(patch, restored)

    def _evidence(
        self, reading: Reading, config: RunnableConfig, *, restore: bool
    ) -> IOGenerator[tuple[Evidence, StateWrites]]:
        saver, thread = self.saver(config), thread_config(config)
        if saver is None or thread is None:
            return {}, ()
        if saver is not checkpointer_of(config):
            # The run does not write its current checkpoint there.
            thread["configurable"].pop("checkpoint_id", None)
        recovery = yield from recover_evidence(
            saver,
            thread,
            reading.unanswered,
            messages_key=self.messages_key,
            required=self.recover == "required",
            client_results=reading.client_results,
        )
        return settle(
            recovery,
            persist=restore,
            own_keys={self.messages_key},
            channels=channels_of(config) or None,
        )

    def close_calls(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """`messages` with a placeholder for each call that is incomplete or has no result.

        The checkpointer is not searched: the calls were made in this superstep.
        """
        patch = patch_messages(
            messages,
            placeholder=self.placeholder,
            language=self.language,
            replace_foreign=self.replace_foreign,
        )
        return patch.messages

    def write(self, repair: Repair, config: RunnableConfig, *, alone: bool) -> Command[Any] | None:
        """Report a repair and return the state update that writes it.

        Clients in `stream_mode="messages"` receive the new tool messages.

        Args:
            repair: A repair of the history that the state has.
            config: The config of the node that runs.
            alone: Whether no other node runs in the same superstep.

        Returns:
            The state update, or None if no update has the wanted effect.
        """
        patch = repair.patch
        channel = channels_of(config).get(self.messages_key)
        writes = writes_for(channel, patch.before, patch.messages, alone=alone)
        self.report(patch, config, written=writes is not None)
        if writes is None:
            return Command(update=list(repair.restored)) if repair.restored else None
        if is_in_node(config):
            _push_new_results(patch)
        messages = [(self.messages_key, write) for write in writes]
        return Command(update=[*messages, *repair.restored])

    def report(self, patch: Patch, config: RunnableConfig, *, written: bool) -> None:
        """Call `on_patch` and log the repair."""
        if self.on_patch is not None:
            self.on_patch(patch, config)
        thread_id = config.get("configurable", {}).get("thread_id")
        if written:
            logger.info("repaired thread %r: %s", thread_id, patch)
        else:
            logger.debug("repaired the input of a model in thread %r: %s", thread_id, patch)


def results_of(history: Sequence[BaseMessage], call_ids: Sequence[str]) -> frozenset[str]:
    """The ids of the last result of each of these calls."""
    found = {
        message.tool_call_id: message.id
        for message in history
        if isinstance(message, ToolMessage) and message.tool_call_id in call_ids
    }
    return frozenset(message_id for message_id in found.values() if message_id is not None)


def _push_new_results(patch: Patch) -> None:
    old_ids = {message.id for message in patch.before}
    for message in patch.messages:
        if isinstance(message, ToolMessage) and message.id not in old_ids:
            push_message(message, state_key=None)


patch_node: PatchNode = PatchNode()
"""A `PatchNode` with all defaults: `builder.add_node("patch_tool_calls", patch_node)`."""
