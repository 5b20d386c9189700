# ruff: noqa: SLF001 - a payload is what private methods build; there is no public way to see it
"""The payload that each real integration builds, judged by its provider's rules.

`payload` asks the installed LangChain integration, offline and with a fake key, for what it would
send. `refusals` reads that payload and names every rule of the provider which it breaks, so that an
empty list means "accepted". Nothing here imports langgraph_patch: the two must not share a mistake.

A rule is *ours* if it is about ids, names, arguments, pairing or the order of calls and results.
The others (content that a wire does not know, a user message after a tool message, ...) are facts
about other messages, which a repair leaves alone; `ours_only=False` names them as well.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import botocore.session
from botocore.validate import ParamValidator
from langchain_anthropic import ChatAnthropic
from langchain_aws.chat_models.bedrock import ChatPromptAdapter
from langchain_aws.chat_models.bedrock_converse import _messages_to_bedrock
from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_deepseek import ChatDeepSeek
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_groq import ChatGroq
from langchain_mistralai import ChatMistralAI
from langchain_openai import AzureChatOpenAI, ChatOpenAI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

WIRES = ("openai-chat", "openai-responses", "anthropic", "gemini", "mistral", "bedrock")

_KEY = "sk-fake"
_CLAUDE = "anthropic.claude-sonnet-4-6-v1:0"


class Refusal(NamedTuple):
    """One rule of a provider that a payload breaks."""

    rule: str
    detail: str
    ours: bool = True

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


# --- what is sent -----------------------------------------------------------------------------


@cache
def _openai_chat() -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o", api_key=_KEY, use_responses_api=False)


@cache
def _openai_responses() -> ChatOpenAI:
    return ChatOpenAI(model="gpt-5", api_key=_KEY, use_responses_api=True)


@cache
def _anthropic() -> ChatAnthropic:
    return ChatAnthropic(model="claude-sonnet-4-6", api_key=_KEY)


@cache
def _gemini() -> ChatGoogleGenerativeAI:
    return ChatGoogleGenerativeAI(model="gemini-2.5-flash", google_api_key=_KEY)


@cache
def _mistral() -> ChatMistralAI:
    return ChatMistralAI(model="mistral-large-latest", api_key=_KEY)


_BUILDERS: dict[str, Callable[[list[BaseMessage]], list[dict[str, Any]]]] = {
    "openai-chat": lambda sent: _openai_chat()._get_request_payload(sent)["messages"],
    "openai-responses": lambda sent: _openai_responses()._get_request_payload(sent)["input"],
    "anthropic": lambda sent: _anthropic()._get_request_payload(sent)["messages"],
    "gemini": lambda sent: [
        content.model_dump(exclude_none=True)
        for content in _gemini()._prepare_request(sent)["contents"]
    ],
    "mistral": lambda sent: _mistral()._create_message_dicts(sent, None)[0],
    "bedrock": lambda sent: _messages_to_bedrock(sent, model_id=_CLAUDE, provider="anthropic")[0],
}

# What the integrations say about content which they move or drop: true, and not the claim here.
_SPOKEN = (
    "HumanMessage with empty content was removed",
    "Server tool call with name",
    "A non-leading `SystemMessage` was moved",
)


def payload(wire: str, messages: Sequence[Any]) -> list[dict[str, Any]]:
    """The turns that the wire's integration would send for these messages."""
    # A copy, because Bedrock strips whitespace off the last message in place.
    sent = copy.deepcopy(convert_to_messages(messages))
    with warnings.catch_warnings():
        for words in _SPOKEN:
            warnings.filterwarnings("ignore", message=words)
        return _BUILDERS[wire](sent)


def _azure(sent: list[BaseMessage]) -> Any:
    model = AzureChatOpenAI(
        azure_deployment="d", api_version="2024-10-21", azure_endpoint="http://x", api_key=_KEY
    )
    return model._get_request_payload(sent)


