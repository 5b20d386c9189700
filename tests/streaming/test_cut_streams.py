"""A stream may be cut anywhere: what arrived is stored, and the thread goes on.

The streams are read by the real integrations from a server on this machine, so their chunks have
the shape that users get. Every text and all arguments come one byte (or one character) a chunk:
a cut behind any chunk is a cut at any byte of what the model wrote.
"""

from __future__ import annotations

import copy
import json
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_aws import ChatBedrockConverse
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_mistralai import ChatMistralAI
from langchain_openai import ChatOpenAI

from langgraph_patch.history.patch import patch_messages, validate_messages
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.streaming import UNFINISHED_KEY, message_from_stream
from support.wires import WIRES, refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_core.language_models import BaseChatModel

WEATHER = '{"city": "Zürich", "days": [1, {"x": "}"}]}'
CALLS = {"weather": json.loads(WEATHER), "now": {}, "mail": {"to": "bob"}}
"""The finished arguments of every call in the streams: nothing else may become a call."""


# --- what the providers send ------------------------------------------------------------------


def sse(events: list[dict[str, Any]]) -> list[bytes]:
    """Server-sent events, each as the bytes that go over the wire."""
    return [
        (f"event: {event['type']}\n" if "type" in event else "").encode()
        + b"data: "
        + json.dumps(event, ensure_ascii=False).encode()
        + b"\n\n"
        for event in events
    ]


def openai_chat(*, length: bool = False) -> list[bytes]:
    """Text, then two calls with interleaved pieces, and one call without arguments."""

    def call(index: int, arguments: str, **start: str) -> dict[str, Any]:
        function = {"arguments": arguments, **({"name": start["name"]} if start else {})}
        head = {"id": f"call_{start['name']}", "type": "function"} if start else {}
        return {"tool_calls": [{"index": index, "function": function, **head}]}

    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": letter} for letter in "See:"]
    deltas += [call(0, "", name="weather"), call(2, "", name="mail")]
    mail = iter('{"to": "bob"}')
    for letter in WEATHER:
        deltas += [call(0, letter), *(call(2, other) for other in [next(mail, "")] if other)]
    deltas += [call(3, "", name="now")]
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices += [{"index": 0, "delta": {}, "finish_reason": "length" if length else "tool_calls"}]
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    events = [{**base, "choices": [choice]} for choice in choices]
    return [*sse([*events, {**base, "choices": [], "usage": usage}]), b"data: [DONE]\n\n"]


def one_index() -> list[bytes]:
    """Chat Completions of a server that gives every call the index 0; the ids tell them apart."""
    calls = [("weather", WEATHER), ("mail", '{"to": "bob"}'), ("now", "{}")]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "See:"}]
    for name, arguments in calls:
        start = {"index": 0, "id": f"call_{name}", "type": "function"}
        deltas += [{"tool_calls": [{**start, "function": {"name": name, "arguments": ""}}]}]
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": letter}}]}
            for letter in arguments
        ]
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices += [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]
    return [*sse([{**base, "choices": [choice]} for choice in choices]), b"data: [DONE]\n\n"]


