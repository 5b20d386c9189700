"""A provider on a loopback port: it streams turns, and refuses what the real one refuses.

    with ProviderServer(INTEGRATIONS["Anthropic"], TURNS["a call"]) as server:
        server.model.bind_tools([weather]).stream("How is the weather?")

Each request takes the next turn of the script; the last one is repeated. A request whose history
breaks a rule of `wires.broken_rules` gets status 400, with the rules as its message.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any, NamedTuple, Self

from botocore.config import Config
from langchain_anthropic import ChatAnthropic
from langchain_aws import ChatBedrockConverse
from langchain_core.language_models import BaseChatModel
from langchain_deepseek import ChatDeepSeek
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_groq import ChatGroq
from langchain_mistralai import ChatMistralAI
from langchain_openai import ChatOpenAI

from support.wires import broken_rules

Events = list[dict[str, Any]]

WORDS = ("I ", "will ", "look ", "at ", "the ", "weather ", "now.")
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
"""What Claude thought before it called; it must come back as it is."""


@dataclass(frozen=True)
class Turn:
    """A model's words, its calls (name and text of the arguments), and if it hits the limit."""

    words: Sequence[str] = ()
    calls: Sequence[tuple[str, str]] = ()
    cut: bool = False

    def reason(self, text: str, calls: str, cut: str) -> str:
        """The provider's reason for the end."""
        return cut if self.cut else calls if self.calls else text

    def pieces(self) -> list[tuple[int, str, str, list[str]]]:
        """The number, id and name of each call, and its arguments in pieces."""
        return [
            (number, f"call{number:05}", name, [raw[n : n + 4] for n in range(0, len(raw), 4)])
            for number, (name, raw) in enumerate(self.calls)
        ]


TURNS = {"text": Turn(WORDS), "text, then a call": Turn(WORDS, [("weather", '{"city": "Rome"}')])}


# --- what the providers send ------------------------------------------------------------------


_numbers = count(1)
"""Of messages: with one id, the later message would replace the earlier one in a history."""


def _sse(events: Events) -> list[bytes]:
    names = [f"event: {event['type']}\n" if "type" in event else "" for event in events]
    parts = zip(names, events, strict=True)
    return [f"{name}data: {json.dumps(event)}\n\n".encode() for name, event in parts]


