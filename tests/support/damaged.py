"""Broken histories: every failure mode that is a history, in every shape of an AI message.

`DAMAGED` maps a name to a history. The name begins with the number of the failure mode; behind an
`@` is the shape of the AI messages (`string` is left out):

- `string`: the content is a text, the calls stand in `tool_calls` alone;
- `anthropic`: the calls stand in `tool_use` blocks too;
- `responses`: in `function_call` items, each with a reasoning item before it;
- `v1`: in langchain's standard blocks;
- `gemini`: their thought signatures stand in `additional_kwargs`, under the call's id.

Each message has an id, and no two histories share a message object. `carried_by(name)` says which
wires can carry the history's content at all, whatever is done to its calls.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from support.wires import WIRES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

History = list[BaseMessage]

SIGNATURES = "__gemini_function_call_thought_signatures__"
SHAPES = ("string", "anthropic", "responses", "v1", "gemini")

_PROVIDERS = {"anthropic": "anthropic", "responses": "openai", "gemini": "google_genai"}


class Call:
    """What a model asked for: a call, or (with `raw`) a call with truncated arguments."""

    def __init__(self, id: str | None, name: str = "look", raw: str | None = None) -> None:  # noqa: A002 - it is the call's id
        self.id, self.name, self.raw = id, name, raw
        self.args: dict[str, Any] = {} if raw else {"of": id}

    def block(self, shape: str) -> dict[str, Any]:
        """The content block in which a provider of this shape writes the call."""
        if shape == "anthropic":
            block = {"type": "tool_use", "id": self.id, "name": self.name, "input": self.args}
            return block | ({"partial_json": self.raw} if self.raw else {})
        if shape == "responses":
            return {
                "type": "function_call",
                "id": f"fc_{self.id}",
                "call_id": self.id,
                "name": self.name,
                "arguments": self.raw or json.dumps(self.args),
            }
        if self.raw:
            return {"type": "invalid_tool_call", **self.invalid()}
        return {"type": "tool_call", "id": self.id, "name": self.name, "args": self.args}

    def invalid(self) -> dict[str, Any]:
        """The call as an entry of `invalid_tool_calls`."""
        return {"id": self.id, "name": self.name, "args": self.raw, "error": "cut off"}


def human(text: str, id: str) -> HumanMessage:  # noqa: A002 - as everywhere in langchain
    """A user's message."""
    return HumanMessage(text, id=id)


def ai(shape: str, id: str, *calls: Call) -> AIMessage:  # noqa: A002 - as everywhere in langchain
    """A model's message with these calls, as a provider of this shape leaves it."""
    content: str | list[Any] = "" if shape == "gemini" else "let me see"
    if shape in ("anthropic", "responses", "v1"):
        content = [{"type": "text", "text": "let me see"}]
        content += [call.block(shape) for call in calls]
    if shape == "responses":
        content.insert(0, {"type": "reasoning", "id": f"rs_{id}", "summary": []})
    metadata = {"model_provider": _PROVIDERS[shape]} if shape in _PROVIDERS else {}
    if shape == "v1":
        metadata = {"model_provider": "anthropic", "output_version": "v1"}
    kwargs: dict[str, Any] = {}
    if shape == "gemini":
        kwargs[SIGNATURES] = {call.id: "c2lnbmF0dXJl" for call in calls if call.id}
    return AIMessage(
        content,
        id=id,
        additional_kwargs=kwargs,
        response_metadata=metadata,
        tool_calls=[
            {"name": call.name, "args": call.args, "id": call.id} for call in calls if not call.raw
        ],
        invalid_tool_calls=[call.invalid() for call in calls if call.raw],
    )


def result(text: str, call_id: str, **fields: Any) -> ToolMessage:
    """A tool's answer."""
    return ToolMessage(text, tool_call_id=call_id, id=f"t-{text}", **fields)


def placeholder(call_id: str) -> ToolMessage:
    """An answer that an earlier repair made up."""
    mark = {PLACEHOLDER_KEY: {"cause": "unknown"}}
    return result("made up", call_id, additional_kwargs=mark, status="error")


def _asked(shape: str, *calls: Call) -> History:
    """A question, and a model's message with these calls."""
    return [human("hi", "h1"), ai(shape, "a1", *calls)]


_CUT = '{"of": "c'
_LONG = "call_" + 40 * "x"

