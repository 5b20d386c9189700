"""Follow the tool calls and tool messages of a graph's stream.

They show which nodes are tool nodes, so that what a model writes inside a tool is known, and
whether a run ended with tool messages: then these are its answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch._langgraph_storage import nodes_of_namespace
from langgraph_patch.history.placeholders import is_placeholder

Token: TypeAlias = tuple[BaseMessage, dict[str, Any]]

_TOOL_NODE = "tools"
"""The name that LangGraph and LangChain give to a tool node by default."""


def task_of(metadata: dict[str, Any]) -> str:
    """The namespace of the task that a message comes from; `""` if it is unknown."""
    namespace = metadata.get("langgraph_checkpoint_ns")
    return namespace if isinstance(namespace, str) else ""


class ToolResults:
    """The calls of a run, and the tool messages since the last message of a model."""

    def __init__(self) -> None:
        self._tasks: dict[str, str] = {}  # call id -> the task that made the call
        self._open: dict[str, set[str]] = {}  # call id -> the open calls of its message
        self._calling_nodes: set[str] = set()
        self._tool_nodes = {_TOOL_NODE}
        self._newest: list[Token] = []
        """The tool messages since the last message of a model."""

    def is_in_tool(self, metadata: dict[str, Any]) -> bool:
        """Whether a node, or a graph around it, is a tool node."""
        nodes = {metadata.get("langgraph_node"), *nodes_of_namespace(task_of(metadata))}
        return not nodes.isdisjoint(self._tool_nodes)

    def note_calls(self, message: AIMessage, metadata: dict[str, Any], calls: set[str]) -> None:
        """Note the calls in a chunk of a message.

        Args:
            message: The chunk.
            metadata: Its metadata.
            calls: The open calls of the same message; those of the chunk are added.
        """
        self._calling_nodes.add(metadata.get("langgraph_node") or "")
        for call in message.tool_calls:
            if call_id := call.get("id"):
                calls.add(call_id)
                self._open[call_id] = calls
                self._tasks[call_id] = task_of(metadata)

    def add(self, message: ToolMessage, token: Token) -> bool:
        """Note a tool message; return whether its task ran a tool.

        The task did so if it answers a call of another node. A node that makes calls itself, or
        through a graph inside it, is no tool node: it may answer older calls, for example with
        placeholders.
        """
        metadata, call_id = token[1], message.tool_call_id
        task = task_of(metadata)
        if not self._tool_nodes.isdisjoint(nodes_of_namespace(task)[:-1]):
            return False  # of an agent inside a tool
        self._open.get(call_id, set()).discard(call_id)
        if not is_placeholder(message):
            self._keep(token)
        node = metadata.get("langgraph_node") or ""
        made_by = self._tasks.get(call_id, task)
        if not task or node in (*self._calling_nodes, *nodes_of_namespace(made_by)):
            return False
        self._tool_nodes.add(node)
        return True

    def clear(self) -> None:
        """A model has begun a message: the tool messages before it were no answer."""
        self._newest.clear()

    def answers(self) -> Iterator[Token]:
        """The tool messages with which the run ended, if all calls beside them are answered."""
        for token in self._newest:
            message = token[0]
            if isinstance(message, ToolMessage) and not self._open.get(message.tool_call_id):
                yield token

    def _keep(self, token: Token) -> None:
        """Keep a tool message; one of a subgraph comes again as output of the node with it."""
        for place, (known, _) in enumerate(self._newest):
            # A message without an id gets one in place, when its reducer stores it.
            if known is token[0] or (known.id is not None and known.id == token[0].id):
                self._newest[place] = token
                return
        self._newest.append(token)