def responses() -> list[bytes]:
    """Reasoning, text, a call, reasoning again and a call without arguments."""
    events: list[dict[str, Any]] = []

    def event(kind: str, **fields: Any) -> None:
        events.append({"type": f"response.{kind}", "sequence_number": len(events), **fields})

    def think(place: int, id_: str) -> None:
        item = {"type": "reasoning", "id": id_, "summary": []}
        at = {"output_index": place, "item_id": id_, "summary_index": 0}
        event("output_item.added", output_index=place, item=item)
        event("reasoning_summary_part.added", **at, part={"type": "summary_text", "text": ""})
        for letter in "hm":
            event("reasoning_summary_text.delta", **at, delta=letter)
        event("output_item.done", output_index=place, item=item)

    def call(place: int, name: str, arguments: str) -> None:
        item = {"type": "function_call", "id": f"fc_{name}", "call_id": f"call_{name}"}
        item |= {"name": name, "arguments": "", "status": "in_progress"}
        event("output_item.added", output_index=place, item=item)
        for letter in arguments:
            event(
                "function_call_arguments.delta",
                output_index=place,
                item_id=item["id"],
                delta=letter,
            )
        event("output_item.done", output_index=place, item={**item, "arguments": arguments})

    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5", "output": []}
    base |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "queued"}
    event("created", response=base)
    think(0, "rs_1")
    at = {"output_index": 1, "item_id": "msg_1", "content_index": 0}
    texts = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    event("output_item.added", output_index=1, item={**texts, "status": "in_progress"})
    for letter in "See:":
        event("output_text.delta", **at, delta=letter, logprobs=[])
    event("output_text.done", **at, text="See:", logprobs=[])
    call(2, "weather", WEATHER)
    think(3, "rs_2")
    call(4, "now", "{}")
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    usage |= {"input_tokens_details": {"cached_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    event("completed", response={**base, "status": "completed", "usage": usage})
    return sse(events)


def anthropic(*, search: bool = False) -> list[bytes]:
    """Thinking, text, a call, thinking again, a call without arguments; a tool of the server."""
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    server: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            [{"type": "input_json_delta", "partial_json": letter} for letter in '{"query": "x"}'],
        ),
        (found, []),
    ]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                *({"type": "thinking_delta", "thinking": letter} for letter in "hm"),
                {"type": "signature_delta", "signature": "c2ln"},
            ],
        ),
        (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": letter} for letter in "See:"],
        ),
        *(server if search else []),
        (
            {"type": "tool_use", "id": "call_weather", "name": "weather", "input": {}},
            [{"type": "input_json_delta", "partial_json": letter} for letter in ["", *WEATHER]],
        ),
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": "so"},
                {"type": "signature_delta", "signature": "c2lo"},
            ],
        ),
        (
            {"type": "tool_use", "id": "call_now", "name": "now", "input": {}},
            [{"type": "input_json_delta", "partial_json": ""}],
        ),
    ]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None}
    message |= {"usage": {"input_tokens": 1, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, (start, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 9}})
    return sse([*events, {"type": "message_stop"}])


def mistral() -> list[bytes]:
    """Text, then calls that come whole, in one delta."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": letter} for letter in "See:"]
    calls = [("weather", WEATHER), ("now", "{}")]
    deltas += [
        {
            "tool_calls": [
                {
                    "id": f"call_{name}"[:9],
                    "index": index,
                    "function": {"name": name, "arguments": arguments},
                }
                for index, (name, arguments) in enumerate(calls)
            ]
        }
    ]
    base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "mistral-x"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices[-1]["finish_reason"] = "tool_calls"
    return [*sse([{**base, "choices": [choice]} for choice in choices]), b"data: [DONE]\n\n"]


def bedrock() -> list[dict[str, Any]]:
    """Converse events: reasoning, text, a call, a call without arguments."""

    def delta(index: int, **value: Any) -> dict[str, Any]:
        return {"contentBlockDelta": {"delta": value, "contentBlockIndex": index}}

    def start(index: int, name: str) -> dict[str, Any]:
        block = {"toolUse": {"toolUseId": f"call_{name}", "name": name}}
        return {"contentBlockStart": {"start": block, "contentBlockIndex": index}}

    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    return [
        {"messageStart": {"role": "assistant"}},
        *(delta(0, reasoningContent={"text": letter}) for letter in "hm"),
        delta(0, reasoningContent={"signature": "c2ln"}),
        *(delta(1, text=letter) for letter in "See:"),
        start(2, "weather"),
        *(delta(2, toolUse={"input": letter}) for letter in WEATHER),
        {"contentBlockStop": {"contentBlockIndex": 2}},
        start(3, "now"),
        {"contentBlockStop": {"contentBlockIndex": 3}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": usage, "metrics": {"latencyMs": 5}}},
    ]


# --- the integrations that read it ------------------------------------------------------------


class Provider:
    """A server on this machine that answers every request with the same bytes."""

    def __init__(self) -> None:
        self.body = b""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                self.wfile.write(provider.body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Write no log."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    """The server, while the tests of this module run."""
    provider = Provider()
    thread = threading.Thread(target=provider.server.serve_forever, daemon=True)
    thread.start()
    yield provider
    provider.server.shutdown()
    provider.server.server_close()
    thread.join()


class Converse:
    """What `ChatBedrockConverse` needs of boto3's client."""

    def converse_stream(self, **_: Any) -> dict[str, Any]:
        """Stream the events."""
        return {"stream": iter(bedrock())}


