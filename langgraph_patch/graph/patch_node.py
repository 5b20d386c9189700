"""`PatchNode`: a graph node that repairs the tool-call history of the state.

It reads the history, asks the checkpointer for results that are recorded but missing, repairs
the history and writes the repair. `with_patching` and the middleware use the same class.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.message import push_message
from langgraph.types import Command

from langgraph_patch._langgraph import channels_of, checkpointer_of, is_in_node, thread_config
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.errors import OptionError
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.graph.state_update import writes_for
from langgraph_patch.graph.state_values import get_messages, get_value, unknown_key_error
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.patch import Evidence, Patch
from langgraph_patch.history.patcher import patch_reading, read_if_damaged
from langgraph_patch.history.placeholders import (
    Language,
    Placeholder,
    checked_language,
    checked_placeholder,
)

logger: logging.Logger = logging.getLogger("langgraph_patch")

OnPatch: TypeAlias = Callable[[Patch, RunnableConfig], None]


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
            Default: True.
        replace_foreign: Whether to treat the tool messages that deepagents or
            langgraph-checkpoint-aws wrote for calls without a result as placeholders: they are
            replaced by the recorded result, or by a placeholder with the recorded cause. Set it
            for threads that such a package has repaired, as its "was cancelled" may be false.
            It has a cost: every history is then read in full, also a valid one. Default: False,
            such messages count as results.
        checkpointer: The checkpointer to search. Default: the checkpointer of the run.
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
        recover: bool = True,
        replace_foreign: bool = False,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
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
        self.messages_key = messages_key
        self.recover = recover
        self.replace_foreign = replace_foreign
        self.checkpointer = checkpointer
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
            EvidenceError: If the checkpointer raises an error.
        """
        return run_sync(self._update(input, config or {}))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        """Do the same as `invoke`, and read the checkpointer asynchronously."""
        return await run_async(self._update(input, config or {}))

    def _update(self, state: Any, config: RunnableConfig) -> IOGenerator[Command[Any] | None]:
        reading = self.read(self.history(state, config))
        if reading is None:
            return None
        patch = yield from self.repair(reading, config)
        return self.write(patch, config, alone=True) if patch else None

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

    def read(self, messages: Sequence[BaseMessage]) -> Reading | None:
        """Read a history; return None if there is nothing to repair."""
        return read_if_damaged(
            messages, replace_foreign=self.replace_foreign, allow_pending=self.allow_pending
        )

    def repair(self, reading: Reading, config: RunnableConfig) -> IOGenerator[Patch]:
        """The patch of a damaged history, with what the checkpoints of the thread recorded."""
        saver = self.checkpointer or checkpointer_of(config)
        thread = thread_config(config)
        evidence: Evidence = {}
        if self.recover and saver is not None and thread is not None:
            evidence = yield from recover_evidence(
                saver, thread, reading.unanswered, messages_key=self.messages_key
            )
        return patch_reading(
            reading,
            placeholder=self.placeholder,
            language=self.language,
            evidence=evidence,
            allow_pending=self.allow_pending,
        )

    def write(self, patch: Patch, config: RunnableConfig, *, alone: bool) -> Command[Any] | None:
        """Report `patch` and return the state update that writes it.

        Clients in `stream_mode="messages"` receive the new tool messages.

        Args:
            patch: A repair of the history that the state has.
            config: The config of the node that runs.
            alone: Whether no other node runs in the same superstep.

        Returns:
            The state update, or None if no update has the wanted effect.
        """
        channel = channels_of(config).get(self.messages_key)
        writes = writes_for(channel, patch.before, patch.messages, alone=alone)
        self.report(patch, config, written=writes is not None)
        if writes is None:
            return None
        if is_in_node(config):
            _push_new_results(patch)
        return Command(update=[(self.messages_key, write) for write in writes])

    def report(self, patch: Patch, config: RunnableConfig, *, written: bool) -> None:
        """Call `on_patch` and log the repair."""
        if self.on_patch is not None:
            self.on_patch(patch, config)
        thread_id = config.get("configurable", {}).get("thread_id")
        if written:
            logger.info("repaired thread %r: %s", thread_id, patch)
        else:
            logger.debug("repaired the input of a model in thread %r: %s", thread_id, patch)


def _push_new_results(patch: Patch) -> None:
    old_ids = {message.id for message in patch.before}
    for message in patch.messages:
        if isinstance(message, ToolMessage) and message.id not in old_ids:
            push_message(message, state_key=None)


patch_node: PatchNode = PatchNode()
"""A `PatchNode` with all defaults: `builder.add_node("patch_tool_calls", patch_node)`."""
