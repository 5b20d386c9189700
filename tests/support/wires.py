# ruff: noqa: SLF001 - a payload is what private methods build; there is no public way to see it
"""The payload that each real integration builds, judged by its provider's rules.

`payload` asks the installed LangChain integration, offline and with a fake key, for what it would
send. `refusals` reads that payload and names every rule of the provider which it breaks, so that an
empty list means "accepted". Nothing here imports langgraph_patch: the two must not share a mistake.

A rule is *ours* if it is about ids, names, arguments, pairing or the order of calls and results.
The others (content that a wire does not know, a call right after another message of the model, ...)
are facts about other messages, which a repair leaves alone; `ours_only=False` names them as well.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import botocore.session
from botocore.validate import ParamValidator
from langchain_anthropic import ChatAnthropic
from langchain_aws.chat_models.bedrock_converse import _messages_to_bedrock
from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_mistralai import ChatMistralAI
from langchain_openai import ChatOpenAI

WIRES = ("openai-chat", "openai-responses", "anthropic", "gemini", "mistral", "bedrock")

_KEY: Any = "sk-fake"
_CLAUDE = "anthropic.claude-sonnet-4-6-v1:0"

Payload: TypeAlias = list[dict[str, Any]]


# --- what is sent -----------------------------------------------------------------------------

_model = cache(lambda kind, **options: kind(**options))


def _sent_by_openai(key: str, sent: list[BaseMessage], **options: Any) -> Payload:
    model = _model(ChatOpenAI, model="gpt-5", api_key=_KEY, **options)
    return model._get_request_payload(sent)[key]


def _sent_by_anthropic(sent: list[BaseMessage]) -> Payload:
    model = _model(ChatAnthropic, model="claude-sonnet-4-6", api_key=_KEY)
    return model._get_request_payload(sent)["messages"]


def _sent_by_gemini(sent: list[BaseMessage]) -> Payload:
    model = _model(ChatGoogleGenerativeAI, model="gemini-2.5-flash", google_api_key=_KEY)
    contents = model._prepare_request(sent)["contents"]
    return [content.model_dump(exclude_none=True) for content in contents]


def _sent_by_mistral(sent: list[BaseMessage]) -> Payload:
    model = _model(ChatMistralAI, model="mistral-large-latest", api_key=_KEY)
    return model._create_message_dicts(sent, None)[0]


INTEGRATIONS: dict[str, Callable[[list[BaseMessage]], Any]] = {
    "openai-chat": partial(_sent_by_openai, "messages", use_responses_api=False),
    "openai-responses": partial(_sent_by_openai, "input", use_responses_api=True),
    "anthropic": _sent_by_anthropic,
    "gemini": _sent_by_gemini,
    "mistral": _sent_by_mistral,
    "bedrock": lambda sent: _messages_to_bedrock(sent, model_id=_CLAUDE, provider="anthropic")[0],
}
"""Wire -> what its integration sends for a history."""

# What the integrations say about content which they move or drop: true, and not the claim here.
_SPOKEN = (
    "HumanMessage with empty content was removed",
    "Server tool call with name",
    "A non-leading `SystemMessage` was moved",
)


def payload(wire: str, messages: Sequence[Any]) -> Payload:
    """The turns that the wire's integration would send for these messages."""
    # A copy, because Bedrock strips whitespace off the last message in place.
    sent = copy.deepcopy(convert_to_messages(messages))
    with warnings.catch_warnings():
        for words in _SPOKEN:
            warnings.filterwarnings("ignore", message=words)
        return INTEGRATIONS[wire](sent)


# --- what a payload says ----------------------------------------------------------------------


class Call(NamedTuple):
    """A tool call in a payload."""

    id: Any
    name: Any
    arguments: Any
    kind: str = "function_call"


class Result(NamedTuple):
    """An answer to a tool call in a payload; `late` if other content is before it."""

    id: Any
    kind: str = "function_call"
    late: bool = False


