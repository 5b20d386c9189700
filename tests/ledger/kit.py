"""What agents are built of: their states, models, tools and nodes."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AnyMessage
from langchain_core.tools import BaseTool
from langgraph.graph import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.chat_agent_executor import AgentState as ReactState

from langgraph_patch import arecord_tool_calls, record_tool_calls, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from ledger.model import LEDGER_TOOLS, Habits, RandomModel
from ledger.tools import make_tools
from ledger.world import World

try:
    from langgraph.channels import DeltaChannel
    from langgraph.graph.message import _messages_delta_reducer
except ImportError:  # LangGraph before DeltaChannel
    DeltaChannel = None


def merged(left: dict[str, int] | None, right: dict[str, int] | None) -> dict[str, int]:
    """Both dictionaries in one."""
    return {**(left or {}), **(right or {})}


class Plain(TypedDict, total=False):
    """A state with `add_messages`, a key that a tool writes, and one that nobody writes."""

    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[dict[str, int], merged]
    flag: bool


class Concatenated(TypedDict, total=False):
    """The same, with a plain sum of lists."""

    messages: Annotated[list[AnyMessage], operator.add]
    notes: Annotated[dict[str, int], merged]
    flag: bool


STATES: dict[str, Any] = {"plain": Plain, "concatenated": Concatenated}

if DeltaChannel is not None:

    class Delta(TypedDict, total=False):
        """The same, stored as differences."""

        messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
        notes: Annotated[dict[str, int], merged]
        flag: bool

    STATES["delta"] = Delta


class ReactPlain(ReactState):
    """The state for `create_react_agent`."""

    notes: Annotated[dict[str, int], merged]
    flag: bool


class AgentPlain(AgentState[Any]):
    """The state for `create_agent`."""

    notes: Annotated[dict[str, int], merged]
    flag: bool


@dataclass
class Kit:
    """What an agent is built of.

    Attributes:
        world: The log.
        habits: How its models write tool calls.
        saver: The checkpointer.
        wrapped: Whether the graph is patched; if not, it is bare.
        asynchronous: Whether the tools are coroutines.
        state: The name of the state, in `STATES`, for hand-built graphs.
        retry: Whether the tools node has a `RetryPolicy`.
        handle_errors: Whether a `ToolNode` turns errors into tool messages.
        repaired: The id of each call that was repaired -> `recovered`, or the last cause.
    """

    world: World
    habits: Habits
    saver: Any
    wrapped: bool = True
    asynchronous: bool = False
    state: str = "plain"
    retry: bool = False
    handle_errors: bool = False
    repaired: dict[str, str] = field(default_factory=dict)

    def model(self, agent: str, **tools: int) -> RandomModel:
        """The model of that agent, and how often it calls which tools."""
        return RandomModel(agent=agent, world=self.world, habits=self.habits, tools=tools)

    def tools(self, agent: str, *names: str, asks: bool = True) -> list[BaseTool]:
        """The tools of that agent; all, if no names follow."""
        return make_tools(
            self.world, agent, *(names or LEDGER_TOOLS), asynchronous=self.asynchronous, asks=asks
        )

    def node(self, tools: list[BaseTool], *, recorded: bool) -> ToolNode:
        """A ToolNode for them."""
        options: dict[str, Any] = {"handle_tool_errors": True} if self.handle_errors else {}
        if recorded:
            options |= {"wrap_tool_call": record_tool_calls, "awrap_tool_call": arecord_tool_calls}
        return ToolNode(tools, **options)

    def patch(self, graph: Any, **options: Any) -> Any:
        """The graph, patched if it is to be."""
        return with_patching(graph, on_patch=self._note, **options) if self.wrapped else graph

    def middleware(self) -> list[AgentMiddleware[Any, Any, Any]]:
        """The library's middleware, if the graph is to be patched."""
        return [PatchToolCallsMiddleware(on_patch=self._note)] if self.wrapped else []

    def _note(self, patch: Any, _: Any) -> None:
        for change in patch.changes:
            if change.kind in {"recovered", "inserted"}:
                self.repaired[change.tool_call_id] = change.cause or "recovered"

    def watch(self, agent: str) -> AgentMiddleware[Any, Any, Any]:
        """A middleware that shows the log the state of the model node."""
        return Watch(self.world, agent)


class Watch(AgentMiddleware[Any, Any, Any]):
    """Shows the log the state that a model node received. It changes nothing."""

    def __init__(self, world: World, agent: str) -> None:
        super().__init__()
        self.world, self.agent = world, agent

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.world.observe(self.agent, request.state, request.messages)
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self.world.observe(self.agent, request.state, request.messages)
        return await handler(request)
