"""Providers on a loopback port that refuse what the real ones refuse, in their own words.

Each server speaks one wire, streamed and not: a human who says `book it` gets two tool calls,
everything else an answer. A history with calls and results that do not pair gets status 400 and
the provider's own error. Written from the providers' rules; nothing is shared with the package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar, Self

CALLS = (("c1", "send_email", {"to": "bob"}), ("c2", "wire_money", {"amount": 3}))
"""The calls of a booking: id, name, arguments."""


class Refused(Exception):  # noqa: N818 - it is the answer, not an error of the server
    """What is wrong with a history, as the provider says it."""


class StrictServer:
    """A provider: `with Chat() as server: ChatOpenAI(base_url=server.url)`.

    Attributes:
        requests: The bodies that were received, in order.
        answers: The status of each answer.
    """

    path: ClassVar[str]

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answers: list[int] = []
        handler = type("Handler", (_Handler,), {"provider": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    @property
    def url(self) -> str:
        """What a client's `base_url` is set to."""
        return f"http://127.0.0.1:{self._http.server_port}{self.path}"

    def check(self, body: dict[str, Any]) -> str:
        """The last human text; raises `Refused` for a bad history."""
        raise NotImplementedError

    def error(self, words: str) -> dict[str, Any]:
        """The body of a 400."""
        raise NotImplementedError

    def whole(self, text: str | None) -> dict[str, Any]:
        """The answer: a text, or, if there is none, the two calls."""
        raise NotImplementedError

    def events(self, text: str | None) -> Iterator[dict[str, Any]]:
        """The same answer as a stream."""
        raise NotImplementedError