# Damage that any shape of AI message can have.
_SHAPED: Mapping[str, Callable[[str], History]] = {
    "F1-new-message": lambda shape: [*_asked(shape, Call("c1")), human("never mind", "h2")],
    "F1-still-pending": lambda shape: [*_asked(shape, Call("c1"), Call("c2")), result("r1", "c1")],
    "F1-answered-by-hand": lambda shape: [
        *_asked(shape, Call("c1")),
        AIMessage("by hand", id="a2"),
        human("more", "h2"),
        AIMessage("done", id="a3"),
        human("thanks", "h3"),
    ],
    "F2-sibling-lost": lambda shape: [
        *_asked(shape, Call("c1"), Call("c2", "wire"), Call("c3", "boom")),
        result("r1", "c1"),
        human("never mind", "h2"),
    ],
    "F2-second-of-two-alike": lambda shape: [
        *_asked(shape, Call("c1"), Call("c2")),
        result("r2", "c2"),
        human("never mind", "h2"),
    ],
    "F6-steering-message": lambda shape: [
        *_asked(shape, Call("c1")),
        human("steer", "h2"),
        result("r1", "c1"),
        human("go on", "h3"),
    ],
    "F6-steering-between-siblings": lambda shape: [
        *_asked(shape, Call("c1"), Call("c2")),
        result("r1", "c1"),
        human("steer", "h2"),
        result("r2", "c2"),
    ],
    "F6-streamed-text": lambda shape: [
        *_asked(shape, Call("c1")),
        AIMessage("one moment", id="a2"),
        result("r1", "c1"),
        human("go on", "h2"),
    ],
    "F6-reminder": lambda shape: [
        *_asked(shape, Call("c1")),
        SystemMessage("be brief", id="s1"),
        result("r1", "c1"),
        human("go on", "h2"),
    ],
    "F6-result-before-call": lambda shape: [
        human("hi", "h1"),
        result("r1", "c1"),
        ai(shape, "a1", Call("c1")),
        human("go on", "h2"),
    ],
    "F8-two-handoffs": lambda shape: [
        *_asked(shape, Call("c1", "transfer_to_bob"), Call("c2", "transfer_to_eve")),
        result("r2", "c2"),
    ],
    "F9-cut-arguments": lambda shape: [*_asked(shape, Call("c1", raw=_CUT)), human("hello?", "h2")],
    "F9-cut-arguments-answered": lambda shape: [
        *_asked(shape, Call("c1", raw=_CUT)),
        result("r1", "c1", status="error"),
        human("hello?", "h2"),
    ],
    "F9-cut-arguments-beside-a-call": lambda shape: [
        *_asked(shape, Call("c1"), Call("c2", raw=_CUT)),
        result("r1", "c1"),
        human("hello?", "h2"),
    ],
    "F11-id-used-again": lambda shape: [
        *_asked(shape, Call("look:0")),
        result("r1", "look:0"),
        human("again", "h2"),
        ai(shape, "a2", Call("look:0")),
        human("never mind", "h3"),
    ],
    "F11-id-used-again-answered": lambda shape: [
        *_asked(shape, Call("look:0")),
        result("r1", "look:0"),
        human("again", "h2"),
        ai(shape, "a2", Call("look:0")),
        result("r2", "look:0"),
        human("thanks", "h3"),
    ],
    "F12-id-none": lambda shape: [*_asked(shape, Call(None)), human("never mind", "h2")],
    "F12-id-empty": lambda shape: [
        *_asked(shape, Call("")),
        result("r1", ""),
        human("thanks", "h2"),
    ],
    "F12-id-twice": lambda shape: [
        *_asked(shape, Call("c1"), Call("c1", "wire")),
        result("r1", "c1", name="look"),
        result("r2", "c1", name="wire"),
        human("thanks", "h2"),
    ],
    "F12-id-twice-one-result": lambda shape: [
        *_asked(shape, Call("c1"), Call("c1", "wire")),
        result("r1", "c1", name="look"),
        human("thanks", "h2"),
    ],
    "F12-result-under-a-siblings-id": lambda shape: [
        *_asked(shape, Call("c1"), Call("c2")),
        result("r1", "c1"),
        result("r2", "c1"),
        human("thanks", "h2"),
    ],
    "F12-id-too-long": lambda shape: [
        *_asked(shape, Call(_LONG)),
        result("r1", _LONG),
        human("thanks", "h2"),
    ],
    "F12-id-of-500": lambda shape: [
        *_asked(shape, Call(500 * "x"), Call("c2")),
        result("r1", 500 * "x"),
        result("r2", "c2"),
        human("thanks", "h2"),
    ],
    "F12-name-empty": lambda shape: [
        *_asked(shape, Call("c1", "")),
        result("r1", "c1"),
        human("thanks", "h2"),
    ],
    "F12-name-odd": lambda shape: [
        *_asked(shape, Call("c1", "look it up!"), Call("c2", 70 * "n")),
        result("r1", "c1", name="look it up!"),
        result("r2", "c2"),
        human("thanks", "h2"),
    ],
    "F13-two-results": lambda shape: [
        *_asked(shape, Call("c1")),
        result("r1", "c1"),
        result("r2", "c1"),
        human("thanks", "h2"),
    ],
    "F13-late-real-result": lambda shape: [
        *_asked(shape, Call("c1")),
        placeholder("c1"),
        human("go on", "h2"),
        result("r1", "c1"),
    ],
    "F29-function-message": lambda shape: [
        *_asked(shape, Call("c1")),
        FunctionMessage("r1", name="look", id="f1"),
        human("thanks", "h2"),
    ],
    "F29-tool-role": lambda shape: [
        *_asked(shape, Call("c1")),
        ChatMessage("r1", role="tool", id="x1"),
        human("thanks", "h2"),
    ],
    "F29-function-role": lambda shape: [
        *_asked(shape, Call("c1")),
        ChatMessage("r1", role="function", id="x1"),
        human("thanks", "h2"),
    ],
    "F29-result-blocks": lambda shape: [
        *_asked(shape, Call("c1"), Call("c2")),
        HumanMessage(
            [
                {"type": "tool_result", "tool_use_id": "c1", "content": "r1"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "r2"},
            ],
            id="h2",
        ),
        human("thanks", "h3"),
    ],
    "F29-result-blocks-and-text": lambda shape: [
        *_asked(shape, Call("c1")),
        HumanMessage(
            [
                {"type": "text", "text": "here it is"},
                {"type": "tool_result", "tool_use_id": "c1", "content": "r1"},
            ],
            id="h2",
        ),
        human("thanks", "h3"),
    ],
    "F29-human-with-tool-call-id": lambda shape: [
        *_asked(shape, Call("c1")),
        HumanMessage("r1", id="h2", additional_kwargs={"tool_call_id": "c1"}),
        human("thanks", "h3"),
    ],
    "F29-human-talks-about-it": lambda shape: [
        *_asked(shape, Call("c1")),
        human("the tool returned r1", "h2"),
    ],
    "mixed-used-again-and-misplaced": lambda shape: [
        result("r0", "gone"),
        human("hi", "h1"),
        ai(shape, "a1", Call("c1"), Call("c2", "")),
        human("steer", "h2"),
        result("r1", "c1"),
        AIMessage("hm", id="a2"),
        human("and?", "h3"),
        ai(shape, "a3", Call("c1"), Call(None)),
        result("r2", "c1"),
        human("thanks", "h4"),
    ],
    "mixed-wrong-role-and-cut": lambda shape: [
        *_asked(shape, Call("c1"), Call("c2", raw=_CUT), Call(_LONG)),
        FunctionMessage("r1", name="look", id="f1"),
        human("steer", "h2"),
        result("r2", _LONG),
        result("r3", _LONG),
        human("thanks", "h3"),
    ],
}


