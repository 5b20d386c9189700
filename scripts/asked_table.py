"""Print what happens to threads with a picture, an order of roles or a blank that is refused.

As Markdown, for each state and each server: how many requests each of four turns took; in bold,
where the turn is refused without the package. `-` is a turn that is refused with it too. Needs the
integrations: `python scripts/asked_table.py [PLACE]`. The servers answer to what those send, with
the providers' own sentences.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.asked import STATES, four_turns
from support.wires import Payload, payload

_BAD = ("YmFk", "b'bad'")
_IMAGES = (*_BAD, "Z29vZA", "b'good'")


def _has(value: object, marks: Sequence[str]) -> bool:
    return any(mark in repr(value) for mark in marks)


def _path_of(sent: Payload) -> tuple[int, int]:
    """Where the first bad image of a payload is."""
    for number, message in enumerate(sent):
        for index, block in enumerate(message.get("content") or ()):
            if _has(block, _BAD):
                return number, index
    raise AssertionError("it has none")


def _roles(sent: Payload) -> list[str]:
    return [message.get("role", message.get("type", "")) for message in sent]


def _blank(sent: Payload) -> tuple[int, int] | None:
    """Where the first text is that says nothing: which message, which block."""
    for number, message in enumerate(sent):
        content = message.get("content", message.get("parts"))
        blocks = [content] if isinstance(content, str) else content or [""]
        for index, block in enumerate(blocks):
            text = block if isinstance(block, str) else block.get("text")
            if isinstance(text, str) and not (text.strip() or message.get("tool_calls")):
                return number, index
    return None


def of_openai(sent: Payload) -> str | None:
    """A model that cannot read one image."""
    return "You uploaded an unsupported image." if _has(sent, _BAD) else None


def of_text_only(sent: Payload) -> str | None:
    """A model that reads no image."""
    text = "Invalid content type. image_url is only supported by certain models."
    return text if _has(sent, _IMAGES) else None


def of_anthropic(sent: Payload) -> str | None:
    """Claude 4.6."""
    if _roles(sent)[0] != "user":
        return 'messages: first message must use the "user" role'
    if _blank(sent):
        return "messages: text content blocks must be non-empty"
    if _roles(sent)[-1] == "assistant":
        return (
            "This model does not support assistant message prefill. The conversation must end with "
            "a user message."
        )
    if _has(sent, _BAD):
        number, index = _path_of(sent)
        return f"messages.{number}.content.{index}.image.source: Could not process image"
    return None


def of_gemini(sent: Payload) -> str | None:
    """Gemini."""
    for before, after in pairwise([{}, *sent]):
        if before.get("role") != "user" and any("function_call" in part for part in after["parts"]):
            return (
                "Please ensure that function call turn comes immediately after a user turn or "
                "after a function response turn."
            )
    if _blank(sent):
        return "contents[1].parts[0].data: required oneof field 'data' must have one initialized"
    if _roles(sent)[-1] == "model":
        return "Please ensure that single turn requests end with a user role."
    return "Unable to process input image. Please retry." if _has(sent, _BAD) else None


def of_new_mistral(sent: Payload) -> str | None:
    """Mistral, with a new validator."""
    if _roles(sent)[-1] == "assistant":
        return "Expected last role User or Tool (or Assistant with prefix True) for serving"
    return None


def of_old_mistral(sent: Payload) -> str | None:
    """Mistral, with a validator before 1.11.1."""
    roles = _roles(sent)
    if ("tool", "user") in pairwise(roles):
        return json.dumps({"message": 'Unexpected role "user" after role "tool"'})
    return of_new_mistral(sent)


def of_bedrock(sent: Payload) -> str | None:
    """A model of Bedrock that takes no result beside a text."""
    if _roles(sent)[0] != "user":
        return "A conversation must start with a user message. Try again with a conversation that"
    if place := _blank(sent):
        where = "messages.{}.content.{}".format(*place)
        return f"The text field in the ContentBlock object at {where} is blank. Add text to the"
    for message in sent:
        kinds = {key for block in message["content"] for key in block}
        if {"toolResult", "text"} <= kinds:
            return "Conversation blocks and tool result blocks cannot be provided in the same turn"
    return None


def of_template(sent: Payload) -> str | None:
    """The template of a local model: users alternate with answers that call nothing."""
    spoken = [m["role"] for m in sent if m["role"] == "user" or not m.get("tool_calls")]
    spoken = [role for role in spoken if role in ("user", "assistant")]
    if spoken[:1] != ["user"] or any(one == other for one, other in pairwise(spoken)):
        return "Conversation roles must alternate user/assistant/user/assistant/..."
    return "At most 0 image(s) may be provided in one request." if _has(sent, _IMAGES) else None


def of_reasoner(sent: Payload) -> str | None:
    """DeepSeek's reasoner: the roles of humans and of answers that call nothing take turns."""
    spoken = [m["role"] for m in sent if m["role"] == "user" or not m.get("tool_calls")]
    spoken = [role for role in spoken if role in ("user", "assistant")]
    if _roles(sent)[0] == "assistant":
        return "The first message must be a user message, but an assistant message detected."
    if any(one == other for one, other in pairwise(spoken)):
        return "deepseek-reasoner does not support successive user or assistant messages"
    if _roles(sent)[-1] == "assistant":
        return "It must be a user message, or an assistant message with prefix mode on"
    return "The message content is empty" if _blank(sent) else None


SERVERS: dict[str, tuple[str, Callable[[Payload], str | None]]] = {
    "OpenAI": ("openai-chat", of_openai),
    "Responses": ("openai-responses", of_openai),
    "no images": ("openai-chat", of_text_only),
    "Anthropic": ("anthropic", of_anthropic),
    "Gemini": ("gemini", of_gemini),
    "Mistral, old": ("mistral", of_old_mistral),
    "Mistral, new": ("mistral", of_new_mistral),
    "Bedrock": ("bedrock", of_bedrock),
    "vLLM": ("openai-chat", of_template),
    "DeepSeek": ("openai-chat", of_reasoner),
}
"""Server -> the wire of its integration, and why it refuses what that sends."""


def turns(place: str, server: str, state: str) -> list[int]:
    """How many requests each of four turns of a thread took with a server; 0 for a refused one."""
    wire, rule = SERVERS[server]
    return four_turns(place, lambda messages: rule(payload(wire, messages)), state)


HEAD = f"| what the thread has | {' | '.join(SERVERS)} |"


def cell(state: str, server: str, place: str) -> str:
    """Four turns of a thread, with those in bold that are refused without the package."""
    bare, patched = (
        "".join(map(str, turns(each, server, state))).replace("0", "-") for each in ("bare", place)
    )
    bold = "".join(
        f"**{one}**" if other == "-" else one for one, other in zip(patched, bare, strict=True)
    )
    return bold.replace("****", "")


def row(state: str, place: str = "create_agent") -> str:
    """One line of the table."""
    return f"| {state} | {' | '.join(cell(state, server, place) for server in SERVERS)} |"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    lines = [HEAD, "|---" * (len(SERVERS) + 1) + "|"]
    lines += [row(state, *sys.argv[1:]) for state in STATES]
    sys.stdout.write("\n".join(lines) + "\n")
