"""Find the tool calls that a model run did not finish writing, and mark them as invalid.

When a stream ends inside the arguments of a tool call, LangChain's partial JSON parser completes
them: `{"city": "Zürich", "days": [1, 2` becomes a valid call with `days=[1, 2]`, and an agent runs
it. Only the raw text of the chunks shows that the call is incomplete. It is judged here:

- Arguments that are not empty: strict JSON decides. The reason for the end is ignored, so a
  complete call is never refused.
- Empty arguments, and another call follows: the call is complete.
- Empty arguments of the last call: incomplete only if the provider names a reason that cuts
  (`max_tokens`, ...) or the stream failed. A missing or unknown reason never refuses a call.

Where a provider gives the arguments as an object, nothing shows that keys are missing. Then the
last call of a message that ended at the token limit counts as truncated, if nothing follows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import ToolCallChunk, invalid_tool_call
from langchain_core.utils.json import parse_partial_json

from langgraph_patch.history.calls import STOPPED, complete_args
from langgraph_patch.history.fields import UNKNOWN_TOOL, blocks_of, text_of, with_text

REASON_KEYS: Final = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
"""Where integrations put the provider's reason for the end of a stream."""

CUT_REASONS: Final = frozenset(
    {
        "content_filter",
        "content_filtered",
        "error",
        "guardrail_intervened",
        "incomplete",
        "insufficient_system_resource",
        "length",
        "max_length",
        "max_output_tokens",
        "max_tokens",
        "model_context_window_exceeded",
        "model_length",
        "network_error",
    }
)
"""Reasons that mean: the provider stopped the model before it had finished."""

_LIMITS: Final = frozenset({"max_tokens", "model_context_window_exceeded"})
"""The reasons of Anthropic and Bedrock for an end at the token limit."""

MALFORMED_REASONS: Final = frozenset(
    {"MALFORMED_FUNCTION_CALL", "malformed_model_output", "malformed_tool_use"}
)
"""Reasons of Gemini and Bedrock that mean: what the model wrote could not be read as a call."""


@dataclass(slots=True)
class StreamedCall:
    """One tool call of a stream.

    Attributes:
        id: The id of the call; `""` where there is none.
        name: The name of the tool; `""` where there is none.
        raw: The text of the arguments, as it arrived.
        args: The arguments; None if the model did not finish writing them.
        chunks: Its chunks. If they contradict each other, the first id and name count.
    """

    id: str = ""
    name: str = ""
    raw: str = ""
    args: dict[str, Any] | None = None
    chunks: list[ToolCallChunk] = field(default_factory=list, repr=False)

    def is_completed(self, call: Mapping[str, Any]) -> bool:
        """Whether `call` is what LangChain makes of this call, if it is truncated."""
        same_id = text_of(call.get("id")) == self.id
        return same_id and self.args is None and call.get("args") == _completed_args(self.raw)


class StreamedCalls:
    """Collects the chunks of one model run. `add` runs for every chunk, so it only stores them.

    Attributes:
        message_ids: The ids that the chunks have; the merged message has one of them.
        is_streamed: Whether the model was streamed; not all integrations report chunks.
        is_judged: Whether LangChain judges the calls strictly itself, and reports no chunks.
    """

    def __init__(self) -> None:
        self.message_ids: set[str] = set()
        self.is_streamed = self.is_judged = self._content_follows = False
        self._chunks: list[ToolCallChunk] = []
        self._metadata: list[Mapping[str, Any]] = []

    def add(self, message: object) -> None:
        """Store what one chunk adds. Its fields are read from its `__dict__`: most are of text."""
        self.is_streamed = True
        fields = getattr(message, "__dict__", {})
        if (chunks := fields.get("tool_call_chunks")) is None:
            return  # not a chunk of a message
        if chunks:
            self._chunks.extend(chunks)
            self._content_follows = False
        elif self._chunks and _has_content(fields["content"]):
            self._content_follows = True
        if fields["response_metadata"]:
            self._metadata.append(fields["response_metadata"])
        if (message_id := fields["id"]) is not None:
            self.message_ids.add(message_id)

    def calls(
        self, message: AIMessage | None = None, *, failed: bool = False
    ) -> list[StreamedCall]:
        """The calls in the order in which they began, each judged by its raw text.

        Args:
            message: The message of the run. Default: None, the run has none.
            failed: Whether the stream ended with an error. Default: False.
        """
        calls = self._streamed(failed=failed)
        if message is None or self._content_follows or any(call.args is None for call in calls):
            return calls
        is_streamed = self.is_streamed or self.is_judged
        return _calls_cut_at_limit(message, is_streamed=is_streamed) or calls

    def _streamed(self, *, failed: bool) -> list[StreamedCall]:
        calls = group_call_chunks(() if self.is_judged else self._chunks)
        for call in calls:
            call.raw = "".join(chunk.get("args") or "" for chunk in call.chunks)
            call.args = complete_args(call.raw)  # {} if it is empty
        if calls and not calls[-1].raw and (failed or self._is_cut()):
            calls[-1].args = None
        return calls

    def _is_cut(self) -> bool:
        reasons = (metadata.get(key) for metadata in self._metadata for key in REASON_KEYS)
        return any(str(reason).lower() in CUT_REASONS for reason in reasons if reason)


