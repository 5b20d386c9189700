"""Hypothesis strategies: valid histories of every message shape, and named damage to them.

Every call carries its own name for itself (`u7`) in its arguments, and its real result says
`result of u7`: whether a result is beside its own call can be read off the messages,
without the code under test.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from support.placeholder_texts import DEEPAGENTS_CANCELLED

SIGNATURES = "__gemini_function_call_thought_signatures__"
LONG_ID = "call-with-an-id-that-chat-completions-refuses-since-it-is-long"
MARK = {PLACEHOLDER_KEY: {"cause": "unknown"}}
NAMES = ("search", "send_email", "wire-money")
BAD_NAMES = ("", "wire money", "检索", "functions.search", "x" * 70, "{0.__class__}")

History = list[Any]
Shape = Callable[[Sequence[Any], str | None], AIMessage]


@dataclass(frozen=True)
class Broken:
    """A history and the damage that was done to it, in order."""

    messages: History
    damages: tuple[str, ...]


class Pick:
    """The few ways in which the strategies below choose."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def __call__(self, options: Sequence[Any]) -> Any:
        """One of `options`."""
        return options[self.below(len(options))]

    def below(self, limit: int) -> int:
        """A number from 0 to `limit` - 1."""
        return 0 if limit == 1 else self._draw(st.integers(0, limit - 1))

    def chance(self, one_in: int) -> bool:
        """True about once in `one_in` times."""
        return self.below(one_in) == one_in - 1


# --- valid histories -------------------------------------------------------------------


def uid_args(uid: str) -> dict[str, Any]:
    """The arguments of the call `uid`."""
    return {"uid": uid}


def result_of(uid: str) -> str:
    """What the real result of the call `uid` says."""
    return f"result of {uid}."


def _listed(calls: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [{**call, "type": "tool_call"} for call in calls]


def _plain(calls: Sequence[Any], message_id: str | None) -> AIMessage:
    return AIMessage("", tool_calls=_listed(calls), id=message_id)


def _raw_too(calls: Sequence[Any], message_id: str | None) -> AIMessage:
    return AIMessage(
        "I will",
        tool_calls=_listed(calls),
        additional_kwargs={"tool_calls": [_raw(call) for call in calls]},
        id=message_id,
    )


def _raw(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["args"])}
    return {"id": call["id"], "type": "function", "function": function}


def _gemini(calls: Sequence[Any], message_id: str | None) -> AIMessage:
    signatures = {
        call["id"]: base64.b64encode(call["args"]["uid"].encode()).decode() for call in calls
    }
    return AIMessage(
        "", tool_calls=_listed(calls), additional_kwargs={SIGNATURES: signatures}, id=message_id
    )


def _chunk(calls: Sequence[Any], message_id: str | None) -> AIMessage:
    chunks = [
        {"name": c["name"], "args": json.dumps(c["args"]), "id": c["id"], "index": k}
        for k, c in enumerate(calls)
    ]
    return AIMessageChunk(content="", tool_call_chunks=chunks, id=message_id)


def _anthropic(calls: Sequence[Any], message_id: str | None) -> AIMessage:
    blocks = [
        {"type": "tool_use", "id": c["id"], "name": c["name"], "input": c["args"]} for c in calls
    ]
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
    return AIMessage(
        [thought, {"type": "text", "text": "I will"}, *blocks],
        tool_calls=_listed(calls),
        id=message_id,
    )


def _server_tools(calls: Sequence[Any], message_id: str | None) -> AIMessage:
    server: list[Any] = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    ]
    message = _anthropic(calls, message_id)
    return message.model_copy(update={"content": [*server, *message.content]})


def _responses(calls: Sequence[Any], message_id: str | None) -> AIMessage:
    blocks = [
        {
            "type": "function_call",
            "id": f"fc_{c['args']['uid']}",
            "call_id": c["id"],
            "name": c["name"],
            "arguments": json.dumps(c["args"]),
        }
        for c in calls
    ]
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    return AIMessage([thought, *blocks], tool_calls=_listed(calls), id=message_id)


