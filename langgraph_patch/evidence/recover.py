"""Find what the checkpoints of a thread recorded about tool calls without a result.

`recover_evidence` is the only entry point of the package. The patch node, the scan and the
repair of stored threads call it with the calls that have no result.

When a run stops in the middle of a superstep, LangGraph keeps what the finished tasks wrote as
*pending writes* of the checkpoint before that superstep. The next message drops them from the
state, but they stay in the database, as do older checkpoints. This package reads them.

**What counts as evidence**, in this order of precedence:

1. A *result*: a `ToolMessage` with the id of the call that is not a placeholder. It is read
   from a write to the history, from what a `@task` returned, from the update of a `Command`, or
   from the history of an older checkpoint. It counts only if at that point this call was the
   only open call with its id, and had the name and the arguments that it has now.
2. An *error*, and 3. an *interrupt*, of a task that ran this call and nothing else: the task of
   a `Send` (`create_agent`, `create_react_agent` v2), or a task of `record_tool_calls` (its last
   attempt). The task of a node that runs all calls of a message (a plain `ToolNode`) counts only
   if the message makes one call, no other node ran in that superstep, and a node wrote the
   message in the superstep before. An error counts only if that node is called `tools`, because
   in another node a middleware may have failed.

**What does not count** is an error or an interrupt of a task

- after which the call may have been started again,
- with a subgraph that received the call and may have finished it,
- that was cancelled, or that was resumed without an interrupt id after its interrupt.

Without evidence a call is absent from the answer, and the patch reports it as `unknown`.

**Which checkpoints are read**: those from which the current one was made, those of the subgraphs
of the task that wrote the message, and if the message was the input of a subgraph, those of its
parent graph. Beyond the newest 58 checkpoints, bisection finds the one in which a message was
new. If that is impossible, 508 checkpoints are read (gaps between the steps, as durability
"exit" leaves them, or branches that cannot be distinguished), or 1858 (`DeltaChannel` state).

**Limits**: what follows is not recorded in a way that can be read back.

- A waiting call was resumed *by interrupt id* (with durability "exit": resumed at all), and that
  run was cancelled or killed: the call is reported as waiting.
- A failed call was started again, and that run was killed: the call is reported as failed.
- With durability "exit", a killed run records nothing.
- A run on a fork finds what the newest branch of the thread recorded about the same call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.queries import CheckpointReader
from langgraph_patch.evidence.search import find_evidence
from langgraph_patch.evidence.timeline import track_calls
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
        config: Names the thread (`thread_id`), the namespace of the graph that has the calls
            (`checkpoint_ns`, default `""`), and the current checkpoint (`checkpoint_id`,
            default the newest). If the current checkpoint is still being written, the search
            waits for it for a second at most.
        calls: Each call as the message that made it and the call's id, both as stored.
        messages_key: The state key of the history. Default: `"messages"`.

    Returns:
        (id of the message, id of the call) -> the recorded result, or the cause why there is
        none. A call without certain evidence is absent.

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
    messages = track_calls(calls)
    yield from find_evidence(CheckpointReader(saver, messages_key), config, messages)
    return {
        (tracked.call.message.id, tracked.call.id): tracked.evidence
        for message in messages
        for tracked in message.calls
        if tracked.evidence is not None
    }
