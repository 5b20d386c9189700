"""Broken histories: every failure mode that is a history, in every shape of an AI message.

`DAMAGED` maps a name to a history. The name begins with the number of the failure mode; behind an
`@` is the shape of the AI messages (`string` is left out):

- `string`: the content is a text, the calls stand in `tool_calls` alone;
- `anthropic`: the calls stand in `tool_use` blocks too;
- `responses`: in `function_call` items, each with a reasoning item before it;
- `v1`: in langchain's standard blocks;
- `gemini`: their thought signatures stand in `additional_kwargs`, under the call's id.

Each message has an id, and no two histories share a message object. `FIRST` says which wires
refuse a history also when its damage is repaired; each accepts its portable form. Those that refuse
it unrepaired stand in `docs/pages/refused.md`.
"""

from __future__ import annotations

import json
from typing import Any

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
        named = {"id": self.id, "name": self.name}
        if shape == "anthropic":
            cut = {"partial_json": self.raw} if self.raw else {}
            return {"type": "tool_use", **named, "input": self.args, **cut}
        if shape == "responses":
            named |= {"id": f"fc_{self.id}", "call_id": self.id}
            return {
                **named,
                "type": "function_call",
                "arguments": self.raw or json.dumps(self.args),
            }
        if self.raw:
            return {"type": "invalid_tool_call", **self.invalid()}
        return {"type": "tool_call", **named, "args": self.args}

    def invalid(self) -> dict[str, Any]:
        """The call as an entry of `invalid_tool_calls`."""
        return {"id": self.id, "name": self.name, "args": self.raw, "error": "cut off"}


def ai(shape: str, *calls: Call) -> AIMessage:
    """A model's message with these calls, as a provider of this shape leaves it."""
    content: str | list[Any] = "" if shape == "gemini" else "let me see"
    if shape in ("anthropic", "responses", "v1"):
        content = [{"type": "text", "text": content}, *(call.block(shape) for call in calls)]
    if shape == "responses":
        content = [{"type": "reasoning", "id": f"rs_{calls[0].id}", "summary": []}, *content]
    metadata = {"model_provider": _PROVIDERS[shape]} if shape in _PROVIDERS else {}
    if shape == "v1":
        metadata = {"model_provider": "anthropic", "output_version": "v1"}
    signatures = {call.id: "c2lnbmF0dXJl" for call in calls if call.id}
    return AIMessage(
        content,
        additional_kwargs={SIGNATURES: signatures} if shape == "gemini" else {},
        response_metadata=metadata,
        tool_calls=[{"name": c.name, "args": c.args, "id": c.id} for c in calls if not c.raw],
        invalid_tool_calls=[call.invalid() for call in calls if call.raw],
    )


def result(text: str, call_id: str, **fields: Any) -> ToolMessage:
    """A tool's answer."""
    return ToolMessage(text, tool_call_id=call_id, **fields)


def history(shape: str, *steps: Any) -> list[BaseMessage]:
    """Texts of a human, calls of a model (one, or a tuple), and messages; each gets an id."""
    messages = []
    for place, step in enumerate(steps):
        if isinstance(step, str):
            message: BaseMessage = HumanMessage(step)
        elif isinstance(step, BaseMessage):
            message = step.model_copy(deep=True)
        else:
            message = ai(shape, *(step if isinstance(step, tuple) else (step,)))
        message.id = f"m{place}"
        messages.append(message)
    return messages


_CUT = '{"of": "c'
_LONG = "call_" + 40 * "x"
_MADE_UP = result("made up", "c1", additional_kwargs={PLACEHOLDER_KEY: {"cause": "unknown"}})
_THINKING = {"type": "thinking", "thinking": "which?", "signature": "c2lnbmF0dXJl"}
_SERVER_CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
_SERVER_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
_CUSTOM = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "sh", "input": "ls"}
_RAW = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
_LOOK = {"name": "look", "args": {"of": "c1"}, "id": "c1"}
_BLOCK = Call("c1").block("anthropic")
_CUT_OFF = Call("c1", raw=_CUT).invalid()
_OF_C1 = HumanMessage("r1", additional_kwargs={"tool_call_id": "c1"})
_LEGACY = {"function_call": {"name": "look", "arguments": "{}"}}
_RESULTS: list[Any] = [
    {"type": "tool_result", "tool_use_id": id_, "content": "r"} for id_ in ("c1", "c2")
]