# --- messages whose calls have no raw text ---------------------------------------------------


def is_unusable(message: AIMessage) -> bool:
    """Whether a message of a model has neither a call that can run nor an answer.

    Text before the calls announces them; only text behind them answers.
    """
    if message.tool_calls:
        return False
    if message.invalid_tool_calls:
        return not message.text or _ends_with_call(message)
    reasons = [text_of(message.response_metadata.get(key)) for key in REASON_KEYS]
    is_malformed = any(each in reason for each in MALFORMED_REASONS for reason in reasons)
    return is_malformed and not message.text


def _calls_cut_at_limit(message: AIMessage, *, is_streamed: bool) -> list[StreamedCall]:
    """The calls of a message whose last call ended at the token limit; none of any other one.

    An invalid call is the one that was cut off, if there is one: LangChain lists it separately.
    """
    is_cut = _is_cut_at_limit(message.response_metadata, is_streamed=is_streamed)
    is_valid = message.tool_calls and not message.invalid_tool_calls
    if not (is_cut and is_valid and _ends_with_call(message)):
        return []
    calls = []
    for call in message.tool_calls:
        raw = json.dumps(call["args"], ensure_ascii=False)
        calls.append(StreamedCall(text_of(call["id"]), call["name"], raw, call["args"]))
    # Without the last brace the text shows that the call is incomplete, also to later repairs.
    calls[-1].raw, calls[-1].args = calls[-1].raw[:-1], None
    return calls


def _is_cut_at_limit(metadata: Mapping[str, Any], *, is_streamed: bool) -> bool:
    """Whether a message that may give arguments as objects ended at the token limit.

    Gemini gives them so in streams too. Anthropic and Bedrock stream their text, which decides.
    Where two chunks of a stream have a reason, LangChain joins them to one text.
    """
    provider = text_of(metadata.get("model_provider") or "google")
    if "MAX_TOKENS" in text_of(metadata.get("finish_reason")) and provider.startswith("google"):
        return True
    reasons = {text_of(metadata.get(key)) for key in ("stop_reason", "stopReason")}
    return not is_streamed and not reasons.isdisjoint(_LIMITS)


def _ends_with_call(message: AIMessage) -> bool:
    """Whether nothing follows the calls in the content. Their place in it may be unknown."""
    places = [index for index, block in enumerate(blocks_of(message)) if block.is_call]
    return not places or not _has_content(message.content[places[-1] + 1 :])


def _has_content(content: str | list[Any]) -> bool:
    """Whether content is more than an empty text, in which Gemini may send a signature."""
    blocks = [content] if isinstance(content, str) else content
    texts = [block.get("text") if isinstance(block, dict) else block for block in blocks]
    return any(text != "" for text in texts)


# --- the chunks of a call ------------------------------------------------------------------


def group_call_chunks(chunks: Iterable[ToolCallChunk]) -> list[StreamedCall]:
    """The calls in the order in which they began, each with its id, its name and its chunks.

    A chunk continues the newest call of its index, unless it has another id, or a name and
    arguments when those of that call are complete: then it begins a call. Servers that send index
    0 for every call, with ids or without, are read correctly so. A chunk without an index begins a
    call if it has a name, or an id that the newest call does not have. Otherwise it continues the
    newest call.

    Args:
        chunks: The chunks in the order of arrival. They are not changed.
    """
    calls: list[StreamedCall] = []
    newest: dict[object, StreamedCall] = {}  # by index; by None the call that began last
    for chunk in chunks:
        index = chunk.get("index")
        call = newest.get(index)
        if call is None or _begins_call(chunk, call):
            call = newest[index] = newest[None] = StreamedCall()
            calls.append(call)
        call.id = call.id or text_of(chunk.get("id"))
        call.name = call.name or text_of(chunk.get("name"))
        call.chunks.append(chunk)
    return calls


