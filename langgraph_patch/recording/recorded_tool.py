"""`recorded_tool`: a tool that records its calls in loops that the application writes itself.

The tool gets a subclass of its own class, made once for each class, so that it stays what it was
for `isinstance`, `bind_tools`, its schema and its callbacks. Only `invoke` and `ainvoke` differ:
a tool call runs as a LangGraph task, as `record_tool_calls` runs those of a `ToolNode`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from langgraph.runtime import get_runtime

from langgraph_patch._langgraph import (
    can_start_tasks,
    carries_call,
    checkpointer_of,
    child_config,
    current_config,
    node_of,
    state_of,
)
from langgraph_patch._langgraph_tasks import task_info
from langgraph_patch.errors import OptionError
from langgraph_patch.recording.call_messages import find_index, find_message
from langgraph_patch.recording.node_runs import NodeRun
from langgraph_patch.recording.recorded_call import RecordedCall, refuse_uncounted_attempts
from langgraph_patch.recording.records import CallKey
from langgraph_patch.recording.wrappers import arun_recorded, is_being_recorded, run_recorded

ToolT = TypeVar("ToolT", bound=BaseTool)


def recorded_tool(tool: ToolT) -> ToolT:
    """Make a tool that keeps the result of each of its calls through a pause, a retry or a crash.

    For loops written by hand, such as `for call in message.tool_calls: tool.invoke(call)`. If one
    call interrupts, or the process is killed, LangGraph runs the whole node or `@entrypoint` again,
    and the tools of the finished calls with it. A call of a recorded tool is a task of its own: its
    start is marked, its result is stored at once, and it is read back when the loop runs again.
    For a `ToolNode` pass `record_tool_calls` to it, or use `with_patching(graph, record=True)`.

    A call is recorded if the input of `invoke` or `ainvoke` is a tool call (a dict with
    `"type": "tool_call"`, as those in `message.tool_calls`) and the tool runs inside a node, an
    `@entrypoint` or a `@task`. With plain arguments, and outside of a graph, it is the bare tool.

    What `record_tool_calls` guarantees and its limits hold here too, and further:

    - All starts of one request (id, name and arguments) in a run of the node count as tries of one
      call. If the first raised and a later one finished, the first gets its result when the node
      runs again. A call of which no start finished runs again.
    - A result is recorded as that of the message that makes the call, if the state of the node has
      this message; otherwise as that of the id, the name and the arguments. Arguments that the
      loop injects (`InjectedState`, `ToolRuntime`, ...) do not count.
    - Two calls that wait for an answer at the same time (`asyncio.gather`, `batch`) must be
      resumed by interrupt id. If they start in another order when the node runs again, as threads
      may, they ask again: an answer never reaches another call.
    - A call without a start mark is reported as `unknown`, not as `not_started`: the loop may have
      run a tool that is not recorded.

    Args:
        tool: A tool: what the decorator `@tool` returns, or an instance of any `BaseTool`. It is
            not changed.

    Returns:
        A copy of the tool with the same class, name, description and schema; `tool` itself if it
        is recorded already. Its `invoke` and `ainvoke` raise a `RecordingError` if the tool was
        not run, because the checkpointer failed, because no worker was free (raise
        `max_concurrency`), or because `invoke` was called in an event loop (await `ainvoke`).

    Raises:
        OptionError: If `tool` is no `BaseTool`.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langchain_core.tools import tool
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.func import entrypoint
        >>> from langgraph.types import Command, interrupt
        >>> from langgraph_patch import recorded_tool
        >>> sent = []
        >>> @recorded_tool
        ... @tool
        ... def send_email(to: str) -> str:
        ...     "Send an email."
        ...     sent.append(to)
        ...     return f"sent to {to}"
        >>> call = {"name": "send_email", "args": {"to": "bob"}, "id": "c1", "type": "tool_call"}
        >>> @entrypoint(checkpointer=InMemorySaver())
        ... def agent(question):
        ...     result = send_email.invoke(call)
        ...     return [result.content, interrupt("Anything else?")]
        >>> config = {"configurable": {"thread_id": "1"}}
        >>> _ = agent.invoke("Write to bob.", config)
        >>> agent.invoke(Command(resume="no"), config), sent
        (['sent to bob', 'no'], ['bob'])
    """
    if not isinstance(tool, BaseTool):
        raise OptionError(
            f"{tool!r:.200} is a {type(tool).__name__}: expected a BaseTool. Make a function a "
            f"tool first, with the decorator @tool of langchain_core.tools."
        )
    if _is_recorded(tool):
        return tool
    return cast("ToolT", _of_class(tool, _class_for(type(tool))))


def _is_recorded(tool: BaseTool) -> bool:
    return hasattr(type(tool), "__langgraph_patch_base__")


def _of_class(tool: BaseTool, kind: type[BaseTool]) -> BaseTool:
    copied = tool.model_copy()
    object.__setattr__(copied, "__class__", kind)
    return copied


@cache
def _class_for(base: type[BaseTool]) -> type[BaseTool]:
    """The subclass of a tool class. It has its name, since callbacks and events show the name."""
    namespace = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__langgraph_patch_base__": base,
        "__reduce_ex__": _reduce,
        "invoke": _invoke(base),
        "ainvoke": _ainvoke(base),
    }
    make: Any = type(base)  # pydantic's metaclass
    return cast("type[BaseTool]", make(base.__name__, (base,), namespace))


def _invoke(base: type[BaseTool]) -> Callable[..., Any]:
    @wraps(base.invoke)
    def invoke(self: BaseTool, input: Any, config: Any = None, **kwargs: Any) -> Any:
        def bare(tool_config: Any) -> Any:
            return base.invoke(self, input, tool_config, **kwargs)

        with _loop_context(input, config):
            call = _loop_call(self, input, config)
            return bare(config) if call is None else run_recorded(call, _execute(bare, config))

    return invoke


def _ainvoke(base: type[BaseTool]) -> Callable[..., Any]:
    @wraps(base.ainvoke)
    async def ainvoke(self: BaseTool, input: Any, config: Any = None, **kwargs: Any) -> Any:
        def bare(tool_config: Any) -> Any:
            return base.ainvoke(self, input, tool_config, **kwargs)

        with _loop_context(input, config):
            call = _loop_call(self, input, config)
            if call is None:
                return await bare(config)
            return await arun_recorded(call, _execute(bare, config))

    return ainvoke


def _reduce(self: BaseTool, _protocol: object) -> tuple[Any, ...]:
    base = cast("Any", type(self)).__langgraph_patch_base__
    return recorded_tool, (_of_class(self, base),)


# --- one call ----------------------------------------------------------------------------------


@dataclass
class _Runtime:
    """What a `RecordedCall` needs of a `ToolRuntime`."""

    config: RunnableConfig


@dataclass
class _Request:
    """What a `RecordedCall` needs of a `ToolCallRequest`."""

    tool_call: ToolCall
    runtime: _Runtime


def _loop_context(call: object, config: Any) -> AbstractContextManager[None]:
    """The context of the node, in a thread that does not have it but got the node's config."""
    if config and _is_tool_call(call) and can_start_tasks(config) and not current_config():
        return child_config(config)
    return nullcontext()


