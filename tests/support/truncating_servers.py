"""Providers on a loopback port whose answers can end inside the arguments of a tool call.

Five wires, streamed and not: Anthropic, Chat Completions, DeepSeek, Responses and Bedrock Converse;
and Gemini's, which gives arguments as objects in streams too. A human who says
`book it` gets tool calls; the results of calls get the answer `done`; everything else gets an
answer. A history whose calls and results do not pair gets status 400. Nothing is shared with the
package.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_anthropic import ChatAnthropic
from langchain_aws import ChatBedrockConverse
from langchain_deepseek import ChatDeepSeek
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from support import strict_servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.language_models import BaseChatModel

COMPLETE = ("c1", "send_email", '{"to": "bob"}')
TRUNCATED = ("c2", "wire_money", '{"amount": 30')
"""The model was about to write 3000."""
MALFORMED = ("c2", "wire_money", '{"amount": 30,,}')
"""No JSON, though the model finished it."""

CUTS = ("max_tokens", "dead connection", "error")
"""How a stream ends: with the reason of the provider, without one, or with an error."""


@dataclass(frozen=True)
class Turn:
    """One answer of a model: calls, then a text; `cut` is how it ends, None if by itself."""

    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    cut: str | None = None


class Wire:
    """What a server answers. `calls` and `cut` are those of the answer to `book it`.

    Attributes:
        calls: The calls of that answer.
        cut: How its stream ends; None if by itself.
        again: How many further answers are cut so.
        behind: The text behind these calls.
    """

    calls: tuple[tuple[str, str, str], ...] = (COMPLETE, TRUNCATED)
    cut: str | None = "max_tokens"
    again = 0
    behind = ""

    def __init__(self) -> None:
        super().__init__()
        self._booked = 0
        handler = type("Handler", (_Handler,), {"provider": self})
        self._http.RequestHandlerClass = handler

    def turn(self, body: dict[str, Any]) -> Turn:
        """The answer to a request; raises `Refused` for a bad history."""
        text = self.check(body)
        if self.is_answered(body):
            if self.again > 0:
                self.again -= 1
                return Turn(calls=self.calls, cut=self.cut)
            return Turn("done")
        if text == "book it":
            self._booked += 1
            if self.cut == "malformed" and self._booked > 1 + self.again:
                return Turn("done")  # nothing in the history shows that it was asked before
            return Turn(self.behind, calls=self.calls, cut=self.cut)
        return Turn(f"re: {text}")

    def is_answered(self, body: dict[str, Any]) -> bool:
        """Whether the newest message is the result of a call."""
        raise NotImplementedError

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """The stream, as the bytes of its events; a text without its end if it is cut."""
        raise NotImplementedError

    def body(self, turn: Turn) -> dict[str, Any]:
        """The answer that is not streamed; `cut` is None or the token limit."""
        raise NotImplementedError

    def is_stream(self, path: str, request: dict[str, Any]) -> bool:
        """Whether a request asks for a stream."""
        return bool(request.get("stream")) or "stream" in path

    @cached_property
    def model(self) -> BaseChatModel:
        """The integration, connected to this server; it always streams."""
        return self.new_model()

    def new_model(self, **options: Any) -> BaseChatModel:
        """The same with other options."""
        raise NotImplementedError


class _Handler(strict_servers._Handler):  # noqa: SLF001 - the same servers, other answers
    def do_POST(self) -> None:  # noqa: N802 - the name is http.server's
        """Answer one request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.provider.requests.append(body)
        try:
            turn = self.provider.turn(body)
        except strict_servers.Refused as refused:
            self._send(400, "application/json", json.dumps(self.provider.error(str(refused))))
            return
        if not self.provider.is_stream(self.path, body):
            self._send(200, "application/json", json.dumps(self.provider.body(turn)))
            return
        self.provider.answers.append(200)
        self.close_connection = True
        data = b"".join(self.provider.frames(turn))
        self.send_response(200)
        self.send_header("Content-Type", self.provider.kind)
        self.send_header("Connection", "close")
        if turn.cut == "error":  # the client waits for more than comes
            self.send_header("Content-Length", str(len(data) + 100))
        self.end_headers()
        self.wfile.write(data)


