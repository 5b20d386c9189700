"""Find what the checkpoints of a thread recorded about tool calls without a result.

This is the only entry point of the package. The patch node, the scan and the repair of stored
threads call `recover_evidence` with the calls that a `Reading` left unanswered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.search import Search
from langgraph_patch.evidence.timeline import turns_of
from langgraph_patch.history.patch import Evidence


def recover_evidence(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    calls: Sequence[tuple[AIMessage, str]],
    *,
    messages_key: str = "messages",
) -> IOGenerator[Evidence]:
    """Find what the checkpoints of a thread recorded about tool calls without a result.

    Args:
        saver: The checkpointer. It is only read. It is not read if `calls` is empty.
        config: Names the thread (`thread_id`), the namespace of the graph whose history is
            damaged (`checkpoint_ns`, default `""`), and the current checkpoint
            (`checkpoint_id`, default the newest). If the current checkpoint is still being
            written, the search waits for it for a second at most.
        calls: Each call as the message that made it and the call's id, both as stored.
        messages_key: The state key of the history. Default: `"messages"`.

    Returns:
        The recorded result of a call, or the cause why there is none, under the ids of
        message and call. A call about which nothing certain is recorded is absent.

    Raises:
        EvidenceError: If the checkpointer raises.

    Example:
        >>> from langchain_core.messages import AIMessage, ToolMessage
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph.types import Send, interrupt
        >>> from langgraph_patch._sansio import run_sync
        >>> def send_email(call):
        ...     return {"messages": [ToolMessage("sent to bob", tool_call_id="c1")]}
        >>> def wire_money(call):
        ...     interrupt("1000 EUR?")
        >>> ai = AIMessage("", id="m1", tool_calls=[
        ...     {"name": "send_email", "args": {}, "id": "c1"},
        ...     {"name": "wire_money", "args": {}, "id": "c2"}])
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [ai]})
        >>> _ = builder.add_node(send_email).add_node(wire_money).set_entry_point("model")
        >>> _ = builder.add_conditional_edges(
        ...     "model", lambda state: [Send(c["name"], [c]) for c in ai.tool_calls])
        >>> saver, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
        >>> _ = builder.compile(checkpointer=saver).invoke({"messages": []}, config)
        >>> found = run_sync(recover_evidence(saver, config, [(ai, "c1"), (ai, "c2")]))
        >>> found["m1", "c1"].content, found["m1", "c2"].cause
        ('sent to bob', 'awaiting_input')
    """
    turns = yield from Search(saver, messages_key).run(config, turns_of(calls))
    return {(t.message.id, call_id): t.known[call_id] for t in turns for call_id in t.known}
