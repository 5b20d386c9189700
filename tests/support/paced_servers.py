"""Providers on a loopback port that send one event after another, with a pause between them.

Each integration reads three turns: a text, a text before a call, and a call. Nothing is shared
with the package.
"""

from __future__ import annotations

import json
import struct
import time
from binascii import crc32
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_aws import ChatBedrockConverse
from langchain_core.language_models import BaseChatModel
from langchain_deepseek import ChatDeepSeek
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_groq import ChatGroq
from langchain_mistralai import ChatMistralAI
from langchain_openai import ChatOpenAI

WORDS = ("I ", "will ", "look ", "at ", "the ", "weather ", "now.")
ARGUMENTS = ('{"ci', 'ty": "', 'Rome"}')
TURNS = {"text": (True, False), "text, then a call": (True, True), "a call": (False, True)}
"""The kind of a turn -> whether it has text, and whether it has a call."""

Events = list[dict[str, Any]]


def _sse(events: Events) -> list[bytes]:
    return [
        (f"event: {event['type']}\n" if "type" in event else "").encode()
        + f"data: {json.dumps(event)}\n\n".encode()
        for event in events
    ]


# --- what the providers send ------------------------------------------------------------------


def _chat(text: bool, call: bool, *, thinks: bool = False, whole: bool = False) -> list[bytes]:  # noqa: FBT001
    deltas: Events = [{"role": "assistant", "content": ""}]
    if thinks:
        deltas += [{"reasoning_content": word} for word in ("Let ", "me ", "think.")]
    deltas += [{"content": word} for word in WORDS if text]
    head = {"index": 0, "id": "call12345", "type": "function"}
    if call and whole:
        deltas += [
            {
                "tool_calls": [
                    {**head, "function": {"name": "weather", "arguments": "".join(ARGUMENTS)}}
                ]
            }
        ]
    elif call:
        deltas += [{"tool_calls": [{**head, "function": {"name": "weather", "arguments": ""}}]}]
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": raw}}]} for raw in ARGUMENTS
        ]
    base = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "model-x"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices += [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}]
    return [*_sse([{**base, "choices": [choice]} for choice in choices]), b"data: [DONE]\n\n"]


def _deepseek(text: bool, call: bool) -> list[bytes]:  # noqa: FBT001
    return _chat(text, call, thinks=True)


def _mistral(text: bool, call: bool) -> list[bytes]:  # noqa: FBT001
    return _chat(text, call, whole=True)