def _standard(calls: Sequence[Any], message_id: str | None) -> AIMessage:
    return AIMessage(
        [{"type": "text", "text": "I will"}, *({**call} for call in _listed(calls))],
        tool_calls=_listed(calls),
        response_metadata={"output_version": "v1"},
        id=message_id,
    )


SHAPES = (_plain, _anthropic, _raw_too, _responses, _gemini, _standard, _chunk, _server_tools)
"""What an `AIMessage` that calls looks like; every second one has content blocks."""

CARRIED_SHAPES = tuple(shape for shape in SHAPES if shape is not _server_tools)
"""The shapes that every wire can carry."""


@st.composite
def valid_histories(
    draw: st.DrawFn, max_turns: int = 3, shapes: Sequence[Shape] = SHAPES
) -> History:
    """Histories without a defect, in which every shape of message occurs."""
    pick = Pick(draw)
    history: History = [SystemMessage("be brief", id="sys")] if pick.chance(4) else []
    uid = 0
    for turn in range(1 + pick.below(max_turns)):
        content: Any = f"ask {turn}"
        if pick.chance(4):
            content = [{"type": "text", "text": content}, {"type": "text", "text": "please"}]
        history.append(HumanMessage(content, id=None if pick.chance(4) else f"human-{turn}"))
        for step in range(pick.below(3)):
            count = 1 + pick.below(3)
            calls = [
                {"name": pick(NAMES), "args": uid_args(f"u{n}"), "id": f"call-{n}"}
                for n in range(uid, uid + count)
            ]
            uid += count
            message_id = None if pick.chance(4) else f"ai-{turn}-{step}"
            history.append(pick(shapes)(calls, message_id))
            results = [_result(pick, call) for call in calls]
            history += reversed(results) if pick.chance(3) else results
        if not pick.chance(3):
            history.append(AIMessage(f"answer {turn}", id=f"answer-{turn}"))
    return history


def _result(pick: Pick, call: Mapping[str, Any]) -> ToolMessage:
    uid = call["args"]["uid"]
    return ToolMessage(
        result_of(uid),
        tool_call_id=call["id"],
        name=None if pick.chance(3) else call["name"],
        id=None if pick.chance(4) else f"tool-{uid}",
        status="error" if pick.chance(5) else "success",
        artifact={"rows": [uid]} if pick.chance(5) else None,
    )


# --- places and pieces that the damage operators share ---------------------------------


def places(history: History, kind: type | tuple[type, ...]) -> list[int]:
    """Where messages of that kind stand."""
    return [k for k, message in enumerate(history) if isinstance(message, kind)]


def calling(history: History) -> list[int]:
    """Where messages stand that list calls."""
    return [k for k in places(history, AIMessage) if history[k].tool_calls]


def real_places(history: History) -> list[int]:
    """Where results stand that are no placeholders."""
    return [
        k
        for k in places(history, ToolMessage)
        if PLACEHOLDER_KEY not in history[k].additional_kwargs
    ]


def _without(history: History, place: int) -> History:
    return [*history[:place], *history[place + 1 :]]


def _with(history: History, place: int, *messages: Any) -> History:
    return [*history[:place], *messages, *history[place:]]


def _replaced(history: History, place: int, *messages: Any) -> History:
    return [*history[:place], *messages, *history[place + 1 :]]


def _result_place(history: History, call_id: object, start: int) -> int | None:
    """The index of the first `ToolMessage` after `start` that answers `call_id`."""
    return next(
        (
            k
            for k in places(history, ToolMessage)
            if k > start and history[k].tool_call_id == (call_id or "")
        ),
        None,
    )


def _renamed(message: AIMessage, old_id: str | None, **new: Any) -> AIMessage:
    """`message` with the first call `old_id` under a new `id` or `name`, in every place."""
    update: dict[str, Any] = {
        "tool_calls": _first_changed(message.tool_calls, "id", old_id, new),
        "invalid_tool_calls": message.invalid_tool_calls,
    }
    if isinstance(message.content, list):
        content = message.content
        for key in ("id", "call_id"):
            of_call = {key: new["id"]} if "id" in new else {}
            named = {"name": new["name"]} if "name" in new else {}
            content = _first_changed(content, key, old_id, {**of_call, **named})
        update["content"] = content
    if isinstance(message, AIMessageChunk):
        update["tool_call_chunks"] = _first_changed(message.tool_call_chunks, "id", old_id, new)
    extra = dict(message.additional_kwargs)
    if "tool_calls" in extra and "id" in new:
        extra["tool_calls"] = _first_changed(extra["tool_calls"], "id", old_id, {"id": new["id"]})
    if SIGNATURES in extra and "id" in new:
        extra[SIGNATURES] = {
            new["id"] if key == old_id else key: value for key, value in extra[SIGNATURES].items()
        }
    return message.model_copy(update={**update, "additional_kwargs": extra})


