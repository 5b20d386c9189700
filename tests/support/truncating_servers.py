"""Providers on a loopback port whose answers may end inside the arguments of a tool call.

Each answers its requests by a script of `Answer`s, streamed or not, and then with `done`.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

from langchain_anthropic import ChatAnthropic
from langchain_aws import ChatBedrockConverse
from langchain_deepseek import ChatDeepSeek
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI


@dataclass
class Answer:
    """What a model answers: calls, or `done`.

    Attributes:
        calls: The name and the raw arguments of each call.
        cut: `"limit"` at the token limit, `"dead"` without an end, `"malformed"` for Gemini's
            reason of this name, None by itself.
        number: How many answers came before; the id of a call begins with it.
    """

    calls: Sequence[tuple[str, str]] = ()
    cut: str | None = None
    number: int = 0

    @property
    def numbered(self) -> list[tuple[int, str, str, str]]:
        """The place, the id, the name and the arguments of each call."""
        return [(i, f"c{self.number}{i}", name, raw) for i, (name, raw) in enumerate(self.calls)]

    @property
    def text(self) -> str:
        """The text, if there are no calls."""
        return "" if self.calls or self.cut else "done"

    def reason(self, limit: str, calls: str, end: str) -> str:
        """The reason for the end, in the words of a provider."""
        return limit if self.cut else calls if self.calls else end


@dataclass
class Server:
    """A running provider.

    Attributes:
        model: Makes its integration, with options.
        requests: The bodies that were received.
    """

    model: Callable[..., Any] = ChatOpenAI
    requests: list[Any] = field(default_factory=list)


class Provider(NamedTuple):
    """How a provider answers.

    Attributes:
        events: The stream of an answer, without its end if it is dead.
        body: An answer that is not streamed.
        model: Makes the integration, of a URL and options.
        frame: The bytes of an event.
    """

    events: Callable[[Answer], Iterator[Any]]
    body: Callable[[Answer], Any]
    model: Callable[..., Any]
    frame: Callable[[Any], bytes]

    @contextmanager
    def serving(self, script: Sequence[Answer]) -> Iterator[Server]:
        """A server on a loopback port."""
        provider, server = self, Server()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                number = len(server.requests)
                server.requests.append(body)
                answer = script[number] if number < len(script) else Answer()
                answer.number = number
                streams = bool(body.get("stream")) or "stream" in self.path
                if streams:
                    data = b"".join(map(provider.frame, provider.events(answer)))
                else:
                    data = json.dumps(provider.body(answer)).encode()
                self.send_response(200)
                kind = "text/event-stream" if streams else "application/json"
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        url = f"http://127.0.0.1:{http.server_port}"
        server.model = lambda **options: self.model(url, **options)
        thread = Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        http.shutdown()
        http.server_close()
        thread.join(5)


def line(event: Any) -> bytes:
    """A server-sent event."""
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def pieces(raw: str) -> list[str]:
    """Arguments in pieces of four characters."""
    return [raw[place : place + 4] for place in range(0, len(raw), 4)]


def as_object(raw: str) -> Any:
    """What a provider that gives objects makes of arguments: what is there of them."""
    for text in (raw, raw + '"}'):
        with suppress(ValueError):
            return json.loads(text)
    return {}


# --- OpenAI's Chat Completions ----------------------------------------------------------------


def _completion(answer: Answer, part: str, message: Any, reason: str | None) -> Any:
    choice = {"index": 0, part: message, "finish_reason": reason}
    kind = "chat.completion" + ".chunk" * (part == "delta")
    return {
        "id": f"c{answer.number}",
        "object": kind,
        "created": 1,
        "model": "m",
        "choices": [choice],
    }


def chat_events(answer: Answer) -> Iterator[Any]:
    """Deltas."""
    yield _completion(answer, "delta", {"role": "assistant", "content": answer.text}, None)
    for index, call_id, name, raw in answer.numbered:
        named = {"id": call_id, "type": "function", "index": index}
        for part in ({**named, "function": {"name": name, "arguments": ""}}, *pieces(raw)):
            more = {"index": index, "function": {"arguments": part}}
            delta = {"tool_calls": [part if isinstance(part, dict) else more]}
            yield _completion(answer, "delta", delta, None)
    if answer.cut != "dead":
        yield _completion(answer, "delta", {}, answer.reason("length", "tool_calls", "stop"))


def chat_body(answer: Answer) -> Any:
    """A completion."""
    listed = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": raw}}
        for _, call_id, name, raw in answer.numbered
    ]
    message = {"role": "assistant", "content": answer.text, "tool_calls": listed or None}
    return _completion(answer, "message", message, answer.reason("length", "tool_calls", "stop"))


# --- OpenAI's Responses -----------------------------------------------------------------------


def responses_events(answer: Answer) -> Iterator[Any]:
    """Numbered events."""
    done, number = responses_body(answer), iter(range(1000))
    created = {"type": "response.created", "response": {**done, "output": []}}
    events = [created]
    for index, item in enumerate(done["output"]):
        where = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            text = {"delta": answer.text, "content_index": 0, "logprobs": []}
            events.append({"type": "response.output_text.delta", **where, **text})
            continue
        kind = "response.output_item"
        begun = {**item, "arguments": ""}
        events.append({"type": f"{kind}.added", "output_index": index, "item": begun})
        for piece in pieces(item["arguments"]):
            name = "response.function_call_arguments.delta"
            events.append({"type": name, **where, "delta": piece})
        events.append({"type": f"{kind}.done", "output_index": index, "item": item})
    if answer.cut != "dead":
        events.append({"type": f"response.{done['status']}", "response": done})
    yield from ({**event, "sequence_number": next(number)} for event in events)


def responses_body(answer: Answer) -> Any:
    """A response."""
    content = [{"type": "output_text", "text": answer.text, "annotations": []}]
    message = {"type": "message", "id": f"m{answer.number}", "role": "assistant"}
    calls = [
        {"type": "function_call", "id": f"fc_{i}", "call_id": i, "name": name, "arguments": raw}
        for _, i, name, raw in answer.numbered
    ]
    return {
        "id": f"resp_{answer.number}",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if answer.cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if answer.cut else None,
        "model": "m",
        "output": calls or [{**message, "content": content}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


# --- Anthropic's Messages ---------------------------------------------------------------------


def anthropic_events(answer: Answer) -> Iterator[Any]:
    """Blocks and what is added to them."""
    whole = anthropic_body(answer)
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    raws = [raw for _, raw in answer.calls]
    for index, block in enumerate(whole["content"]):
        is_call = block["type"] == "tool_use"
        begun = {**block, "input": {}} if is_call else {**block, "text": ""}
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for piece in pieces(raws[index] if is_call else answer.text):
            kind, key = ("input_json", "partial_json") if is_call else ("text", "text")
            delta = {"type": f"{kind}_delta", key: piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if answer.cut != "dead":
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}}
        yield {"type": "message_stop"}


def anthropic_body(answer: Answer) -> Any:
    """A message."""
    uses = [
        {"type": "tool_use", "id": call_id, "name": name, "input": as_object(raw)}
        for _, call_id, name, raw in answer.numbered
    ]
    return {
        "id": f"msg_{answer.number}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": uses or [{"type": "text", "text": answer.text}],
        "stop_reason": answer.reason("max_tokens", "tool_use", "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


# --- Bedrock's Converse -----------------------------------------------------------------------


def bedrock_events(answer: Answer) -> Iterator[Any]:
    """Blocks and what is added to them."""
    yield "messageStart", {"role": "assistant"}
    if answer.text:
        yield "contentBlockDelta", {"delta": {"text": answer.text}, "contentBlockIndex": 0}
    for index, call_id, name, raw in answer.numbered:
        start = {"toolUse": {"toolUseId": call_id, "name": name}}
        yield "contentBlockStart", {"start": start, "contentBlockIndex": index}
        for piece in pieces(raw):
            delta = {"toolUse": {"input": piece}}
            yield "contentBlockDelta", {"delta": delta, "contentBlockIndex": index}
        yield "contentBlockStop", {"contentBlockIndex": index}
    yield "messageStop", {"stopReason": bedrock_body(answer)["stopReason"]}


def bedrock_body(answer: Answer) -> Any:
    """A message."""
    uses = [
        {"toolUse": {"toolUseId": call_id, "name": name, "input": as_object(raw)}}
        for _, call_id, name, raw in answer.numbered
    ]
    return {
        "output": {"message": {"role": "assistant", "content": uses or [{"text": answer.text}]}},
        "stopReason": answer.reason("max_tokens", "tool_use", "end_turn"),
        "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
        "metrics": {"latencyMs": 1},
    }


def bedrock_frame(event: tuple[str, Any]) -> bytes:
    """A frame of Amazon's binary event stream."""
    kind, payload = event[0], json.dumps(event[1]).encode()
    headers = b""
    for name, value in (("event-type", kind), ("message-type", "event")):
        headers += struct.pack(">B", len(name) + 1) + f":{name}".encode()
        headers += struct.pack(">BH", 7, len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return message + struct.pack(">I", crc32(message))


# --- Gemini -----------------------------------------------------------------------------------


def gemini_events(answer: Answer) -> Iterator[Any]:
    """A response for each part, and one with the reason."""
    whole = gemini_body(answer)["candidates"][0]
    for part in whole["content"]["parts"]:
        yield {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]}
    yield {"candidates": [{**whole, "content": {"role": "model", "parts": []}}]}


