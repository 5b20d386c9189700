"""Six providers that refuse what the real ones refuse of messages, beside calls and results.

The payload is what the real integration builds; `wires` has the rules for calls and results, and
here are those for what messages say. `docs/pages/providers.md` has their sources.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from support.states import CLAUDE, FOUND, SEARCH, TEXT, THINKING, call_block, reasoning
from support.wires import Payload, broken_rules, payload


def reason(wire: str, messages: Sequence[BaseMessage]) -> str | None:
    """Why the provider refuses these messages; None if it does not.

    Raises:
        Exception: What the integration raises, if it cannot build the request.
    """
    sent = payload(wire, messages)
    found = [*map(str, broken_rules(wire, sent)), *_RULES.get(wire, lambda _: ())(sent)]
    return "; ".join(found) or None


def _texts(sent: Payload) -> Iterator[str]:
    for message in sent:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        yield from (part["text"] for part in parts if isinstance(part.get("text"), str))


def _of_chat(sent: Payload) -> Iterator[str]:
    for message in sent:
        if not re.fullmatch(r"[^\s<|\\/>]*", message.get("name", "")):
            yield "Invalid 'messages[1].name': string does not match pattern."


def _of_responses(sent: Payload) -> Iterator[str]:
    ids = Counter(item["id"] for item in sent if item.get("id"))
    for item_id, count in ids.items():
        if count > 1:
            yield f"Duplicate item found with id {item_id}."
    outputs = {item.get("call_id") for item in sent if item.get("type") == "computer_call_output"}
    for index, item in enumerate(sent):
        kinds = [str(each.get("type")) for each in sent[:index]]
        while kinds and kinds[-1] == "function_call":
            kinds.pop()
        if item.get("id", "").startswith("fc_") and kinds[-1:] != ["reasoning"]:
            yield f"Item '{item['id']}' was provided without its required 'reasoning' item."
        if item.get("type") == "computer_call" and item["call_id"] not in outputs:
            yield f"No tool output found for computer call {item['call_id']}."


def _of_anthropic(sent: Payload) -> Iterator[str]:
    if not all(text.strip() for text in _texts(sent)):
        yield "messages: text content blocks must contain non-whitespace text"
    for message in sent:
        blocks = [b for b in message["content"] if isinstance(b, dict)]
        if any(b["type"] == "thinking" and not b.get("signature") for b in blocks):
            yield "messages.1.content.0.thinking.signature: Field required"
        if message["role"] == "assistant" and blocks and "thinking" in blocks[-1]["type"]:
            yield "The final block in an assistant message cannot be `thinking`."


def _of_bedrock(sent: Payload) -> Iterator[str]:
    if not all(text.strip() for text in _texts(sent)):
        yield "The text field in the ContentBlock object at messages.1.content.0 is blank."


_RULES: dict[str, Any] = {
    "openai-chat": _of_chat,
    "openai-responses": _of_responses,
    "anthropic": _of_anthropic,
    "bedrock": _of_bedrock,
}


# --- what the providers answer --------------------------------------------------------------------


def calling_answer(wire: str, number: int) -> AIMessage:
    """A message in the form of a provider, with its reasoning, its own tools, and a call."""
    call_id = f"call{number:05}"
    call: Any = {"name": "mail", "args": {"to": "bob"}, "id": call_id, "type": "tool_call"}
    block = {"type": "tool_use", "id": call_id, "name": "mail", "input": {"to": "bob"}}
    item = {**call_block(f"fc_{number}", call_id), "name": "mail", "arguments": '{"to": "bob"}'}
    bedrock = {"text": "hm", "signature": "c2ln"}
    contents: dict[str, Any] = {
        "openai-chat": "",
        "openai-responses": [reasoning(number), item],
        "anthropic": [THINKING, SEARCH, FOUND, TEXT, block],
        "gemini": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, TEXT],
        "mistral": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, TEXT],
        "bedrock": [{"type": "reasoning_content", "reasoning_content": bedrock}, TEXT, block],
    }
    providers = {
        "openai-chat": {"model_provider": "openai"},
        "openai-responses": {"model_provider": "openai"},
        "anthropic": CLAUDE,
        "gemini": {"model_provider": "google_genai"},
        "mistral": {"model_provider": "mistralai"},
        "bedrock": {"model_provider": "bedrock_converse"},
    }
    return AIMessage(contents[wire], tool_calls=[call], response_metadata=providers[wire])