def _responses(
    text: bool,  # noqa: FBT001
    call: bool,  # noqa: FBT001
    *,
    phases: bool = False,
    thinks: bool = False,
) -> list[bytes]:
    events: Events = []

    def event(kind: str, **fields: Any) -> None:
        events.append({"type": f"response.{kind}", "sequence_number": len(events), **fields})

    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5", "output": []}
    base |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "queued"}
    event("created", response=base)
    if thinks:
        item = {"type": "reasoning", "id": "rs_1", "summary": []}
        where = {"output_index": 7, "item_id": "rs_1", "summary_index": 0}
        event("output_item.added", output_index=7, item=item)
        event("reasoning_summary_part.added", **where, part={"type": "summary_text", "text": ""})
        for word in ("Let ", "me ", "think."):
            event("reasoning_summary_text.delta", **where, delta=word)
        event("output_item.done", output_index=7, item=item)
    if text:
        phase = {"phase": "commentary" if call else "final_answer"} if phases else {}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [], **phase}
        event("output_item.added", output_index=0, item={**item, "status": "in_progress"})
        where = {"output_index": 0, "item_id": "msg_1", "content_index": 0, "logprobs": []}
        for word in WORDS:
            event("output_text.delta", **where, delta=word)
        event("output_text.done", **where, text="".join(WORDS))
    if call:
        item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather"}
        item |= {"arguments": "", "status": "in_progress"}
        event("output_item.added", output_index=1, item=item)
        for raw in ARGUMENTS:
            kind = "function_call_arguments.delta"
            event(kind, output_index=1, item_id="fc_1", delta=raw)
        done = {**item, "arguments": "".join(ARGUMENTS), "status": "completed"}
        event("output_item.done", output_index=1, item=done)
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    usage |= {"input_tokens_details": {"cached_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    event("completed", response={**base, "status": "completed", "usage": usage})
    return _sse(events)


def _phases(text: bool, call: bool) -> list[bytes]:  # noqa: FBT001
    return _responses(text, call, phases=True)


def _reasoning(text: bool, call: bool) -> list[bytes]:  # noqa: FBT001
    return _responses(text, call, thinks=True)


def _anthropic(text: bool, call: bool, *, searches: bool = False) -> list[bytes]:  # noqa: FBT001
    blocks: list[tuple[dict[str, Any], Events]] = []
    if searches:
        thought = {"type": "thinking", "thinking": "", "signature": ""}
        signed = {"type": "signature_delta", "signature": "c2ln"}
        blocks.append((thought, [{"type": "thinking_delta", "thinking": "hm"}, signed]))
        search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
        blocks.append((search, [{"type": "input_json_delta", "partial_json": '{"query": "x"}'}]))
        found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
        blocks.append((found, []))
    if text:
        deltas = [{"type": "text_delta", "text": word} for word in WORDS]
        blocks.append(({"type": "text", "text": ""}, deltas))
    if call:
        start = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": raw} for raw in ARGUMENTS]
        blocks.append((start, deltas))
    if searches:
        now = {"type": "tool_use", "id": "c2", "name": "now", "input": {}}
        blocks += [(thought, [signed]), (now, [{"type": "input_json_delta", "partial_json": ""}])]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None}
    message |= {"usage": {"input_tokens": 1, "output_tokens": 1}}
    events: Events = [{"type": "message_start", "message": message}]
    for index, (start, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 9}})
    return _sse([*events, {"type": "message_stop"}])


def _searching(text: bool, call: bool) -> list[bytes]:  # noqa: FBT001
    return _anthropic(text, call, searches=True)


