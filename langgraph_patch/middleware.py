"""The repair as a middleware for LangChain's `create_agent` (extra: `[langchain]`).

The class has the same name as the middleware of deepagents, so an agent that lists that one only
has to change the import.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from langgraph_patch._langgraph import channels_of, current_config, runs_alone
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.evidence.reconcile import Lookup
from langgraph_patch.graph.entry import damage_in_state, state_update
from langgraph_patch.graph.node import last_turn
from langgraph_patch.graph.repairer import OnPatch, Recover, Repairer
from langgraph_patch.graph.truncation import TruncationGuard, guarded_call
from langgraph_patch.history.placeholders import Placeholder

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain.agents.middleware.types import AgentState
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "langgraph_patch.middleware needs langchain: pip install 'langgraph-patch[langchain]'",
        name=error.name,
    ) from error

if TYPE_CHECKING:
    _Base = AgentMiddleware[Any, Any, Any]
else:  # older versions of langchain have two type parameters
    _Base = AgentMiddleware

try:
    from langchain.agents.middleware import TracePolicy, omit_payload
except ImportError:  # before langchain 1.4: nothing reads a policy
    _WITHOUT_INPUTS = None
else:
    _WITHOUT_INPUTS = TracePolicy(process_inputs=omit_payload)


class PatchToolCallsMiddleware(_Base):
    """Repairs the tool-call history of a `create_agent` agent.

    Before the agent runs, it repairs the state. Around each model call it repairs the request only:
    damage that occurs during a run (`invoke(None)`, `Command(goto=...)`, an edited state) stays in
    the state until the next message arrives. To write it at once, use `with_patching` too.

    A tool call that the model did not finish writing never runs: LangChain completes its
    arguments, here it is listed in `invalid_tool_calls` and answered by a placeholder. The complete
    calls of the message run. If there are none, the model is asked once more, with placeholders.

    Place it last: this one must see the history as all others have changed it. Changes by a
    middleware after it are not covered. In `create_deep_agent` it replaces deepagents' middleware
    of the same name, also in the subagent `general-purpose` and in those with `mode="fork"`. List
    it in the `middleware` of each other subagent, or patch its `runnable` by `with_patching`.

    The logger `langgraph_patch` reports each repair, with the thread id and the changes: on
    level INFO if the repair is written to the state, on level DEBUG if only a request is repaired.

    Args:
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. Default: a text that names the cause.
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
        reconcile: For each tool name a function that takes a `DanglingCall` and returns the
            result of the call as a `ToolMessage` or a text, or None if it does not know. It is
            asked about calls of which no outcome is recorded (`unknown`, `cancelled`,
            `awaiting_input`). It may be asynchronous if the run is. If it raises, a WARNING
            reports it and the call stays as it was. Default: None.
        on_patch: A function that is called with the `Patch` and the config of the run for each
            repair, before it is written: for metrics, alerts and audits. If it raises, the run
            fails with its exception and nothing is written. Default: None.

    Raises:
        OptionError: If an option has an invalid value.

    Examples:
        >>> from langchain.agents import create_agent
        >>> from langchain_core.language_models import GenericFakeChatModel
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch.middleware import PatchToolCallsMiddleware
        >>> model = GenericFakeChatModel(messages=iter([AIMessage("hello")]))
        >>> agent = create_agent(model, middleware=[PatchToolCallsMiddleware()])
        >>> dangling = AIMessage("", tool_calls=[{"name": "wire", "args": {}, "id": "c1"}])
        >>> [m.type for m in agent.invoke({"messages": [dangling]})["messages"]]
        ['ai', 'tool', 'ai']
    """

    trace_policy = _WITHOUT_INPUTS  # as in deepagents: a history is no useful input of a hook

    def __init__(
        self,
        *,
        placeholder: Placeholder | None = None,
        messages_key: str = "messages",
        recover: Recover = True,
        replace_foreign: bool = False,
        reconcile: Mapping[str, Lookup] | None = None,
        on_patch: OnPatch | None = None,
    ) -> None:
        super().__init__()
        self._repairer = Repairer(
            placeholder=placeholder,
            messages_key=messages_key,
            recover=recover,
            replace_foreign=replace_foreign,
            reconcile=reconcile,
            on_patch=on_patch,
        )

    def before_agent(
        self,
        state: AgentState[Any],
        runtime: Runtime[Any],  # noqa: ARG002 - the signature of the hook
    ) -> dict[str, Any] | None:
        """Return the state update that repairs the history; None if there is nothing to repair."""
        return run_sync(self._repair_state(state))

    async def abefore_agent(
        self,
        state: AgentState[Any],
        runtime: Runtime[Any],  # noqa: ARG002 - the signature of the hook
    ) -> dict[str, Any] | None:
        """Do the same as `before_agent`, asynchronously."""
        return await run_async(self._repair_state(state))

    def _repair_state(self, state: AgentState[Any]) -> IOGenerator[dict[str, Any] | None]:
        """What the repair node of a patched graph does; nothing beside other nodes."""
        config = current_config()
        damage = damage_in_state(self._repairer, state, config)
        if damage is None or not runs_alone(config):
            return None
        damages = [(self._repairer, damage)]
        update = yield from state_update(damages, config, shown=channels_of(config))
        return cast("dict[str, Any] | None", update)

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any] | AIMessage:
        """Call the model with a valid history; no truncated call is left in its response."""
        return run_sync(self._call_model(request, handler))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | AIMessage:
        """Do the same as `wrap_model_call`, asynchronously."""
        return await run_async(self._call_model(request, handler))

    def _call_model(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> IOGenerator[ModelResponse[Any]]:
        config = current_config()
        request = yield from self._repaired(request, config)
        response, guard = yield from _guarded(handler, request, config)
        last = response.result[-1] if response.result else None
        if last is None or not guard.left_without_calls(last):
            return self._with_incomplete_answered(request, response)
        history = self._repairer.close_calls([*request.messages, last])
        request = request.override(messages=cast("list[AnyMessage]", history))
        again, _ = yield from _guarded(handler, request, config)
        again = self._with_incomplete_answered(request, again)
        return replace(again, result=[*last_turn(history), *again.result])

    def _with_incomplete_answered(
        self, request: ModelRequest[Any], response: ModelResponse[Any]
    ) -> ModelResponse[Any]:
        """The response, with a placeholder for each incomplete call beside complete ones.

        Otherwise `create_agent` answers them before the next model call, with a text of its own.
        """
        last = response.result[-1] if response.result else None
        if not (isinstance(last, AIMessage) and last.tool_calls and last.invalid_tool_calls):
            return response
        answers = self._repairer.results_of_incomplete_calls([*request.messages, last])
        return replace(response, result=[*response.result, *answers])

    def _repaired(
        self, request: ModelRequest[Any], config: RunnableConfig
    ) -> IOGenerator[ModelRequest[Any]]:
        """The request with a valid history; the same object if the history is valid."""
        messages = cast("list[BaseMessage]", request.messages)
        repaired = yield from self._repairer.repaired(messages, config)
        if repaired is messages:
            return request
        return request.override(messages=cast("list[AnyMessage]", repaired))


def _guarded(
    handler: Callable[[ModelRequest[Any]], Any], request: ModelRequest[Any], config: RunnableConfig
) -> IOGenerator[tuple[ModelResponse[Any], TruncationGuard]]:
    """The response of the model, without truncated calls, and the guard that corrected it."""
    guard = TruncationGuard(config)
    response = yield from guarded_call(guard, lambda: handler(request), lambda: handler(request))
    if isinstance(response, AIMessage):
        response = ModelResponse(result=[response])
    return replace(response, result=guard.corrected(response.result, ["messages"])), guard