def _begins_call(chunk: ToolCallChunk, newest: StreamedCall) -> bool:
    """Whether a chunk does not continue the newest call, of its index or of all."""
    call_id = text_of(chunk.get("id"))
    is_other = bool(call_id) and call_id != newest.id
    if chunk.get("index") is None:
        return is_other or bool(chunk.get("name"))
    names_more = bool(chunk.get("name") and chunk.get("args"))
    return (is_other and bool(newest.id)) or (names_more and _is_whole(newest))


def _is_whole(call: StreamedCall) -> bool:
    """Whether the arguments of a call are a complete object, which nothing can continue."""
    texts = [text_of(chunk.get("args")) for chunk in call.chunks]
    ends = bool(texts) and texts[-1].rstrip().endswith("}")
    return ends and complete_args("".join(texts)) is not None


# --- correcting a message ----------------------------------------------------------------


def refuse_truncated(message: AIMessage, calls: Sequence[StreamedCall]) -> bool:
    """Move the truncated calls of `message` from `tool_calls` to `invalid_tool_calls`, in place.

    Their raw copies are removed. A truncated call is found by its id and by the arguments that
    LangChain made of its text. If it is not found, some of its chunks were not reported, and what
    LangChain merged stays.

    Args:
        message: The message as LangChain merged it; it is changed.
        calls: The calls of its stream.

    Returns:
        Whether a call was moved.
    """
    truncated = [call for call in calls if call.args is None]
    kept, refused = [], []
    for entry in message.tool_calls:
        found = next((call for call in truncated if call.is_completed(entry)), None)
        if found is None:
            kept.append(entry)
        else:
            truncated.remove(found)
            refused.append(found)
    if not refused:
        return False
    ids = {call.id for call in refused}
    message.tool_calls = kept
    message.invalid_tool_calls = [*message.invalid_tool_calls, *map(_invalid, refused)]
    if isinstance(message.content, list):
        message.content = [
            (block.with_args({}) if block.is_call and block.call_id in ids else block).stored
            for block in blocks_of(message)
        ]
    # Gemini has a copy of its last call, without an id, under `function_call`.
    raw_copies = {k: v for k, v in message.additional_kwargs.items() if k != "function_call"}
    if isinstance(raws := raw_copies.get("tool_calls"), list):
        left = [raw for raw in raws if not (isinstance(raw, dict) and raw.get("id") in ids)]
        raw_copies["tool_calls"] = left
    message.additional_kwargs = raw_copies
    if isinstance(message, AIMessageChunk):
        message.tool_call_chunks = [c for c in message.tool_call_chunks if c.get("id") not in ids]
    return True


def drop_truncated(message: AIMessage, calls: Sequence[StreamedCall]) -> bool:
    """Take the truncated calls out of `message` altogether, in place.

    If it says nothing then, it gets a text that names them: some providers refuse an empty message
    in each later turn.

    Args:
        message: The message as LangChain merged it; it is changed.
        calls: The calls of its stream.

    Returns:
        Whether a call was dropped.
    """
    refuse_truncated(message, calls)
    ids = {call.id for call in calls if call.args is None}
    left = [call for call in message.invalid_tool_calls if text_of(call.get("id")) not in ids]
    changed = len(left) < len(message.invalid_tool_calls)
    message.invalid_tool_calls = left
    if changed and isinstance(message.content, list):
        kept = [b for b in blocks_of(message) if not (b.is_call and b.call_id in ids)]
        message.content = [block.stored for block in kept]
    if changed and not (message.tool_calls or left or message.text.strip()):
        names = ", ".join(call.name or UNKNOWN_TOOL for call in calls if call.args is None)
        text = f"[The model did not finish a call of {names}; it was not run.]"
        message.content = with_text(message, message.content, text)
    return changed


def _completed_args(raw: str) -> Any:
    """What LangChain's partial parser makes of arguments; None if it finds them invalid."""
    try:
        return parse_partial_json(raw) if raw else {}
    except (ValueError, RecursionError):
        return None


def _invalid(call: StreamedCall) -> Any:
    name, call_id = call.name or None, call.id or None
    return invalid_tool_call(name=name, args=call.raw, id=call_id, error=STOPPED)