def _chat(turn: Turn, *, thinks: bool = False, whole: bool = False) -> list[bytes]:
    """Chat Completions; `whole` if each call comes in one piece."""
    deltas: Events = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": word} for word in ("Let ", "me ", "think.") if thinks]
    deltas += [{"content": word} for word in turn.words]
    for index, id_, name, pieces in turn.pieces():
        first, rest = ("".join(pieces), []) if whole else ("", pieces)
        begun = {"id": id_, "type": "function", "function": {"name": name, "arguments": first}}
        deltas.append({"tool_calls": [{"index": index, **begun}]})
        more: Events = [{"index": index, "function": {"arguments": piece}} for piece in rest]
        deltas += [{"tool_calls": [piece]} for piece in more]
    end = turn.reason("stop", "tool_calls", "length")
    choices: Events = [{"index": 0, "delta": each, "finish_reason": None} for each in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": end})
    base: dict[str, Any] = {"id": f"c-{next(_numbers)}", "object": "chat.completion.chunk"}
    base |= {"created": 1, "model": "model-x"}
    return [*_sse([{**base, "choices": [each]} for each in choices]), b"data: [DONE]\n\n"]


def _responses(turn: Turn, *, thinks: bool = False) -> list[bytes]:
    """Responses; `thinks` if reasoning comes first."""
    events: Events = []

    def event(kind: str, **fields: Any) -> None:
        events.append({"type": f"response.{kind}", "sequence_number": len(events), **fields})

    number = next(_numbers)
    base: dict[str, Any] = {"id": f"resp_{number}", "object": "response", "output": []}
    base |= {"created_at": 1, "parallel_tool_calls": True, "tool_choice": "auto"}
    base |= {"tools": [], "model": "gpt-5"}
    event("created", response={**base, "status": "queued"})
    if thinks:
        item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{number}", "summary": []}
        where: dict[str, Any] = {"output_index": 0, "item_id": f"rs_{number}", "summary_index": 0}
        event("output_item.added", output_index=0, item=item)
        event("reasoning_summary_part.added", **where, part={"type": "summary_text", "text": ""})
        for word in ("Let ", "me ", "think."):
            event("reasoning_summary_text.delta", **where, delta=word)
        event("output_item.done", output_index=0, item=item)
    if turn.words:
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": []}
        event("output_item.added", output_index=1, item={**item, "status": "in_progress"})
        where = {"output_index": 1, "item_id": f"msg_{number}", "content_index": 0, "logprobs": []}
        for word in turn.words:
            event("output_text.delta", **where, delta=word)
        event("output_text.done", **where, text="".join(turn.words))
    for index, id_, name, pieces in turn.pieces():
        place = {"output_index": index + 2}
        item = {"type": "function_call", "id": f"fc_{id_}", "call_id": id_, "name": name}
        begun = {**item, "arguments": "", "status": "in_progress"}
        event("output_item.added", **place, item=begun)
        for piece in pieces:
            event("function_call_arguments.delta", **place, item_id=item["id"], delta=piece)
        done = {**item, "arguments": "".join(pieces), "status": "completed"}
        event("output_item.done", **place, item=done)
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    details = {"input_tokens_details": {"cached_tokens": 0}}
    details |= {"output_tokens_details": {"reasoning_tokens": 0}}
    status = turn.reason("completed", "completed", "incomplete")
    reason = {"incomplete_details": {"reason": "max_output_tokens"} if turn.cut else None}
    event(status, response={**base, "status": status, **reason, "usage": {**usage, **details}})
    return _sse(events)


def _anthropic(turn: Turn, *, thinks: bool = False, searches: bool = False) -> list[bytes]:
    """Anthropic; `thinks` if it does so first, `searches` if then, and calls `now` at the end."""
    signed = {"type": "signature_delta", "signature": THINKING["signature"]}
    thought = {**THINKING, "thinking": "", "signature": ""}
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    blocks: list[tuple[dict[str, Any], Events]] = []
    if thinks:
        thinking = {"type": "thinking_delta", "thinking": THINKING["thinking"]}
        blocks.append((thought, [thinking, signed]))
    if searches:
        query = {"type": "input_json_delta", "partial_json": '{"query": "x"}'}
        blocks += [(search, [query]), (found, [])]
    if turn.words:
        texts = [{"type": "text_delta", "text": word} for word in turn.words]
        blocks.append(({"type": "text", "text": ""}, texts))
    for _, id_, name, pieces in turn.pieces():
        start = {"type": "tool_use", "id": id_, "name": name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        blocks.append((start, deltas))
    if searches:
        now = {"type": "tool_use", "id": "now", "name": "now", "input": {}}
        empty = {"type": "input_json_delta", "partial_json": ""}
        blocks += [(thought, [signed]), (now, [empty])]
    message: dict[str, Any] = {
        "id": f"msg_{next(_numbers)}",
        "type": "message",
        "role": "assistant",
    }
    message |= {"model": "claude-x", "content": [], "stop_reason": None, "stop_sequence": None}
    message |= {"usage": {"input_tokens": 1, "output_tokens": 1}}
    events: Events = [{"type": "message_start", "message": message}]
    for index, (start, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = turn.reason("tool_use" if searches else "end_turn", "tool_use", "max_tokens")
    delta = {"stop_reason": end, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}})
    return _sse([*events, {"type": "message_stop"}])


def _bedrock(turn: Turn) -> list[bytes]:
    events: Events = [{"messageStart": {"role": "assistant"}}]
    texts: Events = [{"text": word} for word in turn.words]
    events += [{"contentBlockDelta": {"delta": d, "contentBlockIndex": 0}} for d in texts]
    events += [{"contentBlockStop": {"contentBlockIndex": 0}}] if texts else []
    for index, id_, name, pieces in turn.pieces():
        place = {"contentBlockIndex": index + 1}
        start = {"toolUse": {"toolUseId": id_, "name": name}}
        events.append({"contentBlockStart": {"start": start, **place}})
        deltas: Events = [{"toolUse": {"input": piece}} for piece in pieces]
        events += [{"contentBlockDelta": {"delta": delta, **place}} for delta in deltas]
        events.append({"contentBlockStop": place})
    end = turn.reason("end_turn", "tool_use", "max_tokens")
    events.append({"messageStop": {"stopReason": end}})
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    events.append({"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}})
    return [_frame(*item) for event in events for item in event.items()]


def _frame(kind: str, payload: dict[str, Any]) -> bytes:
    """One event of Amazon's binary event stream."""
    body = json.dumps(payload).encode()
    pairs = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack(">B", len(name))
        + name.encode()
        + b"\x07"
        # the type of a text, and its length
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in pairs.items()
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + body
    return message + struct.pack(">I", crc32(message))


def _gemini(turn: Turn) -> list[bytes]:
    """Gemini gives arguments as objects; of a cut call, what is there of them."""
    parts: Events = [{"text": word} for word in turn.words]
    for name, raw in turn.calls:
        args = json.loads(raw if raw.endswith("}") else raw + "}")
        parts.append({"functionCall": {"name": name, "args": args}})
    candidates: Events = [{"content": {"role": "model", "parts": [part]}} for part in parts]
    candidates[-1]["finishReason"] = turn.reason("STOP", "STOP", "MAX_TOKENS")
    return _sse([{"candidates": [each], "modelVersion": "gemini-x"} for each in candidates])


# --- the integrations -------------------------------------------------------------------------


@dataclass(frozen=True)
class Integration:
    """The rules of a provider, how it streams a turn, and how to make a model for its address."""

    wire: str
    events: Callable[[Turn], list[bytes]]
    new_model: Callable[[str], BaseChatModel]


def _openai(url: str, *, responses: bool = True, **options: Any) -> BaseChatModel:
    options |= {"use_responses_api": responses, "max_retries": 0}
    return ChatOpenAI(model="gpt-5", api_key=_KEY, base_url=url, **options)


def _claude(url: str, **options: Any) -> BaseChatModel:
    options |= {"max_retries": 0, "max_tokens": 2048}
    return ChatAnthropic(model="claude-x", api_key=_KEY, base_url=url, **options)


def _claude_on_bedrock(url: str) -> BaseChatModel:
    """It asks once; botocore would ask five times."""
    return ChatBedrockConverse(
        model="anthropic.claude-3-5-sonnet-20240620-v1:0",
        region_name="us-east-1",
        aws_access_key_id=_KEY,
        aws_secret_access_key=_KEY,
        endpoint_url=url,
        config=Config(retries={"total_max_attempts": 1}),
    )


_KEY: Any = "k"
_thinker = partial(_claude, thinking={"type": "enabled", "budget_tokens": 1024})

INTEGRATIONS = {
    "OpenAI Chat Completions": Integration("openai-chat", _chat, partial(_openai, responses=False)),
    "OpenAI Responses": Integration("openai-responses", _responses, _openai),
    "Anthropic": Integration("anthropic", _anthropic, _claude),
    "Anthropic, thinking": Integration("anthropic", partial(_anthropic, thinks=True), _thinker),
    "Mistral": Integration(
        "mistral",
        partial(_chat, whole=True),
        lambda url: ChatMistralAI(model="mistral-x", api_key=_KEY, endpoint=url, max_retries=1),
    ),
    "Groq": Integration(
        "openai-chat",
        partial(_chat, whole=True),
        lambda url: ChatGroq(model="groq-x", api_key=_KEY, base_url=url, max_retries=0),
    ),
    "DeepSeek": Integration(
        "openai-chat",
        partial(_chat, thinks=True),
        lambda url: ChatDeepSeek(model="deepseek-x", api_key=_KEY, api_base=url, max_retries=0),
    ),
    "Bedrock": Integration("bedrock", _bedrock, _claude_on_bedrock),
    "Gemini": Integration(
        "gemini",
        _gemini,
        lambda url: ChatGoogleGenerativeAI(
            model="gemini-x", api_key=_KEY, base_url=url, max_retries=1
        ),
    ),
}

WITH_BLOCKS = {
    f"{name}, {version}": Integration(wire, events, partial(new_model, output_version=version))
    for version in ("v0", "v1")
    for name, wire, events, new_model in (
        ("OpenAI", "openai-responses", partial(_responses, thinks=True), _openai),
        ("Anthropic", "anthropic", partial(_anthropic, thinks=True, searches=True), _thinker),
    )
}
"""Turns with reasoning, a search by the provider and a call without arguments."""


# --- the server ---------------------------------------------------------------------------------


class Answer(NamedTuple):
    """An answer that is not streamed: its status, and its body, or the text of an error."""

    status: int
    body: Any

    def events(self) -> list[bytes]:
        """The body; an error has each form that an SDK of a provider reads."""
        if not isinstance(self.body, str):
            return [json.dumps(self.body).encode()]
        error = {"type": "invalid_request_error", "code": self.status, "message": self.body}
        error["status"] = "INVALID_ARGUMENT"
        return [json.dumps({"type": "error", "error": error, "message": self.body}).encode()]


_AWS = {400: "ValidationException", 403: "AccessDeniedException", 429: "ThrottlingException"}


class ProviderServer:
    """A running server for one integration, with a script of turns, answers, or bytes of events.

    `requests` are the histories that were sent to it, `refused` the rules that each of them breaks.
    """

    def __init__(self, integration: Integration, *turns: Turn | Answer | list[bytes]):
        self.integration = integration
        self.script = list(turns)
        self.requests: list[Events] = []
        self.refused: list[list[str]] = []
        self._handler, self.model = _running(integration)

    def __enter__(self) -> Self:
        self._handler.provider = self
        return self

    def __exit__(self, *_: object) -> None:
        del self._handler.provider

    def answer(self, body: dict[str, Any]) -> list[bytes] | Answer:
        """The next turn, or why the history is refused."""
        history = next(body[key] for key in ("messages", "input", "contents") if key in body)
        broken = [str(each) for each in broken_rules(self.integration.wire, history)]
        self.requests.append(history)
        self.refused.append(broken)
        if broken:
            return Answer(400, "; ".join(broken))
        turn = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return self.integration.events(turn) if isinstance(turn, Turn) else turn


class _Handler(BaseHTTPRequestHandler):
    provider: ProviderServer
    protocol_version = "HTTP/1.1"  # botocore reads an event at once only if it is a chunk

    def do_POST(self) -> None:
        """Answer one request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        events = self.provider.answer(body)
        is_aws = self.provider.integration.wire == "bedrock"
        status, kind = 200, "application/vnd.amazon.eventstream" if is_aws else "text/event-stream"
        if isinstance(events, Answer):
            status, kind, events = events.status, "application/json", events.events()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("x-amzn-ErrorType", _AWS.get(status, "InternalServerException"))
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write no log."""


@cache
def _running(integration: Integration) -> tuple[type[_Handler], BaseChatModel]:
    """The handler of a server that runs until the tests end, and a model for its address.

    There is one for each integration, because the client of a provider takes long to make.
    """
    handler = type("Handler", (_Handler,), {})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=http.serve_forever, daemon=True).start()
    return handler, integration.new_model(f"http://127.0.0.1:{http.server_port}")