def _answerless(content: list[Any], provider: str | None = None, **fields: Any) -> History:
    """A question, a model's message with this content and no `tool_calls`, the next question."""
    metadata = {"model_provider": provider} if provider else {}
    model = AIMessage(content, id="a1", response_metadata=metadata)
    return [human("hi", "h1"), model.model_copy(update=fields), human("never mind", "h2")]


_THINKING = {"type": "thinking", "thinking": "which?", "signature": "c2lnbmF0dXJl"}
_REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
_SERVER_CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
_SERVER_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
_CUSTOM = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "sh", "input": "ls"}
_RAW = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def _stored_chunk(raw: str) -> AIMessageChunk:
    """A streamed message, cut, merged and stored as it is: langchain finds its call valid."""
    call = {"name": "delete_records", "args": raw, "id": "c1", "index": 0}
    first = AIMessageChunk("", id="a1", tool_call_chunks=[call])
    return first + AIMessageChunk("", chunk_position="last")


# Damage that is a shape.
_SINGLE: Mapping[str, History] = {
    "F7-orphan": [human("hi", "h1"), result("r1", "gone"), human("thanks", "h2")],
    "F7-trimmed-front": [
        result("r1", "c1"),
        result("r2", "c2"),
        AIMessage("done", id="a1"),
        human("thanks", "h1"),
    ],
    "F10-tool-use": _answerless([Call("c1").block("anthropic")], "anthropic"),
    "F10-tool-use-no-provider": _answerless([Call("c1").block("anthropic")]),
    "F10-tool-use-thinking": _answerless([_THINKING, Call("c1").block("anthropic")], "anthropic"),
    "F10-function-call": _answerless([Call("c1").block("responses")], "openai"),
    "F10-function-call-reasoning": _answerless(
        [_REASONING, Call("c1").block("responses")], "openai"
    ),
    "F10-standard-block": _answerless(
        [Call("c1").block("v1")],
        response_metadata={"output_version": "v1", "model_provider": "anthropic"},
    ),
    "F10-invalid-block": _answerless(
        [Call("c1", raw=_CUT).block("v1")],
        response_metadata={"output_version": "v1", "model_provider": "anthropic"},
    ),
    "F10-block-and-another-call": _answerless(
        [Call("c1").block("anthropic")],
        "anthropic",
        tool_calls=[{"name": "wire", "args": {}, "id": "c2", "type": "tool_call"}],
    ),
    "F10-raw-tool-calls": _answerless("", additional_kwargs={"tool_calls": [_RAW]}),
    "F10-custom-tool-call": _answerless([_CUSTOM], "openai"),
    "F10-custom-tool-call-known": _answerless(
        [_CUSTOM],
        "openai",
        tool_calls=[{"name": "sh", "args": {"__arg1": "ls"}, "id": "c1", "type": "tool_call"}],
    ),
    "F10-custom-tool-call-standard": _answerless(
        [{"type": "non_standard", "value": _CUSTOM}],
        response_metadata={"output_version": "v1", "model_provider": "openai"},
    ),
    "F9-nothing-known": _answerless(
        "", invalid_tool_calls=[{"id": None, "name": None, "args": None, "error": "cut off"}]
    ),
    "F9-text-in-a-block": _answerless(
        [{"type": "tool_use", "id": "c1", "name": "look", "input": _CUT}],
        "anthropic",
        invalid_tool_calls=[{"id": "c1", "name": "look", "args": _CUT, "error": "cut off"}],
    ),
    "F25-stored-chunk": [
        human("hi", "h1"),
        _stored_chunk('{"target": "users"'),
        human("hello?", "h2"),
    ],
    "F25-stored-chunk-answered": [
        human("hi", "h1"),
        _stored_chunk('{"target": "users"'),
        result("r1", "c1"),
        human("hello?", "h2"),
    ],
    "F25-left-over-delta": _answerless(
        [
            {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
            {"type": "input_json_delta", "partial_json": _CUT, "index": 1},
        ],
        "anthropic",
    ),
    "F25-left-over-chunk-block": _answerless(
        [{"type": "tool_call_chunk", "id": "c1", "name": "look", "args": _CUT, "index": 0}],
        response_metadata={"output_version": "v1", "model_provider": "anthropic"},
        invalid_tool_calls=[{"id": "c1", "name": "look", "args": _CUT, "error": "cut off"}],
    ),
    "F26-thinking": _answerless(
        [_THINKING, Call("c1").block("anthropic")],
        "anthropic",
        tool_calls=[{"name": "look", "args": {"of": "c1"}, "id": "c1", "type": "tool_call"}],
    ),
    "F27-server-tool": _answerless(
        [_SERVER_CALL, _SERVER_RESULT, {"type": "text", "text": "found"}], "anthropic"
    ),
    "F27-server-tool-beside-a-call": _answerless(
        [_SERVER_CALL, _SERVER_RESULT, Call("c1").block("anthropic")],
        "anthropic",
        tool_calls=[{"name": "look", "args": {"of": "c1"}, "id": "c1", "type": "tool_call"}],
    ),
    "F27-server-tool-still-running": _answerless([_SERVER_CALL], "anthropic"),
    "F29-legacy-function-call": [
        human("hi", "h1"),
        AIMessage(
            "", id="a1", additional_kwargs={"function_call": {"name": "look", "arguments": "{}"}}
        ),
        FunctionMessage("r1", name="look", id="f1"),
        human("thanks", "h2"),
    ],
}

DAMAGED: dict[str, History] = dict(_SINGLE)
for _name, _build in _SHAPED.items():
    for _shape in SHAPES:
        DAMAGED[_name if _shape == "string" else f"{_name}@{_shape}"] = _build(_shape)

# Where an API knows no such content, or its integration drops only half of it, no repair of calls
# and results can help. Gemini and Responses drop the server tools' blocks of another provider.
CARRIED_BY: dict[str, frozenset[str]] = {
    "F10-custom-tool-call": frozenset({"openai-responses", "gemini"}),
    "F10-custom-tool-call-known": frozenset({"openai-responses", "gemini"}),
    "F10-custom-tool-call-standard": frozenset({"openai-responses", "gemini"}),
    "F25-left-over-chunk-block": frozenset(WIRES) - {"openai-chat"},
    "F25-left-over-delta": frozenset(WIRES) - {"openai-chat", "anthropic"},
    "F27-server-tool": frozenset({"openai-responses", "anthropic", "gemini"}),
    "F27-server-tool-beside-a-call": frozenset(WIRES) - {"openai-chat", "bedrock"},
    "F27-server-tool-still-running": frozenset({"openai-responses", "gemini", "bedrock"}),
}


def carried_by(name: str) -> frozenset[str]:
    """The wires that can carry the content of this history."""
    return CARRIED_BY.get(name, frozenset(WIRES))