def _events(events: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        yield f"{name}data: {json.dumps(event)}\n\n".encode()


def _pieces(raw: str) -> list[str]:
    """Arguments in pieces of three characters."""
    return [raw[i : i + 3] for i in range(0, len(raw), 3)]


def _object(raw: str) -> dict[str, Any]:
    """What a provider that gives objects makes of arguments: what is there of them."""
    return json.loads(raw if raw.endswith("}") else raw + "}")


# --- Chat Completions, DeepSeek ------------------------------------------------------------


class Chat(Wire, strict_servers.Chat):
    """`POST /v1/chat/completions`."""

    kind = "text/event-stream"

    def is_answered(self, body):
        return body["messages"][-1]["role"] == "tool"

    def frames(self, turn):
        yield from _events(self._deltas(turn))
        if turn.cut in (None, "max_tokens"):
            yield b"data: [DONE]\n\n"

    def _deltas(self, turn):
        yield self._chunk({"role": "assistant", "content": turn.text}, None)
        for index, (call_id, name, raw) in enumerate(turn.calls):
            call = {"index": index, "id": call_id, "type": "function"}
            yield self._chunk(
                {"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]}, None
            )
            for piece in _pieces(raw):
                rest = {"index": index, "function": {"arguments": piece}}
                yield self._chunk({"tool_calls": [rest]}, None)
        if turn.cut == "max_tokens":
            yield self._chunk({}, "length")
        elif turn.cut is None:
            yield self._chunk({}, "tool_calls" if turn.calls else "stop")

    def body(self, turn):
        calls = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": raw}}
            for call_id, name, raw in turn.calls
        ]
        message = {"role": "assistant", "content": turn.text}
        reason = "length" if turn.cut else "tool_calls" if calls else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        if calls:
            message["tool_calls"] = calls
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage}

    def new_model(self, **options):
        return ChatOpenAI(
            model="gpt-4o",
            api_key="k",
            base_url=self.url,
            max_retries=0,
            use_responses_api=False,
            **{"streaming": True, **options},
        )


class DeepSeek(Chat):
    """The same wire, by a model that thinks first."""

    def _deltas(self, turn):
        if turn.calls:
            yield self._chunk({"role": "assistant", "reasoning_content": "two calls"}, None)
        yield from super()._deltas(turn)

    def new_model(self, **options):
        return ChatDeepSeek(
            model="deepseek-chat",
            api_key="k",
            api_base=self.url,
            max_retries=0,
            **{"streaming": True, **options},
        )


# --- Responses -----------------------------------------------------------------------------


class Responses(Wire, strict_servers.Responses):
    """`POST /v1/responses`."""

    kind = "text/event-stream"

    def is_answered(self, body):
        return body["input"][-1].get("type") == "function_call_output"

    def frames(self, turn):
        numbered = enumerate(self._turn(turn))
        yield from _events({**event, "sequence_number": number} for number, event in numbered)

    def _turn(self, turn):
        if not turn.calls:
            yield from self._unnumbered(turn.text)
            return
        turn_id = len(self.requests)
        done = {**self.whole("x"), "output": []}
        yield {
            "type": "response.created",
            "response": {**done, "status": "in_progress", "usage": None},
        }
        reasoning = {"type": "reasoning", "id": f"rs_{turn_id}", "summary": []}
        yield self._added(0, reasoning)
        yield {"type": "response.output_item.done", "output_index": 0, "item": reasoning}
        for place, (call_id, name, raw) in enumerate(turn.calls, 1):
            item = {
                "type": "function_call",
                "id": f"fc_{turn_id}_{call_id}",
                "call_id": call_id,
                "name": name,
                "arguments": "",
                "status": "in_progress",
            }
            where = {"item_id": item["id"], "output_index": place}
            yield self._added(place, item)
            for piece in _pieces(raw):
                kind = "response.function_call_arguments.delta"
                yield {"type": kind, **where, "delta": piece}
            last = place == len(turn.calls)
            if turn.cut in ("dead connection", "error") and last:
                return
            status = "incomplete" if turn.cut and last else "completed"
            item |= {"arguments": raw, "status": status}
            yield {"type": "response.output_item.done", "output_index": place, "item": item}
        if turn.cut == "max_tokens":
            why = {"incomplete_details": {"reason": "max_output_tokens"}}
            yield {
                "type": "response.incomplete",
                "response": {**done, "status": "incomplete", **why},
            }
        elif turn.cut is None:
            yield {"type": "response.completed", "response": done}

    def body(self, turn):
        if not turn.calls:
            return self.whole(turn.text)
        turn_id = len(self.requests)
        items = [{"type": "reasoning", "id": f"rs_{turn_id}", "summary": []}]
        for call_id, name, raw in turn.calls:
            item = {"id": f"fc_{turn_id}_{call_id}", "call_id": call_id, "name": name}
            items.append({"type": "function_call", **item, "arguments": raw})
        done = {**self.whole("x"), "output": items}
        why = {"incomplete_details": {"reason": "max_output_tokens"}}
        return {**done, "status": "incomplete", **why} if turn.cut else done

    def new_model(self, **options):
        return ChatOpenAI(
            model="gpt-5",
            api_key="k",
            base_url=self.url,
            max_retries=0,
            use_responses_api=True,
            **{"streaming": True, **options},
        )