def _first_changed(items: Sequence[Any], key: str, value: Any, new: Mapping[str, Any]) -> list[Any]:
    out = list(items)
    for place, item in enumerate(out):
        if isinstance(item, dict) and item.get(key) == value and new:
            out[place] = {**item, **new}
            break
    return out


def _unlisted(message: AIMessage, call: Mapping[str, Any]) -> dict[str, Any]:
    calls: list[Any] = list(message.tool_calls)
    calls.remove(call)
    update: dict[str, Any] = {"tool_calls": calls}
    if isinstance(message, AIMessageChunk):
        update["tool_call_chunks"] = [
            chunk for chunk in message.tool_call_chunks if chunk["id"] != call["id"]
        ]
    return update


def placeholder_for(call_id: str, **fields: Any) -> ToolMessage:
    """A placeholder of this package, as an earlier repair wrote it."""
    return ToolMessage(
        "no result", tool_call_id=call_id, status="error", additional_kwargs=dict(MARK), **fields
    )


# --- damage ----------------------------------------------------------------------------


def drop_result(pick: Pick, history: History) -> History:
    """A tool that never finished."""
    found = places(history, ToolMessage)
    return _without(history, pick(found)) if found else history


def move_result_later(pick: Pick, history: History) -> History:
    """A result that came in behind other messages."""
    found = places(history, ToolMessage)
    if not found:
        return history
    place = pick(found)
    rest = _without(history, place)
    return _with(rest, place + pick.below(len(rest) - place + 1), history[place])


def move_result_earlier(pick: Pick, history: History) -> History:
    """A result that was written before its call."""
    found = places(history, ToolMessage)
    if not found:
        return history
    place = pick(found)
    return _with(_without(history, place), pick.below(place + 1), history[place])


def steer(pick: Pick, history: History) -> History:
    """A message that came in between a call and its results."""
    found = calling(history)
    if not found:
        return history
    place = pick(found) + 1 + pick.below(2)
    message = pick(
        (HumanMessage("steer", id="steer"), SystemMessage("remember"), AIMessage("hm", id="hm"))
    )
    return _with(history, place, message)


def duplicate_result(pick: Pick, history: History) -> History:
    """A second result for one call, somewhere behind the first."""
    found = places(history, ToolMessage)
    if not found:
        return history
    place = pick(found)
    again = history[place].model_copy(update={"id": None})
    if pick.chance(2):
        again = again.model_copy(update={"content": f"{history[place].content}, again"})
    return _with(history, place + 1 + pick.below(len(history) - place), again)


def late_real_result(pick: Pick, history: History) -> History:
    """A placeholder of this package is in the place of a result that came later."""
    found = real_places(history)
    if not found:
        return history
    place = pick(found)
    real = history[place]
    stored = _replaced(history, place, placeholder_for(real.tool_call_id, id=f"patch-{place}"))
    return _with(stored, place + 1 + pick.below(len(history) - place), real)


def placeholder_anywhere(pick: Pick, history: History) -> History:
    """A placeholder of this package for some call, at any place."""
    found = calling(history)
    if not found:
        return history
    call_id = pick(history[pick(found)].tool_calls)["id"] or ""
    return _with(history, pick.below(len(history) + 1), placeholder_for(call_id))


def foreign_placeholder(pick: Pick, history: History) -> History:
    """What deepagents wrote where it found no result."""
    found = places(history, ToolMessage)
    if not found:
        return history
    place = pick(found)
    call_id = history[place].tool_call_id
    text = DEEPAGENTS_CANCELLED.format("t", call_id)
    return _replaced(history, place, ToolMessage(text, tool_call_id=call_id, id=f"deep-{place}"))


