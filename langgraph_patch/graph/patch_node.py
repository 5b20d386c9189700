"""`PatchNode`: a graph node that repairs the tool-call history of the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._own_names import OwnNames
from langgraph_patch._sansio import run_async, run_sync
from langgraph_patch.evidence.reconcile import Lookup
from langgraph_patch.graph.apply_repair import write_repairs
from langgraph_patch.graph.repairer import OnPatch, Recover, Repairer
from langgraph_patch.history.placeholders import Language, Placeholder


class PatchNode(Runnable[Any, Any], metaclass=OwnNames):
    """A graph node that repairs the tool-call history of the state.

    It writes nothing if the history is valid. Place it directly before the model, or let
    `with_patching` place it. It works in synchronous and asynchronous graphs, with a state that
    is a dict, a dataclass or a pydantic model, and with every reducer.

    Results that a client sends with its next message are not compared with the checkpoints: only
    START sees the input of a run, so `with_patching` compares them. What known clients invent
    (agent-chat-ui, assistant-ui) counts as a placeholder.

    The logger `langgraph_patch` reports each repair that is written to the state, on level INFO,
    with the thread id and the changes.

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
        self._repairer = Repairer(
            placeholder=placeholder,
            language=language,
            messages_key=messages_key,
            recover=recover,
            replace_foreign=replace_foreign,
            checkpointer=checkpointer,
            reconcile=reconcile,
            on_patch=on_patch,
            allow_pending=allow_pending,
        )

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Return the state update that repairs the history; None if there is nothing to repair.

        Args:
            input: The state.
            config: The config of the run.

        Raises:
            GraphError: If the state has no key `messages_key`.
            MessagesError: If the value of that key is not a list of messages.
            EvidenceError: If the checkpointer raises an error and `recover="required"`.
        """
        return run_sync(write_repairs([self._repairer], input, config or {}, node=self))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Do the same as `invoke`, and read the checkpointer asynchronously."""
        return await run_async(write_repairs([self._repairer], input, config or {}, node=self))


patch_node: PatchNode = PatchNode()
"""A `PatchNode` with all defaults: `builder.add_node("patch_tool_calls", patch_node)`."""
