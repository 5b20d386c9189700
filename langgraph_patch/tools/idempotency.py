"""A key for a tool call that is the same each time the call runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.prebuilt import ToolRuntime

from langgraph_patch._langgraph.run import Run
from langgraph_patch._text import short
from langgraph_patch.errors import GraphError, OptionError


def idempotency_key(
    runtime_or_config: ToolRuntime[Any, Any] | RunnableConfig, tool_call_id: str | None
) -> str:
    """A key for a tool call: the same after a resume, a retry, a restart and an `update_state`.

    It derives from the thread, the namespace, the node, the message and the call. Another turn has
    another key, also if the model uses the id of the call again. A fork keeps the keys of the calls
    that it runs again.

    Args:
        runtime_or_config: The `ToolRuntime` or the `RunnableConfig` of the tool, or
            `request.runtime` in a wrapper of a `ToolNode`. Prefer the `ToolRuntime`: only it has
            the messages of a `ToolNode` that a node calls with messages of its own.
        tool_call_id: The id of the call: `runtime.tool_call_id`, an `InjectedToolCallId`, or
            `request.tool_call["id"]`.

    Returns:
        32 hexadecimal digits.

    Raises:
        GraphError: If no key identifies the call: outside of a graph, if no message of the
            state makes the call, if the message has no id, or if it makes two calls with this id.
        OptionError: If the first argument is neither of these.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langchain_core.tools import tool
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph.prebuilt import ToolNode, ToolRuntime
        >>> from langgraph_patch import idempotency_key
        >>> @tool
        ... def wire_money(amount: int, runtime: ToolRuntime) -> str:
        ...     "Wire money."
        ...     key = idempotency_key(runtime, runtime.tool_call_id)
        ...     return f"wired {amount} with key {key}"
        >>> builder = StateGraph(MessagesState).add_node("tools", ToolNode([wire_money]))
        >>> call = {"name": "wire_money", "args": {"amount": 7}, "id": "call_1"}
        >>> message = AIMessage("", id="ai_1", tool_calls=[call])
        >>> graph = builder.set_entry_point("tools").compile()
        >>> graph.invoke({"messages": [message]})["messages"][-1].content
        'wired 7 with key 827f6128cb82634e0c86694bd4fbfb36'
    """
    messages: list[AIMessage] = []
    if not isinstance(runtime_or_config, dict) and not hasattr(runtime_or_config, "config"):
        raise OptionError(
            f"runtime_or_config={short(runtime_or_config)}: expected the ToolRuntime or the "
            f"RunnableConfig of the tool."
        )
    if isinstance(runtime_or_config, dict):
        config = runtime_or_config
    else:
        config = runtime_or_config.config
        messages = list(_messages_with_call(runtime_or_config.state, tool_call_id))
    run = Run(config)
    messages = messages or list(_messages_with_call(run.values(run.channels), tool_call_id))
    times = [
        [call["id"] for call in message.tool_calls].count(tool_call_id) for message in messages
    ]
    if set(times) != {1} or any(message.id is None for message in messages):
        raise GraphError(
            f"Tool call {tool_call_id!r} has no idempotency key: expected a message with an id in "
            f"the state of a graph that makes the call, and no other call with this id. Pass the "
            f"ToolRuntime if you passed the config."
        )
    ids = sorted({str(message.id) for message in messages})  # of all histories in the state
    parts = str(run.thread_id), run.namespace, run.node, *ids, tool_call_id
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _messages_with_call(state: Any, call_id: str | None) -> Iterator[AIMessage]:
    """The last AI message of each list of messages in a state, if it makes the call."""
    channels = {"": state} if isinstance(state, list) else state
    channels = channels if isinstance(channels, Mapping) else getattr(channels, "__dict__", {})
    for messages in channels.values():
        if isinstance(messages, list) and messages and isinstance(messages[-1], BaseMessage):
            last = next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)
            if last is not None and any(call["id"] == call_id for call in last.tool_calls):
                yield last