def _bedrock(text: bool, call: bool) -> list[bytes]:  # noqa: FBT001
    events: Events = [{"messageStart": {"role": "assistant"}}]
    if text:
        deltas = [{"text": word} for word in WORDS]
        events += [{"contentBlockDelta": {"delta": d, "contentBlockIndex": 0}} for d in deltas]
        events += [{"contentBlockStop": {"contentBlockIndex": 0}}]
    if call:
        start = {"toolUse": {"toolUseId": "c1", "name": "weather"}}
        events += [{"contentBlockStart": {"start": start, "contentBlockIndex": 1}}]
        deltas = [{"toolUse": {"input": raw}} for raw in ARGUMENTS]
        events += [{"contentBlockDelta": {"delta": d, "contentBlockIndex": 1}} for d in deltas]
        events += [{"contentBlockStop": {"contentBlockIndex": 1}}]
    events += [{"messageStop": {"stopReason": "tool_use" if call else "end_turn"}}]
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    events += [{"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}]
    return [_frame(*item) for event in events for item in event.items()]


def _frame(kind: str, payload: dict[str, Any]) -> bytes:
    """One event of Amazon's binary event stream."""
    body = json.dumps(payload).encode()
    pairs = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack(">B", len(name))
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in pairs.items()
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + body
    return message + struct.pack(">I", crc32(message))


def _gemini(text: bool, call: bool) -> list[bytes]:  # noqa: FBT001
    parts: Events = [{"text": word} for word in WORDS if text]
    if call:
        parts.append({"functionCall": {"name": "weather", "args": json.loads("".join(ARGUMENTS))}})
    candidates: Events = [{"content": {"role": "model", "parts": [part]}} for part in parts]
    candidates[-1]["finishReason"] = "STOP"
    return _sse([{"candidates": [c], "modelVersion": "gemini-x"} for c in candidates])


# --- the integrations -------------------------------------------------------------------------


@dataclass(frozen=True)
class Integration:
    """How a provider streams a turn, and the chat model that reads it.

    Attributes:
        events: The bytes of each event of a turn, by whether it has text and a call.
        model: Makes the chat model for the server's address.
        kind: The content type of the stream.
    """

    events: Callable[[bool, bool], list[bytes]]
    model: Callable[[str], BaseChatModel]
    kind: str = "text/event-stream"


def _gpt(url: str, **options: Any) -> BaseChatModel:
    return ChatOpenAI(model="gpt-5", api_key="k", base_url=url, max_retries=0, **options)


def _gpt_blocks(url: str, version: str) -> BaseChatModel:
    return _gpt(url, use_responses_api=True, output_version=version)


def _claude_blocks(url: str, version: str) -> BaseChatModel:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    options = {"max_tokens": 2048, "thinking": thinking, "output_version": version}
    return ChatAnthropic(model="claude-x", api_key="k", base_url=url, max_retries=0, **options)


INTEGRATIONS = {
    "OpenAI Chat Completions": Integration(_chat, lambda u: _gpt(u, use_responses_api=False)),
    "OpenAI Responses": Integration(_responses, lambda u: _gpt(u, use_responses_api=True)),
    "OpenAI Responses, phases": Integration(_phases, lambda u: _gpt(u, use_responses_api=True)),
    "Anthropic": Integration(
        _anthropic,
        lambda u: ChatAnthropic(model="claude-x", api_key="k", base_url=u, max_retries=0),
    ),
    "Mistral": Integration(
        _mistral, lambda u: ChatMistralAI(model="mistral-x", api_key="k", endpoint=u, max_retries=1)
    ),
    "Groq": Integration(
        _mistral, lambda u: ChatGroq(model="groq-x", api_key="k", base_url=u, max_retries=0)
    ),
    "DeepSeek": Integration(
        _deepseek,
        lambda u: ChatDeepSeek(model="deepseek-reasoner", api_key="k", api_base=u, max_retries=0),
    ),
    "Bedrock": Integration(
        _bedrock,
        lambda u: ChatBedrockConverse(
            model="anthropic.claude-3-5-sonnet-20240620-v1:0",
            region_name="us-east-1",
            aws_access_key_id="k",
            aws_secret_access_key="s",  # noqa: S106 - nobody checks it
            endpoint_url=u,
        ),
        "application/vnd.amazon.eventstream",
    ),
    "Gemini": Integration(
        _gemini,
        lambda u: ChatGoogleGenerativeAI(model="gemini-x", api_key="k", base_url=u, max_retries=1),
    ),
}


WITH_BLOCKS = {
    f"{name}, {version}": Integration(events, model)
    for name, events, version, model in (
        ("OpenAI", _reasoning, "v0", lambda u: _gpt_blocks(u, "v0")),
        ("OpenAI", _reasoning, "v1", lambda u: _gpt_blocks(u, "v1")),
        ("Anthropic", _searching, "v0", lambda u: _claude_blocks(u, "v0")),
        ("Anthropic", _searching, "v1", lambda u: _claude_blocks(u, "v1")),
    )
}
"""Turns with reasoning, a search by the provider and a call without arguments."""


class PacedServer:
    """Answers every request with the events of one turn, with a pause before each.

    Attributes:
        events: What it sends; set it before a request.
        url: Its address.
    """

    def __init__(self, kind: str, pause: float) -> None:
        self.events: list[bytes] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # botocore reads an event at once only if it is a chunk

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Transfer-Encoding", "chunked")
                self.send_header("Connection", "close")
                self.end_headers()
                for event in server.events:
                    time.sleep(pause)
                    self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Write no log."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@contextmanager
def paced(integration: Integration, pause: float) -> Iterator[PacedServer]:
    """A running server for one integration."""
    server = PacedServer(integration.kind, pause)
    thread = Thread(target=server.http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()
