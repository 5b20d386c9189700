"""A node that repairs the history: messages and evidence in, a state update out.

`PatchNode` holds the options, asks the checkpointer, and writes what was repaired. The
front door and the last mile of `with_patching` use the same object.
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

from langgraph_patch._langgraph import channels_of, checkpointer_of, thread_config
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.errors import GraphError, MessagesError, OptionError
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.graph.state_update import writes_for
from langgraph_patch.history.patch import Evidence, Patch
from langgraph_patch.history.patcher import as_messages, patch_reading, read_if_damaged, untouched
from langgraph_patch.history.placeholders import (
    Language,
    Placeholder,
    checked_language,
    checked_placeholder,
)

logger: logging.Logger = logging.getLogger("langgraph_patch")

OnPatch: TypeAlias = Callable[[Patch, RunnableConfig], None]


class PatchNode(Runnable[Any, Any]):
    """A LangGraph node that repairs the tool-call history of the state.

    It returns nothing when the history is valid. Place it directly before the model, or
    let `with_patching` place it. Works in sync and async graphs, over states that are
    dicts, dataclasses or pydantic models, and under every reducer.

    Args:
        placeholder: What to say of a call without a result: one text, a mapping from cause
            to text, or a callable that takes a `DanglingCall`. Default: a text per cause.
        language: `"en"` or `"zh"`. Default: the language of the process.
        messages_key: The state key of the history. Default: `"messages"`.
        recover: Whether the checkpointer is asked for results that were recorded but never
            reached the history. It is asked only when something is broken. Default: True.
        replace_foreign: Whether the placeholders of deepagents and langgraph-checkpoint-aws
            give way to the truth. Default: False.
        checkpointer: The checkpointer to ask. Default: that of the run.
        on_patch: Called with the patch and the config for each repair. What it raises
            reaches the caller of the graph, and nothing is written. Default: None.

    Raises:
        OptionError: If an option is none of the values that it may have.

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

    allow_pending = False
    """Whether calls at the tail are left to whoever runs next (the front door does)."""

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

    # --- as a node -----------------------------------------------------------------------

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        """Return the state update that repairs the history; None if there is nothing to repair."""
        return run_sync(self._update_of(input, config or {}))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        """Return the same update as `invoke`; the checkpointer is read asynchronously."""
        return await run_async(self._update_of(input, config or {}))

    def _update_of(self, state: Any, config: RunnableConfig) -> IOGenerator[Command[Any] | None]:
        history = self.history(state, config)
        patch = yield from self.repair(history, config, allow_pending=self.allow_pending)
        return self.write(patch, history, config, alone=True) if patch else None

    def history(self, state: Any, config: RunnableConfig) -> list[BaseMessage]:
        """The messages of `state`; a key that is not written yet is an empty history.

        Raises:
            GraphError: If the graph that runs has no such key.
            MessagesError: If the value is no list of messages.
        """
        if value_of(state, self.messages_key) is None:
            channels = channels_of(config)
            if channels and self.messages_key not in channels:
                raise key_error(self.messages_key, channels)
            return []
        return messages_in(state, self.messages_key)

    # --- repairing -----------------------------------------------------------------------

    def is_damaged(self, messages: Sequence[BaseMessage], *, allow_pending: bool) -> bool:
        """Whether there is anything to repair; nothing is asked of the application."""
        reading = read_if_damaged(
            messages, replace_foreign=self.replace_foreign, allow_pending=allow_pending
        )
        return reading is not None

    def repair(
        self, messages: Sequence[BaseMessage], config: RunnableConfig, *, allow_pending: bool
    ) -> IOGenerator[Patch]:
        """The patch of `messages`, with what the checkpointer of the run recorded."""
        reading = read_if_damaged(
            messages, replace_foreign=self.replace_foreign, allow_pending=allow_pending
        )
        if reading is None:
            return untouched(messages)
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
            allow_pending=allow_pending,
        )

    # --- writing -------------------------------------------------------------------------

    def write(
        self,
        patch: Patch,
        history: Sequence[BaseMessage],
        config: RunnableConfig,
        *,
        alone: bool,
    ) -> Command[Any] | None:
        """The state update of `patch`, announced to clients; None if no write fits.

        Args:
            patch: The repair of `history`.
            history: What the state holds.
            config: The config of the running node.
            alone: Whether the node has a step of its own.
        """
        channel = channels_of(config).get(self.messages_key)
        writes = writes_for(channel, history, patch.messages, alone=alone)
        self.announce(patch, config, written=writes is not None)
        if writes is None:
            return None
        if "langgraph_node" in config.get("metadata", {}):
            known = {message.id for message in history}
            for message in patch.messages:
                if isinstance(message, ToolMessage) and message.id not in known:
                    push_message(message, state_key=None)
        return Command(update=[(self.messages_key, write) for write in writes])

    def announce(self, patch: Patch, config: RunnableConfig, *, written: bool) -> None:
        """Tell the application of a repair, and the log of one that is written."""
        if self.on_patch is not None:
            self.on_patch(patch, config)
        thread_id = config.get("configurable", {}).get("thread_id")
        if written:
            logger.info("repaired thread %r: %s", thread_id, patch)
        else:
            logger.debug("repaired what the model sees of thread %r: %s", thread_id, patch)


def value_of(state: Any, key: str) -> Any:
    """The value of `key` in a state of any kind; None if there is none."""
    return state.get(key) if isinstance(state, dict) else getattr(state, key, None)


def messages_in(state: Any, key: str) -> list[BaseMessage]:
    """The value of `key` in a state, if it is a list of messages.

    Raises:
        MessagesError: If it is not.
    """
    try:
        return as_messages(value_of(state, key))
    except MessagesError as error:
        raise MessagesError(f"State key {key!r}: {error}") from error


def key_error(key: str, channels: Any) -> GraphError:
    """The error for a key that the state does not have."""
    keys = ", ".join(repr(k) for k in sorted(channels) if ":" not in k and not k.startswith("__"))
    return GraphError(f"messages_key={key!r} is no key of the state: expected one of {keys}.")


patch_node: PatchNode = PatchNode()
"""A `PatchNode` with all defaults: `builder.add_node("patch_tool_calls", patch_node)`."""
