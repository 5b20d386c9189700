"""Providers on a loopback port whose answers may end inside the arguments of a tool call.

Each answers its requests by a script of `Answer`s, streamed or not, and then with `done`.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self

from langchain_anthropic import ChatAnthropic
from langchain_aws import ChatBedrockConverse
from langchain_deepseek import ChatDeepSeek
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI


@dataclass(frozen=True)
class Answer:
    """What a model answers.

    Attributes:
        calls: The name and the raw arguments of each call; their ids are unique in the script.
        cut: `"limit"` at the token limit, `"dead"` without an end, `"malformed"` for Gemini's
            reason of this name, None by itself.
        text: The text, if there are no calls.
        first: The number of the first call.
    """

    calls: tuple[tuple[str, str], ...] = ()
    cut: str | None = None
    text: str = ""
    first: int = 1

    def numbered(self) -> Iterator[tuple[int, str, str, str]]:
        """The place, the id, the name and the arguments of each call."""
        for index, (name, raw) in enumerate(self.calls):
            yield index, f"c{self.first + index}", name, raw

    def reason(self, limit: str, calls: str, end: str) -> str:
        """The reason for the end, in the words of a provider."""
        return limit if self.cut else calls if self.calls else end


@dataclass
class Provider:
    """A provider: `with Chat(script) as provider: provider.model(streaming=True)`.

    Each has `events(answer)` for a stream, `body(answer)`, and `model(**options)`: its integration.

    Attributes:
        script: The answers that are left.
        requests: The bodies that were received.
    """

    script: list[Answer]
    requests: list[Any] = field(default_factory=list)
    kind = "text/event-stream"

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"provider": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def stream(self, answer: Answer) -> bytes:
        """The bytes of a streamed answer."""
        lines = []
        for event in self.events(answer):
            name = f"event: {event['type']}\n" if "type" in event else ""
            lines.append(f"{name}data: {json.dumps(event)}\n\n")
        return "".join(lines).encode()


class _Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_POST(self) -> None:
        """Answer one request; the connection ends with the answer."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.provider.requests.append(body)
        script = self.provider.script
        answer = script.pop(0) if script else Answer(text="done")
        is_stream = body.get("stream") or "stream" in self.path
        if is_stream:
            data = self.provider.stream(answer)
        else:
            data = json.dumps(self.provider.body(answer)).encode()
        self.send_response(200)
        self.send_header("Content-Type", self.provider.kind if is_stream else "application/json")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def pieces(raw: str) -> list[str]:
    """Arguments in pieces of four characters."""
    return [raw[place : place + 4] for place in range(0, len(raw), 4)]


def as_object(raw: str) -> Any:
    """What a provider that gives objects makes of arguments: what is there of them."""
    for text in (raw, raw + '"}'):
        with suppress(ValueError):
            return json.loads(text)
    return {}


class Chat(Provider):
    """OpenAI's Chat Completions."""

    def _answer(self, part: str, message: Any, reason: str | None) -> Any:
        choice = {"index": 0, part: message, "finish_reason": reason}
        head = {
            "id": f"chatcmpl-{len(self.requests)}",
            "created": 1,
            "model": "gpt-4o",
            "choices": [choice],
        }
        return {**head, "object": "chat.completion" + ".chunk" * (part == "delta")}

    def events(self, answer: Answer) -> Iterator[Any]:
        yield self._answer("delta", {"role": "assistant", "content": answer.text}, None)
        for index, call_id, name, raw in answer.numbered():
            begun = {"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
            yield self._answer("delta", {"tool_calls": [{"index": index, **begun}]}, None)
            for piece in pieces(raw):
                more = {"index": index, "function": {"arguments": piece}}
                yield self._answer("delta", {"tool_calls": [more]}, None)
        if answer.cut != "dead":
            yield self._answer("delta", {}, answer.reason("length", "tool_calls", "stop"))

    def body(self, answer: Answer) -> Any:
        listed = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": raw}}
            for _, call_id, name, raw in answer.numbered()
        ]
        message = {"role": "assistant", "content": answer.text, "tool_calls": listed or None}
        return self._answer("message", message, answer.reason("length", "tool_calls", "stop"))

    def model(self, **options: Any) -> Any:
        return ChatOpenAI(model="gpt-4o", api_key="k", base_url=self.url, max_retries=0, **options)


class DeepSeek(Chat):
    """The same by another integration."""

    def model(self, **options: Any) -> Any:
        return ChatDeepSeek(model="deepseek-chat", api_key="k", api_base=self.url, **options)


class Responses(Chat):
    """OpenAI's Responses."""

    def _items(self, answer: Answer) -> list[Any]:
        if not answer.calls:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            return [
                {
                    "type": "message",
                    "id": f"msg_{len(self.requests)}",
                    "role": "assistant",
                    "content": content,
                }
            ]
        return [
            {
                "type": "function_call",
                "id": f"fc_{call_id}",
                "call_id": call_id,
                "name": name,
                "arguments": raw,
            }
            for _, call_id, name, raw in answer.numbered()
        ]

    def events(self, answer: Answer) -> Iterator[Any]:
        for number, event in enumerate(self._unnumbered(answer)):
            yield {**event, "sequence_number": number}

    def _unnumbered(self, answer: Answer) -> Iterator[Any]:
        done = self.body(answer)
        yield {"type": "response.created", "response": {**done, "output": []}}
        for index, item in enumerate(self._items(answer)):
            where = {"item_id": item["id"], "output_index": index}
            if item["type"] == "message":
                delta = {"delta": answer.text, "content_index": 0, "logprobs": []}
                yield {"type": "response.output_text.delta", **where, **delta}
                continue
            begun = {**item, "arguments": ""}
            yield {"type": "response.output_item.added", "output_index": index, "item": begun}
            for piece in pieces(item["arguments"]):
                kind = "response.function_call_arguments.delta"
                yield {"type": kind, **where, "delta": piece}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        if answer.cut != "dead":
            yield {"type": f"response.{done['status']}", "response": done}

    def body(self, answer: Answer) -> Any:
        return {
            "id": f"resp_{len(self.requests)}",
            "object": "response",
            "created_at": 1,
            "status": "incomplete" if answer.cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if answer.cut else None,
            "model": "gpt-5",
            "output": self._items(answer),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "instructions": None,
            "metadata": {},
            "usage": None,
        }

    def model(self, **options: Any) -> Any:
        return super().model(use_responses_api=True, **options)


