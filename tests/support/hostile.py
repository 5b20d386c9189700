"""Hypothesis strategies: lists with anything in them that may be taken for messages.

Every class of LangChain's messages, their chunks, and what LangGraph accepts instead of them;
each field is valid, hostile, or of a type that it can only have if it was never validated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from langchain_core import messages as classes
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage

from langgraph_patch.history.ids import PLACEHOLDER_KEY
from support.strategies import SIGNATURES, Pick

KINDS = ("Human", "System", "Chat", "Function", "Tool", "AI")
CLASSES: Sequence[type[BaseMessage]] = (
    *(getattr(classes, f"{kind}Message{suffix}") for kind in KINDS for suffix in ("", "Chunk")),
    *(classes.RemoveMessage, BaseMessage, classes.BaseMessageChunk),
    *(AIMessage, AIMessage, AIMessage, AIMessageChunk, ToolMessage, ToolMessage),
)
"""Those that call and answer more than once: they shall meet."""

DEEP: Any = {}
for _ in range(200):
    DEEP = {"inner": [DEEP]}

TEXTS = (
    "",
    "look",
    "\x1b[2J\x1b]0;owned\x07",
    "\ud800 alone",
    "\u202egnp.exe",
    "{0.__class__} %s {name}",
    "x" * 10_000,
    "检索\x00",
    '{"a": ' * 3_000,
)
WRONG: Sequence[Any] = (
    *(None, 7, -1.5, float("nan"), True, b"\xff", (), [], {}, [None], [[]], [7, "c1"]),
    *({"a": {1, 2}}, {None: None}, object, DEEP),
)
"""What no field should hold."""

ARGS: Sequence[Any] = ({}, {"of": 1}, '{"of": 1}', '{"of": ', "", DEEP)
BLOCKS = (
    *("text", "tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call"),
    *("custom_tool_call", "tool_result", "input_json_delta", "server_tool_use", "thinking"),
    *("reasoning", "non_standard", "image", "function_call_output", "computer_call"),
)
CALLS = ("tool_call", "invalid_tool_call", "tool_call_chunk", "function")
Make = Callable[[Pick], Any]


def _one_of(options: Sequence[Any]) -> Make:
    """Mostly one of these, or a hostile text, or what is wrong."""

    def make(pick: Pick) -> Any:
        chance = pick.below(30)
        return pick(options) if chance < 26 else pick(TEXTS) if chance < 29 else pick(WRONG)

    return make


def _rarely_wrong(make: Make) -> Make:
    return lambda pick: pick(WRONG) if pick.chance(60) else make(pick)


def _list_of(make: Make, size: int = 3) -> Make:
    return _rarely_wrong(lambda pick: [make(pick) for _ in range(pick.below(size + 1))])


def _some(whole: int = 2, **fields: Make) -> Make:
    """A dict of these fields; one in `whole` has them all."""

    def make(pick: Pick) -> Any:
        every = pick.chance(whole)
        return {name: make(pick) for name, make in fields.items() if every or pick.chance(2)}

    return _rarely_wrong(make)


_text, _id, _name, _args = map(_one_of, (TEXTS, ("c1", "c1", "c2", "c3"), ("look", "wire"), ARGS))
_function = _some(name=_name, arguments=_args)
_call = _some(name=_name, args=_args, id=_id)
_raw_call = _some(id=_id, function=_function, type=_one_of(CALLS), index=_one_of((0, 1, "0")))
_calls = _list_of(lambda pick: (_raw_call if pick.chance(4) else _call)(pick))
_block = _some(
    3, type=_one_of(BLOCKS), id=_id, call_id=_id, tool_use_id=_id, name=_name, input=_args,
    args=_args, arguments=_args, text=_text, content=_text, is_error=_one_of(WRONG),
    partial_json=_text,
)  # fmt: skip
_wrapped = _some(type=lambda _: "non_standard", value=_block)
_blocks = _list_of(lambda pick: pick((_block, _block, _wrapped, _text))(pick))
_content: Make = lambda pick: (_blocks if pick.chance(2) else _text)(pick)  # noqa: E731 - a value
_marker = _some(cause=_one_of(("unknown", "failed")), look_again=_one_of((True, False)))
_extra = _some(
    9, tool_calls=_calls, function_call=_function, tool_call_id=_id, name=_name,
    finish_reason=_one_of(("stop", "length")), tool_outputs=_blocks,
    **{PLACEHOLDER_KEY: _marker, SIGNATURES: _some(c1=_text, c2=_text)},
)  # fmt: skip

FIELDS: dict[str, Make] = {
    "content": _content,
    "additional_kwargs": _extra,
    "response_metadata": _extra,
    "id": _one_of(("m1", "m2", "m3", None)),
    "name": _name,
    **dict.fromkeys(("tool_calls", "invalid_tool_calls", "tool_call_chunks"), _calls),
    "tool_call_id": _id,
    "role": _one_of(("tool", "function", "user")),
    "status": _one_of(("success", "error")),
    "artifact": _one_of(WRONG),
    "type": lambda _: "base",
}


def message(pick: Pick) -> BaseMessage:
    """A message of any class, without validation."""
    kind = pick(CLASSES)
    return kind.model_construct(**{
        name: FIELDS[name](pick)
        for name, field in kind.model_fields.items()
        if name in FIELDS and (field.is_required() or (name != "type" and pick.chance(3)))
    })  # fmt: skip


_roles = _one_of(("user", "assistant", "tool", "system", "human", "ai"))
_dict = _some(role=_roles, content=_content, tool_calls=_calls, tool_call_id=_id)
_instead = _dict, lambda pick: (_roles(pick), _content(pick)), _text, _one_of(WRONG)


def _list(seed: int, size: int, *, others: bool) -> list[Any]:
    pick = Pick(seed)
    makers = (message, message, *_instead) if others else (message,)
    return [pick(makers)(pick) for _ in range(pick.below(size + 1))]


def histories(max_size: int = 7) -> st.SearchStrategy[list[Any]]:
    """Lists of messages without validation."""
    return st.integers(0, 2**32).map(lambda seed: _list(seed, max_size, others=False))


def anything(max_size: int = 7) -> st.SearchStrategy[list[Any]]:
    """Lists in which other things stand too."""
    return st.integers(0, 2**32).map(lambda seed: _list(seed, max_size, others=True))
