"""The repair as a middleware of langchain's `create_agent` (extra: `[langchain]`).

The class has the name of deepagents' own, so that a change of the import is the migration
for an agent that lists it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import AgentState
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_config
from langgraph.runtime import Runtime

from langgraph_patch._sansio import run_async, run_sync
from langgraph_patch.graph.patch_node import OnPatch, PatchNode
from langgraph_patch.history.patch import Patch
from langgraph_patch.history.placeholders import Language, Placeholder


class PatchToolCallsMiddleware(AgentMiddleware[Any, Any, Any]):
    """Repairs the tool-call history of a `create_agent` agent.

    Before the agent runs, what is broken is mended in the state. Around each model call,
    what the model is about to see is mended too; that is not written. Damage that comes in
    between (`invoke(None)`, `Command(goto=...)`, an edited state) is thus mended for the
    model at once, and in the state when the next message comes in. To have it written at
    once, use `with_patching` on the agent; both together are fine.

    Put it last: the first middleware of a list is the outermost, and this one has to see
    what all the others made of the history. What stands after it is not covered, and a
    `before_agent` hook that stands before it still sees the damage.

    In `create_deep_agent(middleware=[PatchToolCallsMiddleware()])` an entry takes the place of
    deepagents' own of the same name, so that this one replaces that one:

    - in the main agent, after deepagents' summarization and before the caching, memory and
      approval middleware. Your other middleware comes after it;
    - in the built-in `general-purpose` subagent, and in subagents with `mode="fork"`;
    - **not** in the other subagents. List it in the `middleware` of each: there, too, it takes
      the place of deepagents' own. A subagent with a `runnable` of its own is repaired if that
      graph is: build it with this middleware or hand it to `with_patching`.

    If a middleware of your own cuts the history around the model call, let a subclass with
    another name stand after it: `class LastMile(PatchToolCallsMiddleware): ...`. A new name
    replaces nothing, and keeps the place that you give it.

    Args:
        placeholder: As for `PatchNode`.
        language: As for `PatchNode`.
        messages_key: As for `PatchNode`.
        recover: As for `PatchNode`.
        replace_foreign: As for `PatchNode`.
        checkpointer: As for `PatchNode`.
        on_patch: As for `PatchNode`.
        persist: Whether the state is mended before the agent runs. Default: True.

    Raises:
        OptionError: If an option is none of the values that it may have.

    Example:
        >>> from langchain.agents import create_agent
        >>> from langchain_core.language_models import GenericFakeChatModel
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph_patch.middleware import PatchToolCallsMiddleware
        >>> model = GenericFakeChatModel(messages=iter([AIMessage("hello")]))
        >>> agent = create_agent(model, middleware=[PatchToolCallsMiddleware()])
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> history = [AIMessage("", tool_calls=[call]), HumanMessage("never mind")]
        >>> [m.type for m in agent.invoke({"messages": history})["messages"]]
        ['ai', 'tool', 'human', 'ai']
    """

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
        persist: bool = True,
    ) -> None:
        super().__init__()
        self._persist = persist
        self._node = PatchNode(
            placeholder=placeholder,
            language=language,
            messages_key=messages_key,
            recover=recover,
            replace_foreign=replace_foreign,
            checkpointer=checkpointer,
            on_patch=on_patch,
        )

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> Any:  # noqa: ARG002
        """Mend the state."""
        return self._node.invoke(state, _config()) if self._persist else None

    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> Any:  # noqa: ARG002
        """As `before_agent`."""
        return await self._node.ainvoke(state, _config()) if self._persist else None

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any] | AIMessage:
        """Call the model with a sound history."""
        config = _config()
        patch = run_sync(self._node.repair(request.messages, config, allow_pending=False))
        return handler(self._mended(request, patch, config))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | AIMessage:
        """As `wrap_model_call`."""
        config = _config()
        patch = await run_async(self._node.repair(request.messages, config, allow_pending=False))
        return await handler(self._mended(request, patch, config))

    def _mended(
        self, request: ModelRequest[Any], patch: Patch, config: RunnableConfig
    ) -> ModelRequest[Any]:
        if not patch:
            return request
        self._node.announce(patch, config, written=False)
        messages: list[AnyMessage] = patch.messages  # type: ignore[assignment]  # no chunk class
        return request.override(messages=messages)


def _config() -> RunnableConfig:
    """The config of the node that runs; nothing outside of a graph, as in a test of hooks."""
    try:
        return get_config()
    except RuntimeError:
        return {}