@dataclass(frozen=True)
class Style:
    """A provider's way to stream a turn.

    Attributes:
        wire: The wire that the message goes back to; every rule of it must be kept.
        model: Makes the model for the server's address.
        body: What the server sends; empty if the model has its own source.
        wires: The wires that can carry the whole message at all.
    """

    wire: str
    model: Callable[[str], BaseChatModel]
    body: Callable[[], list[bytes]] = list
    wires: tuple[str, ...] = WIRES


def claude(output_version: str) -> Callable[[str], ChatAnthropic]:
    """Claude, thinking."""
    return lambda url: ChatAnthropic(
        model="claude-test",
        api_key="sk-fake",
        base_url=url,
        max_tokens=2048,
        thinking={"type": "enabled", "budget_tokens": 1024},
        output_version=output_version,
    )


def gpt(output_version: str | None) -> Callable[[str], ChatOpenAI]:
    """OpenAI over the Responses API."""
    return lambda url: ChatOpenAI(
        model="gpt-5",
        api_key="sk-fake",
        base_url=url,
        use_responses_api=True,
        output_version=output_version,
    )


def gpt_chat(url: str) -> ChatOpenAI:
    """OpenAI over Chat Completions."""
    return ChatOpenAI(model="gpt-5", api_key="sk-fake", base_url=url, use_responses_api=False)


def mistral_large(url: str) -> ChatMistralAI:
    """Mistral."""
    return ChatMistralAI(model="mistral-large-latest", api_key="sk-fake", endpoint=url)


def nova(_url: str) -> ChatBedrockConverse:
    """Bedrock, with a client of our own."""
    return ChatBedrockConverse(
        model="anthropic.claude-sonnet-4-6-v1:0",
        client=Converse(),
        bedrock_client=Converse(),
        region_name="eu-west-1",
    )


STYLES = {
    "openai-chat": Style("openai-chat", gpt_chat, openai_chat),
    "openai-chat, one index": Style("openai-chat", gpt_chat, one_index),
    "responses": Style("openai-responses", gpt(None), responses),
    "responses-v0": Style("openai-responses", gpt("v0"), responses),
    "responses-v1": Style("openai-responses", gpt("v1"), responses),
    "anthropic": Style("anthropic", claude("v0"), anthropic),
    "anthropic-v1": Style("anthropic", claude("v1"), anthropic),
    # Bedrock's integration raises at a server-side tool of Anthropic's, whole or cut.
    "anthropic-search": Style(
        "anthropic", claude("v0"), partial(anthropic, search=True), ("anthropic",)
    ),
    "anthropic-v1-search": Style(
        "anthropic", claude("v1"), partial(anthropic, search=True), ("anthropic",)
    ),
    "mistral": Style("mistral", mistral_large, mistral),
    "bedrock": Style("bedrock", nova),
}


def chunks_of(style: Style, provider: Provider) -> list[AIMessageChunk]:
    """The whole stream, as the integration reads it."""
    provider.body = b"".join(style.body())
    return list(style.model(provider.url).stream("How is the weather?"))


# --- what must hold for every cut --------------------------------------------------------------

ACCEPTED = {
    # As in wires.py: only older Mistral servers refuse it.
    "user-after-tool: refused by older servers",
}