def orphan(pick: Pick, history: History) -> History:
    """A result without a call."""
    message = ToolMessage("lost", tool_call_id="nobody", name="search", id="orphan")
    return _with(history, pick.below(len(history) + 1), message)


def reuse_id(pick: Pick, history: History) -> History:
    """A model that numbers its calls anew in every turn: call and result have an old id."""
    found = calling(history)
    if len(found) < 2:
        return history
    later = 1 + pick.below(len(found) - 1)
    new_id = history[found[pick.below(later)]].tool_calls[0]["id"]
    place = found[later]
    old_id = pick(history[place].tool_calls)["id"]
    if new_id in {call["id"] for call in history[place].tool_calls}:
        return history
    answer = _result_place(history, old_id, place)
    history = _replaced(history, place, _renamed(history[place], old_id, id=new_id))
    if answer is None:
        return history
    return _replaced(history, answer, history[answer].model_copy(update={"tool_call_id": new_id}))


def reuse_id_in_message(pick: Pick, history: History) -> History:
    """Two calls of one message with one id, and their results in call order."""
    found = [k for k in calling(history) if len(history[k].tool_calls) > 1]
    if not found:
        return history
    place = pick(found)
    first, second = (call["id"] for call in history[place].tool_calls[:2])
    answer = _result_place(history, second, place)
    history = _replaced(history, place, _renamed(history[place], second, id=first))
    if answer is None:
        return history
    message = history[answer].model_copy(update={"tool_call_id": first or ""})
    return _with(_without(history, answer), _end_of_results(history, place) - 1, message)


def _end_of_results(history: History, place: int) -> int:
    end = place + 1
    while end < len(history) and isinstance(history[end], ToolMessage):
        end += 1
    return max(end, place + 2)


def bad_id(pick: Pick, history: History) -> History:
    """No id, an empty one, or one that is too long; its result has it too."""
    found = calling(history)
    if not found:
        return history
    place = pick(found)
    old_id = pick(history[place].tool_calls)["id"]
    new_id = pick((None, "", LONG_ID))
    answer = _result_place(history, old_id, place)
    history = _replaced(history, place, _renamed(history[place], old_id, id=new_id))
    if answer is None:
        return history
    pointed = history[answer].model_copy(update={"tool_call_id": new_id or ""})
    return _replaced(history, answer, pointed)


def refused_id(pick: Pick, history: History) -> History:
    """An id that some provider refuses and no other call has; all its results have it too."""
    found = [k for k in calling(history) if history[k].tool_calls[0]["id"]]
    if not found:
        return history
    place = pick(found)
    old_id = history[place].tool_calls[0]["id"]
    if any(f"'{old_id}'" in str(m) for m in history if not isinstance(m, AIMessage | ToolMessage)):
        return history
    new_id = pick((f"{LONG_ID}-{old_id}", f"functions/{old_id}"))
    history = _replaced(history, place, _renamed(history[place], old_id, id=new_id))
    for answer in places(history, ToolMessage):
        if history[answer].tool_call_id == old_id:
            pointed = history[answer].model_copy(update={"tool_call_id": new_id})
            history = _replaced(history, answer, pointed)
    return history


def bad_name(pick: Pick, history: History) -> History:
    """A tool's name that no provider accepts; its result may have it too."""
    found = calling(history)
    if not found:
        return history
    place = pick(found)
    call_id = pick(history[place].tool_calls)["id"]
    name = pick(BAD_NAMES)
    answer = _result_place(history, call_id, place)
    history = _replaced(history, place, _renamed(history[place], call_id, name=name))
    if answer is None or history[answer].name is None:
        return history
    return _replaced(history, answer, history[answer].model_copy(update={"name": name}))


def invalid_call(pick: Pick, history: History) -> History:
    """A call with arguments that could not be read; a tool node may have answered it."""
    found = calling(history)
    if not found:
        return history
    place = pick(found)
    message = history[place]
    call = pick(message.tool_calls)
    raw = json.dumps(call["args"])
    args = pick((raw[:-2], raw, None, ""))
    invalid = {**call, "args": args, "type": "invalid_tool_call", "error": "no JSON"}
    update = _unlisted(message, call)
    update["invalid_tool_calls"] = [*message.invalid_tool_calls, invalid]
    history = _replaced(history, place, message.model_copy(update=update))
    answer = _result_place(history, call["id"], place)
    return _without(history, answer) if answer is not None and pick.chance(2) else history