INTEGRATIONS: dict[str, Callable[[list[BaseMessage]], Any]] = {
    **_BUILDERS,
    "azure": _azure,
    "bedrock-invoke": lambda sent: ChatPromptAdapter.format_messages("anthropic", sent),
    "deepseek": lambda sent: ChatDeepSeek(model="deepseek-chat", api_key=_KEY)._get_request_payload(
        sent
    ),
    "groq": lambda sent: ChatGroq(model="llama", api_key=_KEY)._create_message_dicts(sent, None),
}
"""All chat model integrations of the test environment -> what they send for a history."""


# --- what a payload says ----------------------------------------------------------------------


class Call(NamedTuple):
    """A tool call in a payload."""

    id: Any
    name: Any
    arguments: Any
    kind: str = "function_call"


class Result(NamedTuple):
    """An answer to a tool call in a payload."""

    id: Any
    kind: str = "function_call"
    late: bool = False


@dataclass(frozen=True)
class Turn:
    """Neighbouring messages of one role: a model's calls, their results, or neither."""

    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()


def _blocks(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _chat_turns(messages: list[dict[str, Any]]) -> list[Turn]:
    """Chat Completions and Mistral: a run of `tool` messages is one turn of results."""
    turns: list[Turn] = []
    for message in messages:
        if message["role"] == "tool":
            result = Result(message.get("tool_call_id"))
            if turns and turns[-1].results:
                turns[-1] = Turn(results=(*turns[-1].results, result))
            else:
                turns.append(Turn(results=(result,)))
        else:
            turns.append(
                Turn(
                    calls=tuple(
                        Call(c.get("id"), c["function"]["name"], c["function"]["arguments"])
                        for c in message.get("tool_calls") or ()
                    )
                )
            )
    return turns


def _late(blocks: list[Any], is_result: Callable[[Any], bool]) -> Iterator[tuple[Any, bool]]:
    """Each result block, and whether anything else is before it."""
    other = False
    for block in blocks:
        if is_result(block):
            yield block, other
        else:
            other = True


def _anthropic_turns(messages: list[dict[str, Any]]) -> list[Turn]:
    """Anthropic: results are blocks of a user message."""
    return [
        Turn(
            calls=tuple(
                Call(b["id"], b["name"], b["input"])
                for b in _blocks(message)
                if b.get("type") == "tool_use" and message["role"] == "assistant"
            ),
            results=tuple(
                Result(b["tool_use_id"], late=late)
                for b, late in _late(_blocks(message), lambda b: b.get("type") == "tool_result")
            ),
        )
        for message in messages
    ]


def _bedrock_turns(messages: list[dict[str, Any]]) -> list[Turn]:
    """Bedrock Converse: as Anthropic, in its own spelling."""
    return [
        Turn(
            calls=tuple(
                Call(b["toolUse"]["toolUseId"], b["toolUse"]["name"], b["toolUse"]["input"])
                for b in message["content"]
                if "toolUse" in b
            ),
            results=tuple(
                Result(b["toolResult"]["toolUseId"], late=late)
                for b, late in _late(message["content"], lambda b: "toolResult" in b)
            ),
        )
        for message in messages
    ]


def _responses_turns(items: list[dict[str, Any]]) -> list[Turn]:
    """Responses: calls and outputs are items, paired by `call_id` wherever they stand."""
    kinds = ("function_call", "custom_tool_call")
    return [
        Turn(
            calls=tuple(
                Call(item.get("call_id"), item.get("name"), item.get(value), kind)
                for kind, value in zip(kinds, ("arguments", "input"), strict=True)
                for item in items
                if item.get("type") == kind
            ),
            results=tuple(
                Result(item.get("call_id"), kind)
                for kind in kinds
                for item in items
                if item.get("type") == f"{kind}_output"
            ),
        )
    ]


def _gemini_turns(contents: list[dict[str, Any]]) -> list[Turn]:
    """Gemini: no ids are sent, a call and its response have only a name and a place."""
    return [
        Turn(
            calls=tuple(
                Call(None, p["function_call"].get("name"), p["function_call"].get("args", {}))
                for p in content.get("parts") or ()
                if "function_call" in p
            ),
            results=tuple(
                Result(p["function_response"].get("name"))
                for p in content.get("parts") or ()
                if "function_response" in p
            ),
        )
        for content in contents
    ]


# --- the rules --------------------------------------------------------------------------------

Rule = "Callable[[list[dict[str, Any]], list[Turn]], Iterable[Refusal]]"


def _ids(pattern: str) -> Rule:
    """Every call has an id that the provider takes."""

    def rule(_sent: list[dict[str, Any]], turns: list[Turn]) -> Iterator[Refusal]:
        for turn in turns:
            for call in turn.calls:
                if not isinstance(call.id, str) or not re.fullmatch(pattern, call.id, re.DOTALL):
                    yield Refusal("bad-id", f"call {call.id!r} of {call.name!r}")

    return rule


def _names(pattern: str) -> Rule:
    """Every call has a name that the provider takes."""

    def rule(_sent: list[dict[str, Any]], turns: list[Turn]) -> Iterator[Refusal]:
        for turn in turns:
            for call in turn.calls:
                if not isinstance(call.name, str) or not re.fullmatch(pattern, call.name):
                    yield Refusal("bad-name", f"{call.name!r} of call {call.id!r}")

    return rule


def _arguments(kind: type) -> Rule:
    """Every call has arguments of the provider's type: a text of JSON, or an object."""

    def rule(_sent: list[dict[str, Any]], turns: list[Turn]) -> Iterator[Refusal]:
        for turn in turns:
            for call in turn.calls:
                if not isinstance(call.arguments, kind):
                    yield Refusal("bad-arguments", f"{call.arguments!r} of call {call.id!r}")

    return rule


def _unique_in_message(_sent: list[dict[str, Any]], turns: list[Turn]) -> Iterator[Refusal]:
    """No id is twice in one message."""
    for turn in turns:
        for id_, count in Counter(call.id for call in turn.calls).items():
            if count > 1:
                yield Refusal("repeated-id", f"{id_!r} is {count} times in one message")


def _unique_in_history(_sent: list[dict[str, Any]], turns: list[Turn]) -> Iterator[Refusal]:
    """No id is twice in the history."""
    for id_, count in Counter(call.id for turn in turns for call in turn.calls).items():
        if count > 1:
            yield Refusal("repeated-id", f"{id_!r} is {count} times in the history")


def _answered_next(_sent: list[dict[str, Any]], turns: list[Turn]) -> Iterator[Refusal]:
    """The turn after a model's calls holds one result for each of them, and no other result."""
    for asked, value in pairwise([Turn(), *turns, Turn()]):
        open_ids = {call.id for call in asked.calls}
        counts = Counter(result.id for result in value.results)
        for id_, count in counts.items():
            if id_ not in open_ids:
                yield Refusal("orphan-result", f"{id_!r} answers no call of the turn before")
            elif count > 1:
                yield Refusal("repeated-result", f"{id_!r} is answered {count} times")
        for id_ in open_ids - counts.keys():
            yield Refusal("unanswered-call", f"{id_!r} has no result in the next turn")


def _answered_somewhere(_sent: list[dict[str, Any]], turns: list[Turn]) -> Iterator[Refusal]:
    """Each call has one output of its own kind, each output a call."""
    calls = {(call.id, call.kind) for turn in turns for call in turn.calls}
    counts = Counter((result.id, result.kind) for turn in turns for result in turn.results)
    for (id_, kind), count in counts.items():
        if (id_, kind) not in calls:
            yield Refusal("orphan-result", f"{kind}_output {id_!r} answers no {kind}")
        elif count > 1:
            yield Refusal("repeated-result", f"{id_!r} is answered {count} times")
    for id_, kind in calls - counts.keys():
        yield Refusal("unanswered-call", f"{kind} {id_!r} has no output")


def _answered_by_number(_sent: list[dict[str, Any]], turns: list[Turn]) -> Iterator[Refusal]:
    """The turn after a model's calls has as many responses as there are calls, each with a name."""
    for asked, value in pairwise([Turn(), *turns, Turn()]):
        if len(value.results) < len(asked.calls):
            yield Refusal(
                "unanswered-call", f"{len(value.results)} responses to {len(asked.calls)} calls"
            )
        if len(value.results) > len(asked.calls):
            yield Refusal(
                "orphan-result", f"{len(value.results)} responses to {len(asked.calls)} calls"
            )
        for result in value.results:
            if not result.id:
                yield Refusal("bad-name", "a response without a name")


def _results_first(_sent: list[dict[str, Any]], turns: list[Turn]) -> Iterator[Refusal]:
    """Nothing is before a result in its message."""
    for turn in turns:
        for result in turn.results:
            if result.late:
                yield Refusal("late-result", f"{result.id!r} is after other content")


def _no_result_blocks(sent: list[dict[str, Any]], _turns: list[Turn]) -> Iterator[Refusal]:
    """A result is no part of a user's or a model's content."""
    for message in sent:
        for block in _blocks(message):
            if isinstance(block, dict) and block.get("type") == "tool_result":
                yield Refusal("result-in-content", f"{block.get('tool_use_id')!r}")


def _no_function_role(sent: list[dict[str, Any]], _turns: list[Turn]) -> Iterator[Refusal]:
    """The Responses API knows no role `function`."""
    for item in sent:
        if item.get("role") in ("function", "tool"):
            yield Refusal("bad-role", f"{item['role']!r}")


@cache
def _converse() -> Any:
    service = botocore.session.get_session().get_service_model("bedrock-runtime")
    return service.operation_model("Converse").input_shape


def _sendable(sent: list[dict[str, Any]], _turns: list[Turn]) -> Iterator[Refusal]:
    """Boto3 itself takes the request."""
    report = ParamValidator().validate({"modelId": _CLAUDE, "messages": sent}, _converse())
    if report.has_errors():
        detail = report.generate_report()
        yield Refusal("bad-shape", detail, ours="toolUse" in detail or "toolResult" in detail)


# Not ours: what other messages contain, and in which order they stand.


def _known_content(*known: str) -> Rule:
    """Every content block is of a type that the provider knows."""

    def rule(sent: list[dict[str, Any]], _turns: list[Turn]) -> Iterator[Refusal]:
        for message in sent:
            for block in _blocks(message):
                if isinstance(block, dict) and block.get("type") not in (*known, "tool_result"):
                    yield Refusal("foreign-content", f"{block.get('type')!r}", ours=False)

    return rule


def _something_said(sent: list[dict[str, Any]], _turns: list[Turn]) -> Iterator[Refusal]:
    """A message of the user or the model is not empty."""
    for message in sent:
        if message["role"] in ("user", "assistant") and not (
            message["content"] or message.get("tool_calls")
        ):
            yield Refusal("empty-message", message["role"], ours=False)


def _no_text_after_a_call(sent: list[dict[str, Any]], _turns: list[Turn]) -> Iterator[Refusal]:
    """Once a model has called, it says no more in that message."""
    for message in sent:
        types = [block.get("type") for block in _blocks(message)]
        if "tool_use" in types and "text" in types[types.index("tool_use") :]:
            yield Refusal("text-after-call", "in one assistant message", ours=False)


def _server_tools_closed(sent: list[dict[str, Any]], _turns: list[Turn]) -> Iterator[Refusal]:
    """A tool of the server is answered by the server."""
    blocks = [block for message in sent for block in _blocks(message)]
    answered = {block.get("tool_use_id") for block in blocks}
    for block in blocks:
        if block.get("type") == "server_tool_use" and block["id"] not in answered:
            yield Refusal("open-server-tool", f"{block['id']!r}", ours=False)


def _no_user_after_tool(sent: list[dict[str, Any]], _turns: list[Turn]) -> Iterator[Refusal]:
    """Older Mistral servers want an assistant message after the results."""
    for before, after in pairwise(sent):
        if (before["role"], after["role"]) == ("tool", "user"):
            yield Refusal("user-after-tool", "refused by older servers", ours=False)


def _reasoning_followed(sent: list[dict[str, Any]], _turns: list[Turn]) -> Iterator[Refusal]:
    """A reasoning item comes with the item that it was thought for."""
    for item, after in pairwise([*sent, {}]):
        if item.get("type") == "reasoning" and not (
            after.get("role") == "assistant" or str(after.get("type")).endswith(("_call", "soning"))
        ):
            yield Refusal("lonely-reasoning", f"{item.get('id')!r}", ours=False)


def _called_by_turn(sent: list[dict[str, Any]], turns: list[Turn]) -> Iterator[Refusal]:
    """A model calls only after a user or after responses."""
    for content, turn in zip([{}, *sent], turns, strict=False):
        if turn.calls and content.get("role") != "user":
            yield Refusal("call-after-model", repr(turn.calls[0].name), ours=False)


_NAME = "[a-zA-Z0-9_-]{1,64}"

_RULES: dict[str, tuple[Callable[[list[dict[str, Any]]], list[Turn]], tuple[Rule, ...]]] = {
    "openai-chat": (
        _chat_turns,
        (
            _ids(".{1,40}"),
            _names(_NAME),
            _arguments(str),
            _unique_in_message,
            _answered_next,
            _no_result_blocks,
            _known_content("text", "image_url", "input_audio", "file", "refusal"),
        ),
    ),
    "openai-responses": (
        _responses_turns,
        (
            _ids(".{1,64}"),
            _names(_NAME),
            _arguments(str),
            _unique_in_history,
            _answered_somewhere,
            _no_function_role,
            _reasoning_followed,
        ),
    ),
    "anthropic": (
        _anthropic_turns,
        (
            _ids("[a-zA-Z0-9_-]+"),
            _names("[a-zA-Z0-9_-]{1,128}"),
            _arguments(dict),
            _unique_in_history,
            _answered_next,
            _results_first,
            _no_text_after_a_call,
            _server_tools_closed,
            _something_said,
            _known_content(
                *("text", "image", "document", "search_result", "thinking", "redacted_thinking"),
                *("tool_use", "server_tool_use", "web_search_tool_result"),
            ),
        ),
    ),
    "gemini": (
        _gemini_turns,
        (_names(".+"), _arguments(dict), _answered_by_number, _called_by_turn),
    ),
    "mistral": (
        _chat_turns,
        (
            _ids("[a-zA-Z0-9]{9}"),
            _names(_NAME),
            _arguments(str),
            _unique_in_message,
            _answered_next,
            _no_result_blocks,
            _something_said,
            _no_user_after_tool,
            _known_content("text", "image_url", "document_url", "reference", "thinking"),
        ),
    ),
    "bedrock": (
        _bedrock_turns,
        (
            _ids("[a-zA-Z0-9_.:-]{1,64}"),
            _names(_NAME),
            _arguments(dict),
            _unique_in_history,
            _answered_next,
            _results_first,
            _sendable,
        ),
    ),
}


def broken_rules(wire: str, sent: list[dict[str, Any]]) -> list[Refusal]:
    """Every rule of the wire's provider which this payload breaks."""
    read, rules = _RULES[wire]
    turns = read(sent)
    return [refusal for rule in rules for refusal in rule(sent, turns)]


def refusals(wire: str, messages: Sequence[Any], *, ours_only: bool = True) -> list[str]:
    """Why the wire would not take these messages; empty if it would.

    An integration that raises before anything is sent refuses too.
    """
    try:
        sent = payload(wire, messages)
    except Exception as error:  # noqa: BLE001 - whatever it raises, nothing is sent
        # Two system messages apart from each other: true of the history with or without a repair.
        ours = "non-consecutive system messages" not in str(error)
        found = [Refusal("raised", f"{type(error).__name__}: {error}", ours=ours)]
    else:
        found = broken_rules(wire, sent)
    return [str(refusal) for refusal in found if refusal.ours or not ours_only]


def assert_accepted(messages: Sequence[Any], wires: Iterable[str] = WIRES) -> None:
    """Every one of the wires takes these messages."""
    found = {wire: refused for wire in wires if (refused := refusals(wire, messages))}
    assert not found, "\n".join(
        [f"{wire} refuses: {'; '.join(refused)}" for wire, refused in found.items()]
        + [repr(message) for message in messages]
    )