def assert_goes_on(message: AIMessage, style: Style) -> None:
    """The message is stored, the human writes again, and every wire accepts the history."""
    if not (message.content or message.tool_calls or message.invalid_tool_calls):
        return  # nothing had arrived, so there is nothing to store
    history = [HumanMessage("hi", id="1"), message, HumanMessage("well?", id="3")]
    patched = patch_messages(history).messages
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    answers = [m for m in patched[2:-1] if isinstance(m, ToolMessage)]
    assert [m.tool_call_id for m in answers] == [call["id"] for call in calls]
    causes = {m.tool_call_id: m.additional_kwargs[PLACEHOLDER_KEY]["cause"] for m in answers}
    for call in message.tool_calls:
        assert causes[call["id"]] == "unknown"
    for call in message.invalid_tool_calls:
        assert causes[call["id"]] == "malformed"
    assert len(patched) == len(history) + len(calls)
    assert validate_messages(patched) == []
    assert {w: found for w in style.wires if (found := refusals(w, patched))} == {}
    own = set(refusals(style.wire, patched, ours_only=False)) - ACCEPTED
    assert own == set(), message


def other_blocks(content: Any) -> list[Any]:
    """The blocks that are no calls; nothing of a text."""
    calls = {"tool_use", "function_call", "tool_call", "tool_call_chunk"}
    blocks = [block for block in content if isinstance(block, dict)]
    return [block for block in blocks if block["type"] not in calls]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", STYLES)
def test_a_cut_at_every_byte_leaves_a_history_that_every_wire_accepts(name, provider):
    """Wherever it is cut: only finished calls are calls, each is answered, no wire refuses."""
    style = STYLES[name]
    chunks = chunks_of(style, provider)
    seen: dict[str, None] = {}
    for cut in range(len(chunks) + 1):
        if cut:
            seen |= {call["id"]: None for call in chunks[cut - 1].tool_call_chunks if call["id"]}
        message = message_from_stream(chunks[:cut])
        calls = [*message.tool_calls, *message.invalid_tool_calls]
        assert {call["id"] for call in calls} == set(seen)
        assert len(calls) == len(seen)
        for call in message.tool_calls:
            assert call["args"] == CALLS[call["name"]]
        assert_goes_on(message, style)
    assert message.invalid_tool_calls == []
    assert {call["name"] for call in message.tool_calls} >= {"weather", "now"}


@pytest.mark.parametrize("name", ["openai-chat", "responses", "anthropic"])
def test_a_connection_that_breaks_off_anywhere_leaves_a_history_that_goes_on(name, provider):
    """The server goes away in the middle of an event: what the integration made of it is stored."""
    style = STYLES[name]
    body = b"".join(style.body())
    model = style.model(provider.url)
    for cut in range(1, len(body), len(body) // 40):
        provider.body = body[:cut]
        chunks = []
        with suppress(Exception):  # some integrations raise, others end silently
            chunks.extend(model.stream("How is the weather?"))
        message = message_from_stream(chunks)
        for call in message.tool_calls:
            assert call["args"] == CALLS[call["name"]]
        assert_goes_on(message, style)


@pytest.mark.parametrize("name", STYLES)
def test_no_text_and_no_block_is_lost_by_a_cut(name, provider):
    """Text, usage, id and all blocks but calls are as LangChain merges them, or set aside."""
    chunks = chunks_of(STYLES[name], provider)
    before = copy.deepcopy(chunks)
    for cut in range(1, len(chunks) + 1):
        # Copies, because LangChain rewrites streaming blocks in place once it sees "last".
        last = AIMessageChunk("", chunk_position="last")
        merged = add_ai_message_chunks(*copy.deepcopy(chunks[:cut]), last)
        message = message_from_stream(chunks[:cut])
        assert message.text == merged.text
        assert (message.id, message.usage_metadata) == (merged.id, merged.usage_metadata)
        assert message.response_metadata == merged.response_metadata
        aside = message.additional_kwargs.get(UNFINISHED_KEY, [])
        assert other_blocks([*message.content, *aside]) == other_blocks(merged.content)
    assert chunks == before