def block_only(pick: Pick, history: History) -> History:
    """A call that lives only in a content block."""
    found = [k for k in calling(history) if isinstance(history[k].content, list)]
    if not found:
        return history
    place = pick(found)
    message = history[place]
    call = pick(message.tool_calls)
    return _replaced(history, place, message.model_copy(update=_unlisted(message, call)))


def raw_only(pick: Pick, history: History) -> History:
    """Calls that only the provider's raw form knows."""
    found = [k for k in calling(history) if "tool_calls" in history[k].additional_kwargs]
    if not found:
        return history
    place = pick(found)
    update = {"tool_calls": [], "invalid_tool_calls": []}
    return _replaced(history, place, history[place].model_copy(update=update))


def truncated_chunk(pick: Pick, history: History) -> History:
    """A stream that was cut in a call's arguments and stored: its parser calls it valid."""
    found = [k for k in calling(history) if isinstance(history[k], AIMessageChunk)]
    if not found:
        return history
    place = pick(found)
    message = history[place]
    chunks = [dict(chunk) for chunk in message.tool_call_chunks]
    if not chunks:
        return history
    chunks[-1]["args"] = (chunks[-1]["args"] or "")[: 1 + pick.below(12)]
    cut = AIMessageChunk(content=message.content, tool_call_chunks=chunks, id=message.id)
    return _replaced(history, place, cut)


def function_message(pick: Pick, history: History) -> History:
    """A result as a `FunctionMessage`: identified by the tool's name alone."""
    found = [k for k in real_places(history) if history[k].name]
    if not found:
        return history
    place = pick(found)
    old = history[place]
    message = FunctionMessage(name=old.name, content=old.content, id=old.id)
    return _replaced(history, place, message)


def chat_message(pick: Pick, history: History) -> History:
    """A result as a `ChatMessage`, with or without the id of its call."""
    return _as_chat(pick, history, named=not pick.chance(2))


def named_chat_message(pick: Pick, history: History) -> History:
    """A result as a `ChatMessage` that names its call."""
    return _as_chat(pick, history, named=True)


def _as_chat(pick: Pick, history: History, *, named: bool) -> History:
    found = real_places(history)
    if not found:
        return history
    place = pick(found)
    old = history[place]
    extra = {"tool_call_id": old.tool_call_id} if named else {}
    message = ChatMessage(
        role=pick(("tool", "function")), content=old.content, id=old.id, additional_kwargs=extra
    )
    return _replaced(history, place, message)


def human_tool_result(pick: Pick, history: History) -> History:
    """Results as `tool_result` blocks of one human message, which may say something too."""
    found = real_places(history)
    if not found:
        return history
    place = pick(found)
    end = place + 1
    while end in found and pick.chance(2):
        end += 1
    blocks: list[Any] = [
        {"type": "tool_result", "tool_use_id": old.tool_call_id, "content": old.content}
        for old in history[place:end]
    ]
    rest: list[Any] = [{"type": "text", "text": "and go on"}] if pick.chance(2) else []
    message = HumanMessage([*blocks, *rest], id=f"human-result-{place}")
    return [*history[:place], message, *history[end:]]


def human_with_call_id(pick: Pick, history: History) -> History:
    """A human message that carries the id of a call: its result, if it has no other."""
    found = real_places(history)
    if not found:
        return history
    place = pick(found)
    old = history[place]
    content: Any = old.content
    if pick.chance(2):
        content = [{"type": "text", "text": old.content}]
    extra = {"tool_call_id": old.tool_call_id}
    message = HumanMessage(content, additional_kwargs=extra, id=f"human-says-{place}")
    if pick.chance(2):
        return _replaced(history, place, message)
    return _with(history, place + pick.below(2), message)


def trim_head(pick: Pick, history: History) -> History:
    """A window that cut through a pair."""
    return history[pick.below(len(history)) :] if history else history