class _Handler(BaseHTTPRequestHandler):
    provider: StrictServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.provider.requests.append(body)
        try:
            text = self.provider.check(body)
        except Refused as refused:
            self._send(400, "application/json", json.dumps(self.provider.error(str(refused))))
            return
        text = None if text == "book it" else f"re: {text}"
        if not body.get("stream"):
            self._send(200, "application/json", json.dumps(self.provider.whole(text)))
            return
        parts = []
        for event in self.provider.events(text):
            name = f"event: {event['type']}\n" if "type" in event else ""
            parts.append(f"{name}data: {json.dumps(event)}\n\n")
        if isinstance(self.provider, Chat):
            parts.append("data: [DONE]\n\n")
        self._send(200, "text/event-stream", "".join(parts))

    def _send(self, status: int, kind: str, text: str) -> None:
        self.provider.answers.append(status)
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing: the tests read `requests`."""


# --- OpenAI: Chat Completions --------------------------------------------------------------


class Chat(StrictServer):
    """`POST /v1/chat/completions`."""

    path = "/v1"

    def check(self, body: dict[str, Any]) -> str:
        """Every `tool_calls` is followed at once by its `tool` messages, and nothing else."""
        waiting: list[str] = []
        for place, message in enumerate(body["messages"]):
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    raise Refused(
                        "Invalid parameter: messages with role 'tool' must be a response to a "
                        "preceeding message with 'tool_calls'."
                    )
                waiting.remove(message["tool_call_id"])
                continue
            self._nothing(waiting)
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
            for call in waiting:
                if len(call) > 40:
                    raise Refused(
                        f"Invalid 'messages[{place}].tool_calls[0].id': string too long. Expected "
                        f"a string with maximum length 40, but got a string with length "
                        f"{len(call)} instead."
                    )
        self._nothing(waiting)
        return [m["content"] for m in body["messages"] if m["role"] == "user"][-1]

    def _nothing(self, waiting: list[str]) -> None:
        if waiting:
            raise Refused(
                "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id'. The following tool_call_ids did not have "
                f"response messages: {', '.join(waiting)}"
            )

    def error(self, words: str) -> dict[str, Any]:
        """The shape of OpenAI's errors."""
        kind = "invalid_request_error"
        return {"error": {"message": words, "type": kind, "param": "messages", "code": None}}

    def whole(self, text: str | None) -> dict[str, Any]:
        """A `chat.completion`."""
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if text is None:
            message["tool_calls"] = self._calls()
        reason = "stop" if text else "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage}

    def events(self, text: str | None) -> Iterator[dict[str, Any]]:
        """`chat.completion.chunk`s; arguments come in two halves."""
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": text or ""}]
        for place, call in enumerate(self._calls() if text is None else ()):
            arguments = call["function"]["arguments"]
            begun = {**call, "function": {**call["function"], "arguments": arguments[:4]}}
            deltas.append({"tool_calls": [{"index": place, **begun}]})
            rest = {"index": place, "function": {"arguments": arguments[4:]}}
            deltas.append({"tool_calls": [rest]})
        for delta in deltas:
            yield self._chunk(delta, None)
        yield self._chunk({}, "stop" if text else "tool_calls")

    def _chunk(self, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{len(self.requests)}",
            "object": kind,
            "created": 1,
            "model": "gpt-4o",
        }

    def _calls(self) -> list[dict[str, Any]]:
        return [
            {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
            for i, n, a in CALLS
        ]


# --- OpenAI: Responses ---------------------------------------------------------------------


class Responses(StrictServer):
    """`POST /v1/responses`, by a model that reasons before it calls."""

    path = "/v1"

    def check(self, body: dict[str, Any]) -> str:
        """Calls and outputs pair by `call_id`; an `fc_` item keeps its reasoning."""
        items = body["input"]
        kinds = [item.get("type", "message") for item in items]
        calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
        outputs = [i["call_id"] for i in items if i.get("type") == "function_call_output"]
        for call in calls:
            if call not in outputs:
                raise Refused(f"No tool output found for function call {call}.")
        for output in outputs:
            if output not in calls:
                raise Refused(f"No tool call found for function call output with call_id {output}.")
        if len(set(outputs)) < len(outputs) or len(set(calls)) < len(calls):
            raise Refused("Duplicate item found in input.")
        for place, item in enumerate(items):
            stored = str(item.get("id", "")).startswith("fc_")
            if stored and "reasoning" not in kinds[:place]:
                raise Refused(
                    f"Item '{item['id']}' of type 'function_call' was provided without its "
                    "required 'reasoning' item."
                )
            if kinds[place] == "reasoning" and "function_call" not in kinds[place:]:
                raise Refused(
                    f"Item '{item['id']}' of type 'reasoning' was provided without its required "
                    "following item."
                )
        content = [item["content"] for item in items if item.get("role") == "user"][-1]
        return content if isinstance(content, str) else content[0]["text"]

    def error(self, words: str) -> dict[str, Any]:
        """The shape of OpenAI's errors."""
        kind = "invalid_request_error"
        return {"error": {"message": words, "type": kind, "param": "input", "code": None}}

    def _items(self, text: str | None) -> list[dict[str, Any]]:
        if text is not None:
            part = {"type": "output_text", "text": text, "annotations": []}
            message = {"type": "message", "role": "assistant", "status": "completed"}
            return [{**message, "id": f"msg_{len(self.requests)}", "content": [part]}]
        reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
        calls = [
            {
                "type": "function_call",
                "id": f"fc_{i}",
                "call_id": i,
                "name": n,
                "arguments": json.dumps(a),
                "status": "completed",
            }
            for i, n, a in CALLS
        ]
        return [reasoning, *calls]

    def whole(self, text: str | None) -> dict[str, Any]:
        """A `response`."""
        return {
            "id": f"resp_{len(self.requests)}",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": "gpt-5",
            "output": self._items(text),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "temperature": 1.0,
            "top_p": 1.0,
            "usage": {
                "input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2,
            },
        }

    def events(self, text: str | None) -> Iterator[dict[str, Any]]:
        """The events of a streamed response, numbered."""
        for number, event in enumerate(self._unnumbered(text)):
            yield {**event, "sequence_number": number}

    def _unnumbered(self, text: str | None) -> Iterator[dict[str, Any]]:
        done = self.whole(text)
        begun = {**done, "status": "in_progress", "output": [], "usage": None}
        yield {"type": "response.created", "response": begun}
        for place, item in enumerate(done["output"]):
            where = {"item_id": item["id"], "output_index": place}
            if item["type"] == "message":
                block = item["content"][0]
                empty, part = {**item, "content": []}, {**where, "content_index": 0}
                yield self._added(place, {**empty, "status": "in_progress"})
                yield {"type": "response.content_part.added", **part, "part": {**block, "text": ""}}
                yield {"type": "response.output_text.delta", **part, "delta": text, "logprobs": []}
                yield {"type": "response.output_text.done", **part, "text": text, "logprobs": []}
                yield {"type": "response.content_part.done", **part, "part": block}
            elif item["type"] == "function_call":
                name = "response.function_call_arguments"
                yield self._added(place, {**item, "arguments": "", "status": "in_progress"})
                yield {"type": f"{name}.delta", **where, "delta": item["arguments"]}
                yield {
                    "type": f"{name}.done",
                    **where,
                    "name": item["name"],
                    "arguments": item["arguments"],
                }
            else:
                yield self._added(place, item)
            yield {"type": "response.output_item.done", "output_index": place, "item": item}
        yield {"type": "response.completed", "response": done}

    def _added(self, place: int, item: dict[str, Any]) -> dict[str, Any]:
        return {"type": "response.output_item.added", "output_index": place, "item": item}


# --- Anthropic: Messages -------------------------------------------------------------------

THINKING = {"type": "thinking", "thinking": "two calls", "signature": "c2lnbmVk"}
"""What the model thought before it called; it must come back as it is."""


class Anthropic(StrictServer):
    """`POST /v1/messages`, by a model that thinks before it calls."""

    path = ""

    def check(self, body: dict[str, Any]) -> str:
        """Each `tool_use` is answered in the very next message, before anything else there."""
        waiting: list[str] = []
        used: set[str] = set()
        text = ""
        for place, message in enumerate(body["messages"]):
            blocks = message["content"]
            blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
            self._answered(place, waiting, blocks)
            waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
            for call in waiting:
                if call in used:
                    raise Refused(f"messages.{place}.content.0: `tool_use` ids must be unique")
                used.add(call)
            if waiting and blocks[0] != THINKING:
                raise Refused(
                    f"messages.{place}.content.0.type: Expected `thinking` or "
                    f"`redacted_thinking`, but found `{blocks[0]['type']}`."
                )
            if message["role"] == "user":
                text = ([b["text"] for b in blocks if b["type"] == "text"] or [text])[-1]
        self._answered(len(body["messages"]), waiting, [])
        return text

    def _answered(self, place: int, waiting: list[str], blocks: list[dict[str, Any]]) -> None:
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        first = [b["tool_use_id"] for b in blocks[: len(results)] if b["type"] == "tool_result"]
        for result in results:
            if result not in waiting:
                raise Refused(
                    f"messages.{place}.content.0: unexpected `tool_use_id` found in "
                    f"`tool_result` blocks: {result}. Each `tool_result` block must have a "
                    "corresponding `tool_use` block in the previous message."
                )
        if missing := [call for call in waiting if first.count(call) != 1]:
            raise Refused(
                f"messages.{place - 1}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {', '.join(missing)}. Each `tool_use` block must have a "
                "corresponding `tool_result` block in the next message."
            )

    def error(self, words: str) -> dict[str, Any]:
        """The shape of Anthropic's errors."""
        return {"type": "error", "error": {"type": "invalid_request_error", "message": words}}

    def whole(self, text: str | None) -> dict[str, Any]:
        """A `message`."""
        calls = [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in CALLS]
        return {
            "id": f"msg_{len(self.requests)}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-6",
            "content": [{"type": "text", "text": text}] if text else [THINKING, *calls],
            "stop_reason": "end_turn" if text else "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    def events(self, text: str | None) -> Iterator[dict[str, Any]]:
        """The events of a streamed message."""
        done = self.whole(text)
        yield {"type": "message_start", "message": {**done, "content": [], "stop_reason": None}}
        for place, block in enumerate(done["content"]):
            empty, *deltas = self._deltas(block)
            yield {"type": "content_block_start", "index": place, "content_block": empty}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": place, "delta": delta}
            yield {"type": "content_block_stop", "index": place}
        stop = {"stop_reason": done["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}
        yield {"type": "message_stop"}

    def _deltas(self, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The empty block, then what is added to it."""
        if block["type"] == "text":
            yield {**block, "text": ""}
            yield {"type": "text_delta", "text": block["text"]}
        elif block["type"] == "thinking":
            yield {**block, "thinking": "", "signature": ""}
            yield {"type": "thinking_delta", "thinking": block["thinking"]}
            yield {"type": "signature_delta", "signature": block["signature"]}
        else:
            yield {**block, "input": {}}
            arguments = json.dumps(block["input"])
            yield {"type": "input_json_delta", "partial_json": arguments[:4]}
            yield {"type": "input_json_delta", "partial_json": arguments[4:]}