# --- Anthropic -----------------------------------------------------------------------------


class Anthropic(Wire, strict_servers.Anthropic):
    """`POST /v1/messages`."""

    kind = "text/event-stream"

    def is_answered(self, body):
        blocks = body["messages"][-1]["content"]
        return isinstance(blocks, list) and all(b["type"] == "tool_result" for b in blocks)

    def frames(self, turn):
        yield from _events(self._turn(turn))

    def _turn(self, turn):
        if not turn.calls:
            yield from self.events(turn.text)
            return
        done = self.whole("x")
        yield {"type": "message_start", "message": {**done, "content": [], "stop_reason": None}}
        empty, *deltas = self._deltas(strict_servers.THINKING)
        yield {"type": "content_block_start", "index": 0, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        for index, (call_id, name, raw) in enumerate(turn.calls, 1):
            block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            yield {"type": "content_block_start", "index": index, "content_block": block}
            for piece in ["", *_pieces(raw)]:
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            if turn.cut in ("dead connection", "error") and index == len(turn.calls):
                return
            yield {"type": "content_block_stop", "index": index}
        reason = "max_tokens" if turn.cut else "tool_use"
        stop = {"stop_reason": reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}
        yield {"type": "message_stop"}

    def body(self, turn):
        content = [
            {"type": "tool_use", "id": call_id, "name": name, "input": _object(raw)}
            for call_id, name, raw in turn.calls
        ]
        text = [{"type": "text", "text": turn.text}] if turn.text else []
        content = [strict_servers.THINKING, *content, *text] if content else text
        reason = "max_tokens" if turn.cut else "tool_use" if turn.calls else "end_turn"
        return {**self.whole("x"), "content": content, "stop_reason": reason}

    def new_model(self, **options):
        return ChatAnthropic(
            model="claude-sonnet-4-6",
            api_key="k",
            base_url=self.url,
            max_retries=0,
            thinking={"type": "enabled", "budget_tokens": 1024},
            max_tokens=2048,
            **{"streaming": True, **options},
        )


# --- Bedrock Converse ----------------------------------------------------------------------


class Bedrock(Wire, strict_servers.StrictServer):
    """`POST /model/<id>/converse-stream`: Amazon's binary event stream."""

    path = ""
    kind = "application/vnd.amazon.eventstream"

    def check(self, body):
        """Each `toolUse` is answered in the very next message, before anything else there."""
        waiting: list[str] = []
        text = ""
        for message in body["messages"]:
            results = [
                b["toolResult"]["toolUseId"] for b in message["content"] if "toolResult" in b
            ]
            if sorted(results) != sorted(waiting):
                raise strict_servers.Refused(
                    f"Expected toolResult blocks for the following Ids: {waiting}, got {results}."
                )
            waiting = [b["toolUse"]["toolUseId"] for b in message["content"] if "toolUse" in b]
            if message["role"] == "user":
                text = ([b["text"] for b in message["content"] if "text" in b] or [text])[-1]
        if waiting:
            raise strict_servers.Refused(f"Expected toolResult blocks for: {waiting}.")
        return text

    def error(self, words):
        return {"message": words}

    def is_answered(self, body):
        return all("toolResult" in block for block in body["messages"][-1]["content"])

    def frames(self, turn):
        for event in self._turn(turn):
            ((kind, payload),) = event.items()
            yield _frame(kind, json.dumps(payload).encode())

    def _turn(self, turn):
        yield {"messageStart": {"role": "assistant"}}
        if turn.text:
            delta = {"text": turn.text}
            yield {"contentBlockDelta": {"delta": delta, "contentBlockIndex": 0}}
            yield {"contentBlockStop": {"contentBlockIndex": 0}}
        for index, (call_id, name, raw) in enumerate(turn.calls, 1):
            start = {"toolUse": {"toolUseId": call_id, "name": name}}
            yield {"contentBlockStart": {"start": start, "contentBlockIndex": index}}
            for piece in _pieces(raw):
                delta = {"toolUse": {"input": piece}}
                yield {"contentBlockDelta": {"delta": delta, "contentBlockIndex": index}}
            if turn.cut in ("dead connection", "error") and index == len(turn.calls):
                return
            yield {"contentBlockStop": {"contentBlockIndex": index}}
        reason = turn.cut or ("tool_use" if turn.calls else "end_turn")
        yield {"messageStop": {"stopReason": reason}}
        usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}

    def body(self, turn):
        content = [
            {"toolUse": {"toolUseId": call_id, "name": name, "input": _object(raw)}}
            for call_id, name, raw in turn.calls
        ]
        if turn.text:
            content.append({"text": turn.text})
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": turn.cut or ("tool_use" if turn.calls else "end_turn"),
            "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
            "metrics": {"latencyMs": 1},
        }

    def new_model(self, **options):
        return ChatBedrockConverse(
            model="anthropic.claude-3-5-sonnet-20240620-v1:0",
            region_name="us-east-1",
            aws_access_key_id="k",
            aws_secret_access_key="s",  # noqa: S106 - nobody checks it
            endpoint_url=self.url,
            **{"streaming": True, **options},
        )