class Anthropic(Provider):
    """Anthropic's Messages."""

    def events(self, answer: Answer) -> Iterator[Any]:
        whole = self.body(answer)
        start = {**whole, "content": [], "stop_reason": None}
        yield {"type": "message_start", "message": start}
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

    def body(self, answer: Answer) -> Any:
        text = [{"type": "text", "text": answer.text}] if answer.text else []
        uses = [
            {"type": "tool_use", "id": call_id, "name": name, "input": as_object(raw)}
            for _, call_id, name, raw in answer.numbered()
        ]
        return {
            "id": f"msg_{len(self.requests)}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-6",
            "content": [*text, *uses],
            "stop_reason": answer.reason("max_tokens", "tool_use", "end_turn"),
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    def model(self, **options: Any) -> Any:
        return ChatAnthropic(
            model="claude-sonnet-4-6", api_key="k", base_url=self.url, max_retries=0, **options
        )


class Bedrock(Provider):
    """Bedrock's Converse, whose stream is Amazon's binary event stream."""

    kind = "application/vnd.amazon.eventstream"

    def stream(self, answer: Answer) -> bytes:
        return b"".join(_frame(name, event) for name, event in self.events(answer))

    def events(self, answer: Answer) -> Iterator[Any]:
        yield "messageStart", {"role": "assistant"}
        if answer.text:
            delta = {"delta": {"text": answer.text}, "contentBlockIndex": 0}
            yield "contentBlockDelta", delta
        for index, call_id, name, raw in answer.numbered():
            start = {"toolUse": {"toolUseId": call_id, "name": name}}
            yield "contentBlockStart", {"start": start, "contentBlockIndex": index}
            for piece in pieces(raw):
                delta = {"delta": {"toolUse": {"input": piece}}, "contentBlockIndex": index}
                yield "contentBlockDelta", delta
            yield "contentBlockStop", {"contentBlockIndex": index}
        if answer.cut != "dead":
            yield "messageStop", {"stopReason": self.body(answer)["stopReason"]}

    def body(self, answer: Answer) -> Any:
        uses = [
            {"toolUse": {"toolUseId": call_id, "name": name, "input": as_object(raw)}}
            for _, call_id, name, raw in answer.numbered()
        ]
        content = uses or [{"text": answer.text}]
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": answer.reason("max_tokens", "tool_use", "end_turn"),
            "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
            "metrics": {"latencyMs": 1},
        }

    def model(self, **options: Any) -> Any:
        return ChatBedrockConverse(
            model="anthropic.claude-3-5-sonnet-20240620-v1:0",
            region_name="us-east-1",
            aws_access_key_id="k",
            aws_secret_access_key="s",  # noqa: S106 - nobody checks it
            endpoint_url=self.url,
            **options,
        )


def _frame(kind: str, event: Any) -> bytes:
    named = (
        (":event-type", kind),
        (":content-type", "application/json"),
        (":message-type", "event"),
    )
    headers = b"".join(
        struct.pack(">B", len(name))
        + name.encode()
        + struct.pack(">BH", 7, len(value))
        + value.encode()
        for name, value in named
    )
    payload = json.dumps(event).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return message + struct.pack(">I", crc32(message))


class Gemini(Provider):
    """Gemini, which gives arguments as objects in streams too."""

    def events(self, answer: Answer) -> Iterator[Any]:
        whole = self.body(answer)["candidates"][0]
        for part in whole["content"]["parts"]:
            yield {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]}
        yield {"candidates": [{**whole, "content": {"role": "model", "parts": []}}]}

    def body(self, answer: Answer) -> Any:
        parts: list[Any] = [
            {"functionCall": {"id": call_id, "name": name, "args": as_object(raw)}}
            for _, call_id, name, raw in answer.numbered()
        ]
        reason = "MALFORMED_FUNCTION_CALL" if answer.cut == "malformed" else None
        candidate = {
            "content": {
                "role": "model",
                "parts": parts + [{"text": answer.text}] * bool(answer.text),
            },
            "index": 0,
            "finishReason": reason or answer.reason("MAX_TOKENS", "STOP", "STOP"),
        }
        return {"candidates": [candidate], "modelVersion": "gemini-2.5-flash"}

    def model(self, **options: Any) -> Any:
        return ChatGoogleGenerativeAI(
            model="gemini-2.5-flash", api_key="k", base_url=self.url, max_retries=1, **options
        )


PROVIDERS: dict[str, type[Provider]] = {
    "chat": Chat,
    "deepseek": DeepSeek,
    "responses": Responses,
    "anthropic": Anthropic,
    "bedrock": Bedrock,
    "gemini": Gemini,
}
