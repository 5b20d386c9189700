"""Hypothesis strategies: lists with anything in them that may be taken for messages.

Every class of LangChain's messages, their chunks, and what LangGraph accepts instead of them;
each field is valid, hostile, or of a type that it can only have if it was never validated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    BaseMessageChunk,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)

CLASSES: tuple[type[BaseMessage], ...] = (
    AIMessage,
    AIMessage,
    AIMessage,
    AIMessageChunk,
    ToolMessage,
    ToolMessage,
    ToolMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    SystemMessage,
    SystemMessageChunk,
    RemoveMessage,
    BaseMessage,
    BaseMessageChunk,
)
"""Those that call and answer more than once: they shall meet."""

TEXTS = (
    "",
    "look",
    "c1",
    "\x1b[2J\x1b]0;owned\x07",
    "\ud800 alone",
    "\u202egnp.exe",
    "{0.__class__} %s {name}",
    "x" * 10_000,
    "检索\x00",
    '{"a": ' * 3_000,
)

DEEP: Any = {}
for _ in range(200):
    DEEP = {"inner": [DEEP]}

IDS = ("c1", "c1", "c2", "c3")


def wrong() -> st.SearchStrategy[Any]:
    """What no field should hold."""
    return st.sampled_from((None, 7, -1.5, float("nan"), True, b"\xff", (), [], {}, [None], [[]],
                            {"a": {1, 2}}, {None: None}, [7, "c1"], object, DEEP))  # fmt: skip


def text() -> st.SearchStrategy[str]:
    """Any text."""
    return st.sampled_from(TEXTS) | st.text(max_size=5)


def mostly(valid: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Sound, or hostile, or wrong; in this order of likelihood."""
    return st.integers(0, 29).flatmap(lambda n: valid if n < 25 else text() if n < 29 else wrong())


def rarely_wrong(valid: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Sound, or wrong."""
    return st.integers(0, 59).flatmap(lambda n: valid if n < 59 else wrong())


def ids() -> st.SearchStrategy[Any]:
    """Ids of calls, which mostly occur again elsewhere."""
    return mostly(st.sampled_from(IDS))


def names() -> st.SearchStrategy[Any]:
    """Names of tools."""
    return mostly(st.sampled_from(("look", "wire")))


def args() -> st.SearchStrategy[Any]:
    """Arguments of calls, in the forms that integrations use."""
    return mostly(st.sampled_from(({}, {"of": 1}, '{"of": 1}', '{"of": ', "", DEEP)))


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A dict of these fields, any of which may lack."""
    return st.fixed_dictionaries({}, optional=fields)


def calls() -> st.SearchStrategy[Any]:
    """What may stand in `tool_calls` and its like."""
    kinds = st.sampled_from(("tool_call", "invalid_tool_call", "tool_call_chunk", "function"))
    whole = st.fixed_dictionaries({"name": names(), "args": args(), "id": ids()})
    index = st.sampled_from((0, 1, None, "0"))
    part = some(name=names(), args=args(), id=ids(), type=kinds, index=index)
    function = some(name=names(), arguments=args())
    return rarely_wrong(
        st.lists(rarely_wrong(whole | part | some(id=ids(), function=function)), max_size=3)
    )


BLOCKS = (
    "text", "tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call",
    "custom_tool_call", "tool_result", "input_json_delta", "server_tool_use", "thinking",
    "reasoning", "non_standard", "image", "function_call_output",
)  # fmt: skip


def blocks() -> st.SearchStrategy[Any]:
    """What may stand in a list of content."""
    plain = some(
        type=mostly(st.sampled_from(BLOCKS)),
        id=ids(), call_id=ids(), tool_use_id=ids(), tool_call_id=ids(), name=names(),
        input=args(), args=args(), arguments=args(), text=text(), content=mostly(text()),
        is_error=wrong(), partial_json=text(), index=st.sampled_from((0, 1)),
    )  # fmt: skip
    wrapped = st.fixed_dictionaries({"type": st.just("non_standard"), "value": rarely_wrong(plain)})
    return rarely_wrong(plain | wrapped | text())


def contents() -> st.SearchStrategy[Any]:
    """Contents of messages."""
    return rarely_wrong(text() | st.lists(blocks(), max_size=4))


def extras() -> st.SearchStrategy[Any]:
    """`additional_kwargs` and metadata."""
    function = some(name=names(), arguments=args())
    return rarely_wrong(
        some(
            tool_calls=calls(),
            function_call=rarely_wrong(function),
            tool_call_id=ids(),
            name=names(),
            langgraph_patch=rarely_wrong(
                some(cause=mostly(st.sampled_from(("unknown", "failed"))))
            ),
            __gemini_function_call_thought_signatures__=rarely_wrong(some(c1=text(), c2=text())),
            finish_reason=mostly(st.sampled_from(("stop", "length"))),
            output_version=mostly(st.just("v1")),
            model_provider=mostly(st.sampled_from(("anthropic", "openai"))),
        )
    )


FIELDS: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
    "content": contents,
    "additional_kwargs": extras,
    "response_metadata": extras,
    "id": lambda: mostly(st.sampled_from(("m1", "m2", "m3", None))),
    "name": names,
    "tool_calls": calls,
    "invalid_tool_calls": calls,
    "tool_call_chunks": calls,
    "tool_call_id": ids,
    "role": lambda: mostly(st.sampled_from(("tool", "function", "user"))),
    "status": lambda: mostly(st.sampled_from(("success", "error"))),
    "artifact": wrong,
    "usage_metadata": lambda: rarely_wrong(st.none()),
    "chunk_position": lambda: rarely_wrong(st.sampled_from((None, "last"))),
    "type": lambda: st.just("base"),
}


@st.composite
def messages(draw: st.DrawFn, classes: tuple[type[BaseMessage], ...] = CLASSES) -> BaseMessage:
    """A message of any class, without validation."""
    kind = draw(st.sampled_from(classes))
    value = {
        name: draw(FIELDS[name]())
        for name, field in kind.model_fields.items()
        if name in FIELDS and (name != "type" or field.is_required())
        if field.is_required() or draw(st.integers(0, 2)) == 0
    }
    return kind.model_construct(**value)


def instead() -> st.SearchStrategy[Any]:
    """What LangGraph accepts for a message, or might be taken for one."""
    roles = mostly(st.sampled_from(("user", "assistant", "tool", "system", "human", "ai")))
    dicts = some(role=roles, type=roles, content=contents(), tool_calls=calls(), id=ids(),
                 tool_call_id=ids(), additional_kwargs=extras())  # fmt: skip
    return dicts | st.tuples(roles, contents()) | text() | wrong()


def histories(max_size: int = 7) -> st.SearchStrategy[list[Any]]:
    """Lists of messages without validation."""
    return st.lists(messages(), max_size=max_size)


def anything(max_size: int = 7) -> st.SearchStrategy[list[Any]]:
    """Lists in which other things stand too."""
    return st.lists(messages() | instead(), max_size=max_size)