def cut_tail(pick: Pick, history: History) -> History:
    """A run that ended in the middle of a step."""
    return history[: 1 + pick.below(len(history))] if history else history


def as_dict(pick: Pick, history: History) -> History:
    """A message in the form in which clients send it."""
    found = [k for k in places(history, HumanMessage) if not history[k].additional_kwargs]
    if not found:
        return history
    place = pick(found)
    old = history[place]
    return _replaced(history, place, {"role": "user", "content": old.content, "id": old.id})


Damage = Callable[[Pick, History], History]

DAMAGES: Mapping[str, Damage] = {
    damage.__name__: damage
    for damage in (
        drop_result,
        move_result_later,
        move_result_earlier,
        steer,
        duplicate_result,
        late_real_result,
        placeholder_anywhere,
        foreign_placeholder,
        orphan,
        reuse_id,
        reuse_id_in_message,
        bad_id,
        refused_id,
        bad_name,
        invalid_call,
        block_only,
        raw_only,
        truncated_chunk,
        function_message,
        chat_message,
        named_chat_message,
        human_tool_result,
        human_with_call_id,
        trim_head,
        cut_tail,
        as_dict,
    )
}
"""Every way in which a history is broken here, by name."""

HONEST = (
    "drop_result",
    "move_result_later",
    "move_result_earlier",
    "steer",
    "duplicate_result",
    "late_real_result",
    "orphan",
    "refused_id",
    "bad_name",
    "invalid_call",
    "block_only",
    "raw_only",
    "named_chat_message",
    "human_tool_result",
    "human_with_call_id",
    "trim_head",
    "cut_tail",
    "as_dict",
)
"""Damage after which each call has an id that no other call has, and each result names its own."""

WITHOUT_WORDS = (
    "placeholder_anywhere",
    "foreign_placeholder",
    "function_message",
    "chat_message",
    "human_with_call_id",
)
"""Damage after which a call may be answered by what does not name it, or is no real result."""


@st.composite
def broken_histories(
    draw: st.DrawFn,
    names: Sequence[str] = tuple(DAMAGES),
    max_damages: int = 4,
    shapes: Sequence[Shape] = SHAPES,
) -> Broken:
    """Valid histories, damaged several times."""
    pick = Pick(draw)
    history = draw(valid_histories(shapes=shapes))
    done: list[str] = []
    for _ in range(1 + pick.below(max_damages)):
        name = pick(names)
        history = DAMAGES[name](pick, history)
        done.append(name)
    return Broken(history, tuple(done))


# --- an oracle that knows nothing of the code under test -------------------------------

_UID = re.compile(r"u\d+")


@dataclass
class Told:
    """A call in a history: its index, its id, and the name that marks it."""

    index: int
    ordinal: int
    id: str
    uid: str | None
    name: str = ""
    answer: str | None = None


def told_calls(history: Sequence[BaseMessage]) -> list[Told]:
    """Every call, in the order of the history: listed, invalid, in a block, raw."""
    reported: list[Told] = []
    for index, message in enumerate(history):
        if isinstance(message, AIMessage):
            for ordinal, (call_id, args, name) in enumerate(_stored_calls(message)):
                uid = _UID.search(str(args))
                found = uid[0] if uid else None
                reported.append(Told(index, ordinal, call_id or "", found, _plain_name(name)))
    return reported