def _frame(kind: str, payload: bytes) -> bytes:
    headers = b"".join(
        struct.pack(">B", len(name)) + name + b"\x07" + struct.pack(">H", len(value)) + value
        for name, value in (
            (b":event-type", kind.encode()),
            (b":content-type", b"application/json"),
            (b":message-type", b"event"),
        )
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return message + struct.pack(">I", crc32(message))


# --- Gemini --------------------------------------------------------------------------------


class Gemini(Wire, strict_servers.StrictServer):
    """`POST /v1beta/models/<model>:generateContent`, and `:streamGenerateContent`."""

    path = ""
    kind = "text/event-stream"
    reasons: ClassVar = {"max_tokens": "MAX_TOKENS", "malformed": "MALFORMED_FUNCTION_CALL"}

    def check(self, body):
        """Each turn with calls is followed by as many responses, and no turn is empty."""
        waiting = 0
        text = ""
        for content in body["contents"]:
            parts = content.get("parts")
            if not parts:
                raise strict_servers.Refused("contents.parts must not be empty.")
            if sum("functionResponse" in part for part in parts) != waiting:
                raise strict_servers.Refused(
                    "Please ensure that the number of function response parts is equal to the "
                    "number of function call parts of the function call turn."
                )
            waiting = sum("functionCall" in part for part in parts)
            if content["role"] == "user":
                text = ([part["text"] for part in parts if "text" in part] or [text])[-1]
        return text

    def error(self, words):
        return {"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}

    def is_answered(self, body):
        return all("functionResponse" in part for part in body["contents"][-1]["parts"])

    def frames(self, turn):
        parts = self._parts(turn)
        yield from _events(self._response([part], None) for part in parts)
        yield from _events(iter([self._response([], self._reason(turn))]))

    def body(self, turn):
        return self._response(self._parts(turn), self._reason(turn))

    def _reason(self, turn):
        return self.reasons.get(turn.cut, "STOP")

    def _parts(self, turn):
        calls = [
            {"functionCall": {"id": call_id, "name": name, "args": _object(raw)}}
            for call_id, name, raw in turn.calls
        ]
        return [*calls, {"text": turn.text}] if turn.text else calls

    def _response(self, parts, reason):
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        if reason is not None:
            candidate["finishReason"] = reason
        return {"candidates": [candidate], "modelVersion": "gemini-2.5-flash"}

    def new_model(self, **options):
        return ChatGoogleGenerativeAI(
            model="gemini-2.5-flash",
            api_key="k",
            base_url=self.url,
            max_retries=1,
            **{"streaming": True, **options},
        )


WIRES = {
    "anthropic": Anthropic,
    "chat": Chat,
    "responses": Responses,
    "bedrock": Bedrock,
    "deepseek": DeepSeek,
}

ALL_WIRES = {**WIRES, "gemini": Gemini}
"""Those whose streams have the raw text of arguments, and Gemini's."""