def gemini_body(answer: Answer) -> Any:
    """A response."""
    parts: list[Any] = [
        {"functionCall": {"id": call_id, "name": name, "args": as_object(raw)}}
        for _, call_id, name, raw in answer.numbered
    ]
    parts += [{"text": answer.text}] * bool(answer.text)
    reason = answer.reason("MAX_TOKENS", "STOP", "STOP")
    reason = "MALFORMED_FUNCTION_CALL" if answer.cut == "malformed" else reason
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0, "finishReason": reason}
    return {"candidates": [candidate], "modelVersion": "m"}


ONCE: Any = {"model": "gpt-4o", "api_key": "k", "max_retries": 0}
AWS: Any = {
    "model": "anthropic.claude-3-5-sonnet-20240620-v1:0",
    "region_name": "us-east-1",
    "aws_access_key_id": "k",
    "aws_secret_access_key": "s",
}
PROVIDERS = {
    "chat": Provider(
        chat_events, chat_body, lambda url, **more: ChatOpenAI(base_url=url, **ONCE, **more), line
    ),
    "deepseek": Provider(
        chat_events, chat_body, lambda url, **more: ChatDeepSeek(api_base=url, **ONCE, **more), line
    ),
    "responses": Provider(
        responses_events,
        responses_body,
        lambda url, **more: ChatOpenAI(base_url=url, use_responses_api=True, **ONCE, **more),
        line,
    ),
    "anthropic": Provider(
        anthropic_events,
        anthropic_body,
        lambda url, **more: ChatAnthropic(base_url=url, **ONCE, **more),
        line,
    ),
    "bedrock": Provider(
        bedrock_events,
        bedrock_body,
        lambda url, **more: ChatBedrockConverse(endpoint_url=url, **AWS, **more),
        bedrock_frame,
    ),
    "gemini": Provider(
        gemini_events,
        gemini_body,
        lambda url, **more: ChatGoogleGenerativeAI(
            base_url=url, **{**ONCE, "max_retries": 1}, **more
        ),
        line,
    ),
}