def _said(content: Any, provider: str = "", version: str = "", **fields: Any) -> list[Any]:
    """A question, a model's message with this content, the next question."""
    metadata = {"model_provider": provider, "output_version": version}
    metadata = {key: value for key, value in metadata.items() if value}
    model = AIMessage(content, response_metadata=metadata)  # LangChain reads nothing into a copy
    return ["hi", model.model_copy(update=fields), "never mind"]


def _stored_chunk() -> AIMessageChunk:
    """A streamed message, cut, merged and stored as it is: langchain finds its call valid."""
    call = {"name": "delete_records", "args": '{"target": "users"', "id": "c1", "index": 0}
    return AIMessageChunk("", tool_call_chunks=[call]) + AIMessageChunk("", chunk_position="last")


_DAMAGES: dict[str, list[Any]] = {
    "F1-new-message": ["hi", Call("c1"), "never mind"],
    "F2-sibling-lost": [
        *("hi", (Call("c1"), Call("c2", "wire"), Call("c3", "boom")), result("r1", "c1"), "no")
    ],
    "F6-steering-message": ["hi", Call("c1"), "steer", result("r1", "c1"), "go on"],
    "F6-streamed-text": ["hi", Call("c1"), AIMessage("one moment"), result("r1", "c1"), "go on"],
    "F6-reminder": ["hi", Call("c1"), SystemMessage("be brief"), result("r1", "c1"), "go on"],
    "F6-result-before-call": ["hi", result("r1", "c1"), Call("c1"), "go on"],
    "F7-orphan": ["hi", result("r1", "gone"), "thanks"],
    "F9-cut-arguments": ["hi", Call("c1", raw=_CUT), "hello?"],
    "F9-nothing-known": _said(
        "", invalid_tool_calls=[{"id": None, "name": None, "args": None, "error": "cut"}]
    ),
    "F9-text-in-a-block": _said(
        [{**_BLOCK, "input": _CUT}], "anthropic", invalid_tool_calls=[_CUT_OFF]
    ),
    "F10-tool-use": _said([_BLOCK], "anthropic"),
    "F10-function-call": _said([Call("c1").block("responses")], "openai"),
    "F10-standard-block": _said([Call("c1").block("v1")], "anthropic", "v1"),
    "F10-invalid-block": _said([Call("c1", raw=_CUT).block("v1")], "anthropic", "v1"),
    "F10-block-and-another-call": _said(
        [_BLOCK], "anthropic", tool_calls=[{**_LOOK, "name": "wire", "id": "c2"}]
    ),
    "F10-raw-tool-calls": _said("", additional_kwargs={"tool_calls": [_RAW]}),
    "F10-custom-tool-call": _said([_CUSTOM], "openai"),
    "F10-custom-tool-call-known": _said(
        [_CUSTOM], "openai", tool_calls=[{**_LOOK, "name": "sh", "args": {"__arg1": "ls"}}]
    ),
    "F11-id-used-again": [
        *("hi", Call("look:0"), result("r1", "look:0"), "again", Call("look:0"), "never mind")
    ],
    "F11-id-used-again-answered": [
        *("hi", Call("look:0"), result("r1", "look:0")),
        *("again", Call("look:0"), result("r2", "look:0"), "thanks"),
    ],
    "F12-id-none": ["hi", Call(None), "never mind"],
    "F12-id-empty": ["hi", Call(""), result("r1", ""), "thanks"],
    "F12-id-twice": [
        *("hi", (Call("c1"), Call("c1", "wire"))),
        *(result("r1", "c1", name="look"), result("r2", "c1", name="wire"), "thanks"),
    ],
    "F12-result-under-a-siblings-id": [
        *("hi", (Call("c1"), Call("c2")), result("r1", "c1"), result("r2", "c1"), "thanks")
    ],
    "F12-id-too-long": ["hi", Call(_LONG), result("r1", _LONG), "thanks"],
    "F12-id-of-500": ["hi", Call(500 * "x"), result("r1", 500 * "x"), "thanks"],
    "F12-name-empty": ["hi", Call("c1", ""), result("r1", "c1"), "thanks"],
    "F12-name-odd": [
        *("hi", (Call("c1", "look it up!"), Call("c2", 70 * "n"))),
        *(result("r1", "c1", name="look it up!"), result("r2", "c2"), "thanks"),
    ],
    "F13-two-results": ["hi", Call("c1"), result("r1", "c1"), result("r2", "c1"), "thanks"],
    "F13-late-real-result": ["hi", Call("c1"), _MADE_UP, "go on", result("r1", "c1")],
    "F25-stored-chunk": ["hi", _stored_chunk(), "hello?"],
    "F25-left-over-delta": _said(
        [
            {**_BLOCK, "input": {}},
            {"type": "input_json_delta", "partial_json": _CUT, "index": 1},
        ],
        "anthropic",
    ),
    "F25-left-over-chunk-block": _said(
        [{"type": "tool_call_chunk", "id": "c1", "name": "look", "args": _CUT, "index": 0}],
        *("anthropic", "v1"),
        invalid_tool_calls=[_CUT_OFF],
    ),
    "F26-thinking": _said([_THINKING, _BLOCK], "anthropic", tool_calls=[_LOOK]),
    "F27-server-tool": _said(
        [_SERVER_CALL, _SERVER_RESULT, {"type": "text", "text": "found"}], "anthropic"
    ),
    "F27-server-tool-beside-a-call": _said(
        [_SERVER_CALL, _SERVER_RESULT, _BLOCK], "anthropic", tool_calls=[_LOOK]
    ),
    "F29-function-message": ["hi", Call("c1"), FunctionMessage("r1", name="look"), "thanks"],
    "F29-tool-role": ["hi", Call("c1"), ChatMessage("r1", role="tool"), "thanks"],
    "F29-result-blocks": ["hi", (Call("c1"), Call("c2")), HumanMessage(_RESULTS), "thanks"],
    "F29-human-with-tool-call-id": ["hi", Call("c1"), _OF_C1, "thanks"],
    "F29-legacy-function-call": [
        *("hi", AIMessage("", additional_kwargs=_LEGACY)),
        *(FunctionMessage("r1", name="look"), "thanks"),
    ],
}