def _loop_call(tool: BaseTool, call: Any, config: Any) -> RecordedCall | None:
    """The call to record; None if nothing is to be recorded."""
    node = current_config()
    if not _is_tool_call(call) or not can_start_tasks(node):
        return None
    if is_being_recorded(call["id"], ensure_config(config)):
        return None
    saver, info = checkpointer_of(node), task_info(node, get_runtime())
    has_own_task = carries_call(node, call["id"])
    if info is None or (has_own_task and saver is None):
        return None
    refuse_uncounted_attempts(info, call["id"])
    message_id, siblings, index = _find_call(tool, call, state_of(node))
    made = siblings[index]
    node_run = NodeRun.of(node)
    return RecordedCall(
        request=cast("Any", _Request(made, _Runtime(cast("RunnableConfig", {**node})))),
        info=info,
        configurable=node.get("configurable", {}),
        saver=saver,
        has_own_task=has_own_task,
        key=CallKey(message_id, made["id"], made["name"], node_of(node) or "", info.task_id),
        siblings=siblings,
        index=index,
        node_run=node_run,
        run=node_run.tool_node_run((info.node_attempt, "loop"), None, node_run),
        is_in_loop=True,
    )


def _find_call(
    tool: BaseTool, call: ToolCall, state: dict[str, Any]
) -> tuple[str | None, list[ToolCall], int]:
    """The id of the message that makes a call, if known, its calls, and the index of the call.

    If no message of the state makes it, the call itself, as the model wrote it, is the only one.
    """
    injected = _injected_args(tool)
    args = {name: value for name, value in call["args"].items() if name not in injected}
    made = cast("ToolCall", {**call, "args": args})
    message_id, siblings = find_message(state, made)
    index = find_index(siblings, made)
    return (message_id, siblings, index) if index is not None else (message_id, [made], 0)


def _is_tool_call(call: object) -> bool:
    return isinstance(call, dict) and call.get("type") == "tool_call"


_INJECTED: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()
"""What `_injected_args` found, by schema; by class if the schema is made of the `_run` method."""


def _injected_args(tool: BaseTool) -> frozenset[str]:
    """The arguments of a tool that the model does not write."""
    key = type(tool) if tool.args_schema is None else tool.args_schema
    if not isinstance(key, type):  # a JSON schema has what the model writes
        return frozenset()
    if key not in _INJECTED:
        every: dict[str, Any] = getattr(tool.get_input_schema(), "model_fields", {})
        own: dict[str, Any] = getattr(tool.tool_call_schema, "model_fields", every)
        _INJECTED[key] = frozenset(every.keys() - own.keys())
    return _INJECTED[key]


def _execute(bare: Callable[[Any], Any], config: Any) -> Callable[[Any], Any]:
    """Run the bare tool with the interrupts and the namespace of the task that records it.

    The rest of its config is that of the node, so that callbacks and streams show it there.
    """
    ensured = ensure_config(config)

    def execute(request: Any) -> Any:
        own = request.runtime.config["configurable"]
        configurable = {**ensured.get("configurable", {}), **own}
        return bare({**ensured, "configurable": configurable})

    return execute
