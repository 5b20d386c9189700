"""The repair as a middleware for LangChain's `create_agent` (extra: `[langchain]`).

The class has the same name as the middleware of deepagents, so an agent that lists that one only
has to change the import.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IOGenerator, IORequest, run_async, run_sync
from langgraph_patch.asking.ask import ask
from langgraph_patch.asking.attempts import Attempts
from langgraph_patch.asking.guard import TruncationGuard
from langgraph_patch.asking.request import Histories, Request
from langgraph_patch.errors import OptionError
from langgraph_patch.history.changes import Patch
from langgraph_patch.history.comparing import are_identical
from langgraph_patch.history.placeholders import Placeholder
from langgraph_patch.repairing.reconcile import Lookup
from langgraph_patch.repairing.repairer import OnPatch, Recover, Repair, Repairer, write_repairs
from langgraph_patch.repairing.writing import new_messages, stream_results
from langgraph_patch.state import messages_in
from langgraph_patch.tools.once import Once
from langgraph_patch.tools.once_names import checked_names, warn_of_unknown

try:
    from langchain.agents.middleware import (
        AgentMiddleware,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
    )
except ImportError as error:
    raise ImportError(
        "langgraph_patch.middleware needs langchain 1.2.15 or newer: "
        "pip install 'langgraph-patch[langchain]'",
        name=error.name,
    ) from error

__all__ = ["PatchToolCallsMiddleware"]

if TYPE_CHECKING:
    _Base = AgentMiddleware[Any, Any, Any]
else:  # older versions of langchain have two type parameters
    _Base = AgentMiddleware


_HISTORY = "messages"


class PatchToolCallsMiddleware(_Base):
    """Repairs the tool-call history of a `create_agent` agent.

    It works around each model call, so the agent has no further node: a healthy run has the
    supersteps, checkpoints and chunks of the bare agent. The repair of a damaged history is
    written to the state with the answer of the model, also where a run starts without a message
    (`invoke(None)`, `Command(goto=...)`, an edited state). Beside other nodes of its superstep only
    the request is repaired, and the next model call writes the repair.

    A tool call that was cut off is not run, and the model is asked once more if no other call and
    no text is left. If the provider refuses the history (status 400 or 422), it is repaired, and
    the model asked again; see
    https://github.com/langgraph-patch/langgraph-patch/blob/main/docs/pages/refused.md.

    Place it last: this one must see the history as all others have changed it. Changes by a
    middleware after it, and nodes of other middlewares that read the history before the model does,
    are not covered; `with_patching` covers them. In `create_deep_agent`, list it for each subagent,
    too.

    Args:
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. `{name}` and `{id}` in a text are replaced. Default:
            a text that names the cause.
        messages_key: The state key that has the history. Default: `"messages"`.
        recover: Whether to search the checkpoints of the thread for results that were recorded
            but are missing in the history. They are searched only if the history is damaged.
            If a checkpoint cannot be read, a WARNING reports it and the calls count as `unknown`;
            with `"required"` an `EvidenceError` is raised, also if there is no checkpointer.
            What the tool wrote to other state keys is restored with its result, if these keys
            have not changed since; otherwise the result names what was not kept. Default: True.
        reconcile: For each tool name a function that takes a `DanglingCall` and returns the
            result of the call as a `ToolMessage` or a text, or None if it does not know. It is
            asked about calls of which no outcome is recorded (`unknown`, `cancelled`,
            `awaiting_input`). It may be asynchronous if the run is. If it raises, a WARNING
            reports it and the call stays as it was. Default: None.
        on_patch: A function that is called with the `Patch` and the config of the run for each
            repair, before it is written: for metrics, alerts and audits. If it raises, the run
            fails with its exception and nothing is written. Default: None.
        once: The names of tools whose calls run once, whoever answers, resumes or replays, and how
            often. Before such a tool runs, the run claims the call in the checkpointer of the
            thread. A second run gets the recorded result, or a `StartedError` if there is none.
            The record has the result as this middleware sees it: what a middleware before
            it changes is not recorded, while `with_patching(agent, once=[...])` records what the
            model reads. See
            https://github.com/langgraph-patch/langgraph-patch/blob/main/docs/pages/once.md.
            Default: none.

    Raises:
        OptionError: If an option has an invalid value.

    Examples:
        >>> from langchain.agents import create_agent
        >>> from langchain_core.language_models import GenericFakeChatModel
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph_patch import PatchToolCallsMiddleware
        >>> model = GenericFakeChatModel(messages=iter([AIMessage("hello")]))
        >>> agent = create_agent(model, middleware=[PatchToolCallsMiddleware()])
        >>> dangling = AIMessage("", tool_calls=[{"name": "wire", "args": {}, "id": "c1"}])
        >>> history = [dangling, HumanMessage("never mind")]
        >>> [m.type for m in agent.invoke({"messages": history})["messages"]]
        ['ai', 'tool', 'human', 'ai']
    """

    def __init__(
        self,
        *,
        placeholder: Placeholder | None = None,
        messages_key: str = "messages",
        recover: Recover = True,
        reconcile: Mapping[str, Lookup] | None = None,
        on_patch: OnPatch | None = None,
        once: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._repairer = Repairer(
            placeholder=placeholder,
            messages_key=messages_key,
            recover=recover,
            reconcile=reconcile,
            on_patch=on_patch,
            leaves_open=True,
            once=checked_names(once),
        )
        if once:
            # `create_agent` looks for the wrapper of tools in the class, and for the name there.
            cls = type(self)
            if cls.wrap_tool_call is not AgentMiddleware.wrap_tool_call:
                raise OptionError(f"once: {cls.__name__} has a wrap_tool_call of its own.")
            self.__class__ = type(cls.__name__, (_RunsOnce, cls), {"__module__": cls.__module__})
            self._to_check = iter([self._repairer.once])

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Call the model with a valid history; no truncated call is left in its response."""
        return run_sync(self._call_model(request, handler))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Do the same as `wrap_model_call`, asynchronously."""
        return await run_async(self._call_model(request, handler))

    def _call_model(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> IOGenerator[ModelResponse[Any] | ExtendedModelResponse[Any]]:
        run = Run.current()
        history = messages_in(request.state, self._repairer.messages_key) or []
        # Search again at most once per turn.
        is_new_turn = bool(history) and history[-1].type == "human"
        # Only a recorded result ends a call that may be alive: a hook may ask about it.
        damage = self._repairer.read(history, run, look_again=is_new_turn, may_be_recorded=True)
        repair = found = Repair(Patch(history, (), history))
        if damage is not None:
            found = yield from self._repairer.repair(damage, run, restore=run.is_alone)
            if run.is_alone:
                repair = found
                stream_results(run, new_messages(repair.patch))
        messages = repaired = cast("list[BaseMessage]", request.messages)
        if found.patch and are_identical(messages, found.patch.before):
            repaired = found.patch.messages
        elif damage is not None or not are_identical(messages, history):
            repaired = yield from self._repairer.repaired(messages, run)
        if repaired is not messages:
            request = request.override(messages=cast("list[AnyMessage]", repaired))
        attempts = Attempts(_AgentRequest(run, {_HISTORY: self._repairer}, request, handler))
        response: ModelResponse[Any] = yield from ask(attempts)
        for patch in attempts.patches.values():
            if are_identical(patch.before, repair.patch.messages) and run.is_alone:
                repair = repair._replace(patch=Patch.joined(repair.patch, patch))
        return (yield from self._written(repair, response, run)) if repair.patch else response

    def _written(
        self, repair: Repair, response: ModelResponse[Any], run: Run
    ) -> IOGenerator[ModelResponse[Any] | ExtendedModelResponse[Any]]:
        """The response, with a state update that writes the repair and the response's messages."""
        key = self._repairer.messages_key
        own: list[tuple[str, Any]] = [(key, response.result)]
        if response.structured_response is not None:
            own.append(("structured_response", response.structured_response))
        repairs = [(self._repairer, repair)]
        writes = yield from write_repairs(repairs, own, run, shown=run.channels, others_follow=True)
        if key in writes:
            run.write_first(key, writes.pop(key))
        return ExtendedModelResponse(response, Command(update=writes)) if writes else response