_REFUSED = {
    "F10-custom-tool-call": "-.-.--",
    "F10-custom-tool-call-known": "-.-.--",
    "F11-id-used-again": ".--..-",
    "F11-id-used-again-answered": ".--..-",
    "F12-id-none": "------",
    "F12-id-empty": "---.--",
    "F12-id-twice": "------",
    "F12-id-too-long": "-.....",
    "F12-id-of-500": "--...-",
    "F12-name-empty": "------",
    "F12-name-odd": "---.--",
    "F25-left-over-delta": "-.-...",
    "F25-left-over-chunk-block": "-.....",
    "F27-server-tool": "-...--",
    "F27-server-tool-beside-a-call": "-....-",
    "F29-legacy-function-call": ".--.--",
}

DAMAGED: dict[str, list[BaseMessage]] = {}
FIRST: dict[str, str] = {}
"""For each wire, in the order of `WIRES`: "-" if it refuses the history without its damage."""

for _name, _steps in _DAMAGES.items():
    for _shape in SHAPES if any(isinstance(step, Call | tuple) for step in _steps) else SHAPES[:1]:
        _full_name = _name if _shape == "string" else f"{_name}@{_shape}"
        DAMAGED[_full_name] = history(_shape, *_steps)
        FIRST[_full_name] = _REFUSED.get(_name, "......")