@dataclass(frozen=True)
class Turn:
    """Neighbouring messages of one role: a model's calls, their results, or neither."""

    calls: Sequence[Call] = ()
    results: Sequence[Result] = ()


def _blocks(message: dict[str, Any], key: str = "content") -> list[dict[str, Any]]:
    """The parts of a message that are dicts."""
    parts = message.get(key)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _chat_turns(messages: Payload) -> list[Turn]:
    """Chat Completions and Mistral: a run of `tool` messages is one turn of results."""
    turns: list[Turn] = []
    for message in messages:
        if message["role"] != "tool":
            named = [(each.get("id"), each["function"]) for each in message.get("tool_calls") or ()]
            turns.append(Turn([Call(i, f["name"], f["arguments"]) for i, f in named]))
            continue
        before = turns.pop().results if turns and turns[-1].results else ()
        turns.append(Turn(results=[*before, Result(message.get("tool_call_id"))]))
    return turns


def _block_turns(
    messages: Payload, key: str, read: Callable[[dict[str, Any]], Call | Result | None]
) -> list[Turn]:
    """Anthropic, Bedrock and Gemini: calls and results are parts of messages."""
    turns = []
    for message in messages:
        found = [read(block) for block in _blocks(message, key)]
        results = [
            each._replace(late=any(not isinstance(other, Result) for other in found[:place]))
            for place, each in enumerate(found)
            if isinstance(each, Result)
        ]
        turns.append(Turn([each for each in found if isinstance(each, Call)], results))
    return turns


def _read_anthropic(block: dict[str, Any]) -> Call | Result | None:
    if block.get("type") == "tool_use":
        return Call(block["id"], block["name"], block["input"])
    return Result(block["tool_use_id"]) if block.get("type") == "tool_result" else None


def _read_bedrock(block: dict[str, Any]) -> Call | Result | None:
    if call := block.get("toolUse"):
        return Call(call["toolUseId"], call["name"], call["input"])
    return Result(block["toolResult"]["toolUseId"]) if "toolResult" in block else None


def _read_gemini(part: dict[str, Any]) -> Call | Result | None:
    """No ids are sent: a call and its response have only a name and a place."""
    call = part.get("function_call") or part.get("functionCall")
    if call is not None:
        return Call(None, call.get("name"), call.get("args", {}))
    response = part.get("function_response") or part.get("functionResponse")
    return None if response is None else Result(response.get("name"))


def _responses_turns(items: Payload) -> list[Turn]:
    """Responses: calls and outputs are items, paired by `call_id` wherever they stand."""
    calls, results = [], []
    for item in items:
        kind = str(item.get("type"))
        if kind in ("function_call", "custom_tool_call"):
            arguments = item.get("arguments" if kind == "function_call" else "input")
            calls.append(Call(item.get("call_id"), item.get("name"), arguments, kind))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            results.append(Result(item.get("call_id"), kind.removesuffix("_output")))
    return [Turn(calls, results)]


# --- the rules --------------------------------------------------------------------------------


class Refusal(NamedTuple):
    """One rule of a provider that a payload breaks."""

    rule: str
    detail: str
    ours: bool = True

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


Rule: TypeAlias = Callable[[Payload, list[Turn]], Iterable[Refusal]]


def _calls(ids: str, names: str, arguments: type) -> Rule:
    """Every call has an id, a name and arguments that the provider takes."""

    def rule(_sent: Payload, turns: list[Turn]) -> Iterator[Refusal]:
        for call in [call for turn in turns for call in turn.calls]:
            if ids and not (isinstance(call.id, str) and re.fullmatch(ids, call.id, re.DOTALL)):
                yield Refusal("bad-id", f"call {call.id!r} of {call.name!r}")
            if not (isinstance(call.name, str) and re.fullmatch(names, call.name)):
                yield Refusal("bad-name", f"{call.name!r} of call {call.id!r}")
            if not isinstance(call.arguments, arguments):
                yield Refusal("bad-arguments", f"{call.arguments!r} of call {call.id!r}")

    return rule


