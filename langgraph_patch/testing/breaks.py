"""Five ways in which a thread breaks, each around one run of a graph.

LangChain passes the callback handler of a context variable to each model, tool and node that runs
in that context. So a break needs no change of the graph, and is the same for `invoke` and
`ainvoke`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.tracers.context import register_configure_hook
from langgraph.errors import GraphInterrupt
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._text import short
from langgraph_patch.errors import GraphError

_SECONDS = 0.1
"""How long a tool waits before it breaks, so that what ran beside it is stored."""
_MISSING = 3
"""How many characters a cut takes from the arguments: the braces, and a piece of a value."""


@contextmanager
def pause() -> Iterator[None]:
    """A human is asked: a tool or a node calls `interrupt`, and the run ends.

    The thread has the message with its calls. Beside the checkpoint it has the question, and the
    result of each call that had a task of its own and is done. The next message of the human
    abandons the pause: LangGraph drops both, and the calls have no result. `Command(resume=...)`
    answers it, which is no damage.

    Raises:
        AssertionError: If nothing asked.

    Examples:
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.types import interrupt
        >>> from langgraph_patch.testing import pause
        >>> builder = StateGraph(MessagesState).add_node("ask", lambda _: interrupt("Sure?"))
        >>> graph = builder.set_entry_point("ask").compile(checkpointer=InMemorySaver())
        >>> with pause():
        ...     _ = graph.invoke({"messages": []}, {"configurable": {"thread_id": "1"}})
    """
    with _happening(_Pause(), "no tool and no node has asked a human"):
        yield


@contextmanager
def fail(tool: str | None = None, error: Exception | None = None) -> Iterator[None]:
    """A tool raises an error, and the run ends with it.

    The thread has the message with its calls. Beside the checkpoint it has the error, and the
    result of each call that had a task of its own and is done.

    Args:
        tool: The name of the tool. Default: None, the first that is called.
        error: What it raises in the place of its work. Default: a `ConnectionError`.

    Raises:
        AssertionError: If the tool is not called, or if the application handles its error: then a
            tool that fails breaks no thread.
    """
    error = error or ConnectionError("the service does not answer")
    with _happening(_Failure(tool, error), f"no error of {_named(tool)} has ended the run"):
        yield


@contextmanager
def kill(graph: CompiledStateGraph[Any, Any, Any, Any], tool: str | None = None) -> Iterator[None]:
    """The process dies when a tool has done its work, before anything of it is stored.

    The thread has the message with its calls. Of this call it has nothing: whether the tool ran,
    nobody can know. Beside the checkpoint it has the result of each other call that had a task of
    its own and was done by then.

    Args:
        graph: The graph, whose checkpointer writes nothing from then on.
        tool: The name of the tool. Default: None, the first that has done its work.

    Raises:
        AssertionError: If the tool is not called.
        GraphError: If the graph has no checkpointer.
    """
    saver: Any = getattr(graph, "checkpointer", None)
    if not hasattr(saver, "put_writes"):
        raise GraphError(
            f"kill({short(graph, 60)}): expected a graph that is compiled with a checkpointer, and "
            f"behind it the name of a tool, if it is not the first one."
        )
    death = _Death(tool, _KilledError())
    methods: dict[str, Any] = {
        **{name: partial(death.write, getattr(saver, name)) for name in ("put", "put_writes")},
        **{name: partial(death.awrite, getattr(saver, name)) for name in ("aput", "aput_writes")},
    }
    otherwise = f"{_named(tool)} has not done its work"
    with patch.multiple(saver, **methods), _happening(death, otherwise):
        yield


@contextmanager
def cut() -> Iterator[None]:
    """The stream of a `StrictModel` ends inside the arguments of the last call of a message.

    LangChain completes the arguments, and a bare graph runs the tool with them: the thread has a
    call that the model did not write, and its result. In a patched graph the tool does not run, and
    the message lists the call in `invalid_tool_calls`, with a placeholder behind it.

    Raises:
        AssertionError: If no `StrictModel` has called a tool.
    """
    with _happening(_Break(says=_cut), "no StrictModel has called a tool"):
        yield


@contextmanager
def refuse() -> Iterator[None]:
    """A `StrictModel` says nothing, and refuses the history from then on, as providers do.

    The thread has an empty message of the model. The run ends as usual; each later turn of a bare
    graph ends with status 400. A patched graph repairs the message and asks again.

    Raises:
        AssertionError: If no `StrictModel` was asked.
    """
    with _happening(_Break(says=lambda _: AIMessage("")), "no StrictModel was asked"):
        yield


# --- what happens ------------------------------------------------------------------------


def _named(tool: str | None) -> str:
    return "a tool" if tool is None else f"the tool {tool!r}"


@dataclass(eq=False)
class _Break(BaseCallbackHandler):
    """What is to happen in a run.

    Attributes:
        tool: The tool that it happens to; None for the first.
        error: How the run ends. Default: None, with no error.
        says: What a scripted model says in the place of a message. Default: None, the message.
        happened: Whether it has happened.
    """

    tool: str | None = None
    error: BaseException | None = None
    says: Callable[[Any], Any] | None = None
    happened: bool = False
    raise_error = True


class _Pause(_Break):
    def on_chain_error(self, error: BaseException, **_: Any) -> None:
        self.happened |= isinstance(error, GraphInterrupt)


class _Failure(_Break):
    def on_tool_start(self, serialized: dict[str, Any], *_: Any, **__: Any) -> None:
        if self.error and self.tool in (None, serialized["name"]):
            time.sleep(_SECONDS)
            raise self.error


class _KilledError(BaseException):
    """The process died."""


class _Death(_Break):
    is_near = False

    def on_tool_end(self, *_: Any, **of: Any) -> None:
        if self.error and self.tool in (None, of["name"]) and not self.is_near:
            self.is_near = True
            time.sleep(_SECONDS)
            self.happened = True
            raise self.error

    def write(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Write, as long as the process lives."""
        return None if self.happened else method(*args, **options)

    async def awrite(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Do the same."""
        return None if self.happened else await method(*args, **options)


def _cut(message: Any) -> Any:
    """The chunks of a message that calls tools, without the end of its last call."""
    if not getattr(message, "tool_calls", None):
        return message
    chunks = [AIMessageChunk(content=message.content, id=message.id)]
    for index, call in enumerate(message.tool_calls):
        text = json.dumps(call["args"])
        if call is message.tool_calls[-1]:
            text = text[:-_MISSING] or "{"
        piece = tool_call_chunk(name=call["name"], args=text, id=call["id"], index=index)
        chunks.append(AIMessageChunk(content="", tool_call_chunks=[piece]))
    return [*chunks, AIMessageChunk(content="", response_metadata={"finish_reason": "length"})]


_CURRENT: ContextVar[_Break | None] = ContextVar("langgraph_patch_break", default=None)
register_configure_hook(_CURRENT, inheritable=True)


def spoken(message: Any) -> Any:
    """What a scripted model says in the place of a message: a break changes one."""
    event = _CURRENT.get()
    if event is None or event.says is None or event.happened:
        return message
    said = event.says(message)
    event.happened = said is not message
    return said


@contextmanager
def _happening(event: _Break, otherwise: str) -> Iterator[None]:
    """Let something happen to the runs of a block, which may end with its error.

    Raises:
        AssertionError: If it has not happened, with the reason.
    """
    token = _CURRENT.set(event)
    try:
        yield
    except BaseException as error:
        if error is not event.error:
            raise
        event.happened = True
    finally:
        _CURRENT.reset(token)
    if not event.happened:
        raise AssertionError(f"The thread was not broken: {otherwise}.")