def _plain_name(name: str | None) -> str:
    """The name as every provider accepts it; `""` if there is none."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", (name or "")[:64])


def _stored_calls(message: AIMessage) -> list[tuple[str | None, Any, str | None]]:
    stored = (*message.tool_calls, *message.invalid_tool_calls)
    calls: list[Any] = [(c["id"], c["args"], c["name"]) for c in stored]
    listed = [call_id or "" for call_id, _, _ in calls]
    for block in message.content if isinstance(message.content, list) else []:
        if isinstance(block, dict) and block["type"] in {"tool_use", "tool_call", "function_call"}:
            call_id = block["call_id" if block["type"] == "function_call" else "id"]
            if (call_id or "") in listed:
                listed.remove(call_id or "")
            else:
                calls.append((call_id, block, block["name"]))
    raw = message.additional_kwargs.get("tool_calls", [])
    return calls or [(r["id"], r["function"]["arguments"], r["function"]["name"]) for r in raw]


@dataclass
class Answer:
    """A result in a history that names its call."""

    index: int
    id: str
    name: str | None
    content: str

    def is_of(self, calls: Sequence[Told]) -> bool:
        """Whether one of `calls` has the name in this result; no name is of any."""
        return not self.name or any(call.name in {"", self.name} for call in calls)


def told_answers(history: Sequence[BaseMessage]) -> list[Told]:
    """The calls with the contents of the results that name them: slow, and by the rules' words.

    A result belongs to the nearest earlier message with a call of its id. There its name
    decides, if calls of the id differ in name. Equally many results as calls pair in order,
    and fewer with none. A result before its call belongs to it only if nothing but results is
    between them, the names agree, and no older call of its id has that name.
    """
    calls = told_calls(history)
    groups: dict[tuple[int, str], list[Answer]] = {}
    early: list[Answer] = []
    for answer in [a for index, m in enumerate(history) for a in _named_results(index, m)]:
        of_id = [call for call in calls if call.id == answer.id]
        earlier = [call.index for call in of_id if call.index < answer.index]
        nearest = [call for call in of_id if earlier and call.index == max(earlier)]
        tells_apart = answer.name in {call.name for call in of_id}
        if nearest and (not tells_apart or answer.is_of(nearest)):
            kept = answer if tells_apart else replace(answer, name=None)
            groups.setdefault((max(earlier), answer.id), []).append(kept)
        elif not nearest or answer.name not in {c.name for c in of_id if c.index < answer.index}:
            early.append(answer)
    for (index, call_id), answers in groups.items():
        _answer([c for c in calls if (c.index, c.id) == (index, call_id)], answers)
    places: dict[tuple[int, str], list[Answer]] = {}
    for answer in early:
        place = answer.index
        while place < len(history) and _is_only_results(history[place]):
            place += 1
        places.setdefault((place, answer.id), []).append(answer)
    for (index, call_id), answers in places.items():
        free = [c for c in calls if (c.index, c.id) == (index, call_id) and c.answer is None]
        _answer(free, [answer for answer in answers if answer.is_of(free)])
    return calls


def _answer(calls: list[Told], answers: list[Answer]) -> None:
    """Give the results of one id to the calls of one message."""
    for name in dict.fromkeys(call.name for call in calls):
        own = [call for call in calls if call.name == name]
        named = [answer for answer in answers if (answer.name or None) == (name or None)]
        if name and len(named) >= len(own) and len(own) < len(calls):
            _answer_in_order(own, named)
            answers = [answer for answer in answers if answer not in named]
    left = [call for call in calls if call.answer is None]
    if len(answers) >= len(left):
        _answer_in_order(left, answers)


def _answer_in_order(calls: list[Told], answers: list[Answer]) -> None:
    if len(answers) > len(calls):
        answers = sorted(answers, key=lambda answer: "was cancelled - another" in answer.content)
        answers = sorted(answers[: len(calls)], key=lambda answer: answer.index)
    for answer in answers:
        call = next((c for c in calls if c.answer is None and answer.is_of([c])), None)
        if call is not None:
            call.answer = answer.content


def _is_only_results(message: BaseMessage) -> bool:
    if isinstance(message, HumanMessage) and isinstance(message.content, list):
        return all(block["type"] == "tool_result" for block in message.content)
    return isinstance(message, ToolMessage | FunctionMessage | ChatMessage)


def _named_results(index: int, message: BaseMessage) -> list[Answer]:
    """The real results in `message` that name their call."""
    extra = message.additional_kwargs
    name = message.name and _plain_name(message.name)
    content = str(message.content)
    if isinstance(message, ToolMessage):
        answer = Answer(index, message.tool_call_id, name, content)
        return [] if PLACEHOLDER_KEY in extra else [answer]
    if isinstance(message, ChatMessage) and "tool_call_id" in extra:
        return [Answer(index, extra["tool_call_id"], name, content)]
    if isinstance(message, HumanMessage) and isinstance(message.content, list):
        blocks = [block for block in message.content if block["type"] == "tool_result"]
        return [Answer(index, b["tool_use_id"], None, str(b["content"])) for b in blocks]
    return []