def _unique_in_message(_sent: Payload, turns: list[Turn]) -> Iterator[Refusal]:
    """No id is twice in one message."""
    for turn in turns:
        for id_, count in Counter(call.id for call in turn.calls).items():
            if count > 1:
                yield Refusal("repeated-id", f"{id_!r} is {count} times in one message")


def _unique_in_history(sent: Payload, turns: list[Turn]) -> Iterator[Refusal]:
    """No id is twice in the history."""
    yield from _unique_in_message(sent, [Turn([call for turn in turns for call in turn.calls])])


def _answered_next(_sent: Payload, turns: list[Turn]) -> Iterator[Refusal]:
    """The turn after a model's calls holds one result for each of them, and no other result."""
    for asked, value in pairwise([Turn(), *turns, Turn()]):
        yield from _paired({c.id for c in asked.calls}, Counter(r.id for r in value.results))


def _answered_somewhere(_sent: Payload, turns: list[Turn]) -> Iterator[Refusal]:
    """Each call has one output of its own kind, each output a call."""
    (turn,) = turns
    calls = {(call.id, call.kind) for call in turn.calls}
    yield from _paired(calls, Counter((result.id, result.kind) for result in turn.results))


def _paired(calls: set[Any], results: Counter[Any]) -> Iterator[Refusal]:
    for id_, count in results.items():
        if id_ not in calls:
            yield Refusal("orphan-result", f"{id_!r} answers no call")
        elif count > 1:
            yield Refusal("repeated-result", f"{id_!r} is answered {count} times")
    for id_ in calls - results.keys():
        yield Refusal("unanswered-call", f"{id_!r} has no result")


def _answered_by_number(_sent: Payload, turns: list[Turn]) -> Iterator[Refusal]:
    """The turn after a model's calls has as many responses as there are calls, each with a name."""
    for asked, value in pairwise([Turn(), *turns, Turn()]):
        numbers = f"{len(value.results)} responses to {len(asked.calls)} calls"
        if len(value.results) < len(asked.calls):
            yield Refusal("unanswered-call", numbers)
        if len(value.results) > len(asked.calls):
            yield Refusal("orphan-result", numbers)
        if not all(result.id for result in value.results):
            yield Refusal("bad-name", "a response without a name")


def _results_first(_sent: Payload, turns: list[Turn]) -> Iterator[Refusal]:
    """Nothing is before a result in its message."""
    for result in [result for turn in turns for result in turn.results]:
        if result.late:
            yield Refusal("late-result", f"{result.id!r} is after other content")