class _RunsOnce(PatchToolCallsMiddleware):
    """The same, for an agent with tools whose calls run once."""

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[..., Any]) -> Any:
        """Run a tool call, once if its tool is named."""
        return run_sync(self._call_tool(request, handler))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[..., Any]) -> Any:
        """Do the same as `wrap_tool_call`, asynchronously."""
        return await run_async(self._call_tool(request, handler))

    def _call_tool(self, request: ToolCallRequest, handler: Callable[..., Any]) -> IOGenerator[Any]:
        once, runtime = self._repairer.once, request.runtime
        for names in self._to_check:  # at the first call
            warn_of_unknown("once", names, [tool.name for tool in getattr(runtime, "tools", ())])
        own = Once(tuple(once), self._repairer.messages_key)
        sent = request.tool_call
        call = own.call(own.made(sent, request.state), request.state, runtime.config, sent)
        if call is None:
            return (yield IORequest(lambda: handler(request), lambda: handler(request)))
        return (yield from call.wrap(request, handler))


@dataclass(slots=True)
class _AgentRequest(Request):
    """The request of the middleware: the handler is called.

    Attributes:
        asked: What the handler gets.
        handler: Calls the model.
    """

    asked: ModelRequest[Any]
    handler: Callable[[ModelRequest[Any]], Any]
    # LangChain drops the updates of middlewares further in.
    returns_all: ClassVar[bool] = False

    @property
    def asks(self) -> tuple[object, ...]:
        """The model of the request; a middleware further in may take another one."""
        return self.asked.model, self.asked.model_settings

    def histories(self) -> Histories:
        """The history in the request."""
        return {_HISTORY: cast("list[BaseMessage]", self.asked.messages)}

    def with_histories(self, histories: Histories) -> _AgentRequest:
        """The request with another history."""
        messages = cast("list[AnyMessage]", histories.get(_HISTORY, self.asked.messages))
        return replace(self, asked=self.asked.override(messages=messages))

    def send(self) -> IORequest:
        """Call the model."""
        return IORequest(lambda: self.handler(self.asked), lambda: self.handler(self.asked))

    def corrected(self, output: ModelResponse[Any], guard: TruncationGuard) -> ModelResponse[Any]:
        """The response without truncated calls."""
        return replace(output, result=guard.corrected(output.result, [_HISTORY]))

    def message(self, output: ModelResponse[Any]) -> BaseMessage | None:
        """The last message of the response."""
        return output.result[-1] if output.result else None

    def closed(self, output: ModelResponse[Any], message: AIMessage) -> Histories:  # noqa: ARG002 - of every form
        """The history behind the message."""
        return {_HISTORY: self.repairers[_HISTORY].closed([*self.asked.messages, message]).messages}

    def with_turns(self, output: ModelResponse[Any], turns: Histories) -> ModelResponse[Any]:
        """The response behind the first message and its placeholders."""
        return replace(output, result=[*turns.get(_HISTORY, ()), *output.result])