def _no_result_blocks(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
    """A result is no part of a user's or a model's content."""
    for block in [block for message in sent for block in _blocks(message)]:
        if block.get("type") == "tool_result":
            yield Refusal("result-in-content", f"{block.get('tool_use_id')!r}")


def _no_function_role(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
    """The Responses API knows no role `function`."""
    for item in sent:
        if item.get("role") in ("function", "tool"):
            yield Refusal("bad-role", f"{item['role']!r}")


@cache
def _converse() -> Any:
    service = botocore.session.get_session().get_service_model("bedrock-runtime")
    return service.operation_model("Converse").input_shape


def _sendable(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
    """Boto3 itself takes the request."""
    report = ParamValidator().validate({"modelId": _CLAUDE, "messages": sent}, _converse())
    if report.has_errors():
        detail = report.generate_report()
        yield Refusal("bad-shape", detail, ours="toolUse" in detail or "toolResult" in detail)


# Not ours: what other messages contain, and in which order they stand.


def _known_content(*known: str) -> Rule:
    """Every content block is of a type that the provider knows."""

    def rule(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
        for block in [block for message in sent for block in _blocks(message)]:
            if block.get("type") not in (*known, "tool_result"):
                yield Refusal("foreign-content", f"{block.get('type')!r}", ours=False)

    return rule


def _something_said(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
    """A message of the user or the model is not empty."""
    for message in sent:
        said = message.get("content") or message.get("tool_calls")
        if message["role"] in ("user", "assistant") and not said:
            yield Refusal("empty-message", message["role"], ours=False)


def _no_text_after_a_call(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
    """Once a model has called, it says no more in that message."""
    for message in sent:
        types = [block.get("type") for block in _blocks(message)]
        if "tool_use" in types and "text" in types[types.index("tool_use") :]:
            yield Refusal("text-after-call", "in one assistant message", ours=False)


def _server_tools_closed(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
    """A tool of the server is answered by the server."""
    blocks = [block for message in sent for block in _blocks(message)]
    answered = {block.get("tool_use_id") for block in blocks}
    for block in blocks:
        if block.get("type") == "server_tool_use" and block["id"] not in answered:
            yield Refusal("open-server-tool", f"{block['id']!r}", ours=False)


def _reasoning_followed(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
    """A reasoning item comes with the item that it was thought for."""
    for item, after in pairwise([*sent, {}]):
        follows = str(after.get("type")).endswith(("_call", "soning"))
        if item.get("type") == "reasoning" and not (follows or after.get("role") == "assistant"):
            yield Refusal("lonely-reasoning", f"{item.get('id')!r}", ours=False)


def _called_by_turn(sent: Payload, turns: list[Turn]) -> Iterator[Refusal]:
    """A model calls only after a user or after responses."""
    for content, turn in zip([{}, *sent], turns, strict=False):
        if turn.calls and content.get("role") != "user":
            yield Refusal("call-after-model", repr(turn.calls[0].name), ours=False)


# Not ours: what a message may say, as `docs/pages/refused.md` has it with the sources.


def _texts_say_something(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
    """No text is blank, alone or as a block."""
    texts = [message.get("content") for message in sent]
    texts += [block.get("text") for message in sent for block in _blocks(message)]
    if not all(text.strip() for text in texts if isinstance(text, str)):
        yield Refusal("blank-text", "text content blocks must not be blank", ours=False)


def _names_of_messages(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
    """The name of who writes has no spaces and no brackets."""
    for message in sent:
        if not re.fullmatch(r"[^\s<|\\/>]*", message.get("name", "")):
            yield Refusal("bad-author", f"{message['name']!r} does not match pattern", ours=False)


def _items_stand_together(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
    """No id of an item is twice; a call has its reasoning, a call of a computer its output."""
    for item_id, count in Counter(item["id"] for item in sent if item.get("id")).items():
        if count > 1:
            yield Refusal("repeated-item", f"Duplicate item found with id {item_id}.", ours=False)
    outputs = {item.get("call_id") for item in sent if item.get("type") == "computer_call_output"}
    for index, item in enumerate(sent):
        kinds = [str(each.get("type")) for each in sent[:index]]
        while kinds and kinds[-1] == "function_call":
            kinds.pop()
        if str(item.get("id", "")).startswith("fc_") and kinds[-1:] != ["reasoning"]:
            yield Refusal("no-reasoning", f"{item['id']!r} without its reasoning item", ours=False)
        if item.get("type") == "computer_call" and item["call_id"] not in outputs:
            yield Refusal("no-output", f"computer call {item['call_id']!r}", ours=False)


def _thinking_is_signed(sent: Payload, _turns: list[Turn]) -> Iterator[Refusal]:
    """A `thinking` block has a signature, and is not the last one."""
    for message in sent:
        blocks = _blocks(message)
        if any(b["type"] == "thinking" and not b.get("signature") for b in blocks):
            yield Refusal("no-signature", "thinking.signature: Field required", ours=False)
        if message["role"] == "assistant" and blocks and "thinking" in blocks[-1]["type"]:
            yield Refusal("thinking-last", "the final block cannot be `thinking`", ours=False)


_NAME = "[a-zA-Z0-9_-]{1,64}"
_CLAUDES_CONTENT = (
    *("text", "image", "document", "search_result", "thinking", "redacted_thinking"),
    *("tool_use", "server_tool_use", "web_search_tool_result"),
)

_RULES: dict[str, tuple[Callable[[Payload], list[Turn]], tuple[Rule, ...]]] = {
    "openai-chat": (
        _chat_turns,
        (
            *(_calls(".{1,40}", _NAME, str), _unique_in_message, _answered_next, _no_result_blocks),
            _known_content("text", "image_url", "input_audio", "file", "refusal"),
        ),
    ),
    "openai-responses": (
        _responses_turns,
        (
            *(_calls(".{1,64}", _NAME, str), _unique_in_history, _answered_somewhere),
            *(_no_function_role, _reasoning_followed),
        ),
    ),
    "anthropic": (
        partial(_block_turns, key="content", read=_read_anthropic),
        (
            _calls("[a-zA-Z0-9_-]+", "[a-zA-Z0-9_-]{1,128}", dict),
            *(_unique_in_history, _answered_next, _results_first, _no_text_after_a_call),
            *(_server_tools_closed, _something_said, _known_content(*_CLAUDES_CONTENT)),
        ),
    ),
    "gemini": (
        partial(_block_turns, key="parts", read=_read_gemini),
        (_calls("", ".+", dict), _answered_by_number, _called_by_turn),
    ),
    "mistral": (
        _chat_turns,
        (
            *(_calls("[a-zA-Z0-9]{9}", _NAME, str), _unique_in_message, _answered_next),
            *(_no_result_blocks, _something_said),
            _known_content("text", "image_url", "document_url", "reference", "thinking"),
        ),
    ),
    "bedrock": (
        partial(_block_turns, key="content", read=_read_bedrock),
        (
            *(_calls("[a-zA-Z0-9_.:-]{1,64}", _NAME, dict), _unique_in_history, _answered_next),
            *(_results_first, _sendable),
        ),
    ),
}


_OF_STATES: dict[str, tuple[Rule, ...]] = {
    "openai-chat": (_names_of_messages,),
    "openai-responses": (_items_stand_together,),
    "anthropic": (_texts_say_something, _thinking_is_signed),
    "bedrock": (_texts_say_something,),
}
"""What the models that reason refuse besides, and those that take no blank text."""


def broken_rules(wire: str, sent: Payload) -> list[Refusal]:
    """Every rule of the wire's provider which this payload breaks."""
    read, rules = _RULES[wire]
    turns = read(sent)
    return [refusal for rule in rules for refusal in rule(sent, turns)]


def reason(wire: str, messages: Sequence[Any]) -> str | None:
    """Why the provider refuses these messages; None if it does not.

    Raises:
        Exception: What the integration raises, if it cannot build the request.
    """
    sent = payload(wire, messages)
    found = [
        *broken_rules(wire, sent),
        *(r for rule in _OF_STATES.get(wire, ()) for r in rule(sent, [])),
    ]
    return "; ".join(map(str, found)) or None


def refusals(wire: str, messages: Sequence[Any], *, ours_only: bool = True) -> list[str]:
    """Why the wire would not take these messages; empty if it would.

    An integration that raises before anything is sent refuses too.
    """
    try:
        found = broken_rules(wire, payload(wire, messages))
    except Exception as error:  # noqa: BLE001 - whatever it raises, nothing is sent
        # Two system messages apart from each other: true of the history with or without a repair.
        ours = "non-consecutive system messages" not in str(error)
        found = [Refusal("raised", f"{type(error).__name__}: {error}", ours=ours)]
    return [str(refusal) for refusal in found if refusal.ours or not ours_only]


def assert_accepted(messages: Sequence[Any], wires: Iterable[str] = WIRES) -> None:
    """Every one of the wires takes these messages."""
    found = {wire: refused for wire in wires if (refused := refusals(wire, messages))}
    assert not found, f"{found} for {messages!r}"
