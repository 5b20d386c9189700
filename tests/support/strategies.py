"""Hypothesis strategies: valid histories of every message shape, and named damage to them.

Every call has a name of its own (`u7`) in its arguments, and its real result is
`result of u7.`: whether a result is beside its own call can be read off the messages, without
the code under test.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_patch.history.ids import PLACEHOLDER_KEY
from support.placeholder_texts import DEEPAGENTS_CANCELLED

SIGNATURES = "__gemini_function_call_thought_signatures__"
LONG_ID = "call-with-an-id-that-chat-completions-refuses-since-it-is-long"
NAMES = ("search", "send_email", "wire-money")
BAD_NAMES = ("", "wire money", "检索", "functions.search", "x" * 70, "{0.__class__}")

History = list[Any]


@dataclass(frozen=True)
class Broken:
    """A history and the damage that was done to it, in order."""

    messages: History
    damages: tuple[str, ...]


class Pick:
    """The few ways in which the functions below choose."""

    def __init__(self, seed: int) -> None:
        self.below = random.Random(seed).randrange  # noqa: S311 - no secret

    def __call__(self, options: Sequence[Any]) -> Any:
        """One of `options`."""
        return options[self.below(len(options))]

    def chance(self, one_in: int) -> bool:
        """True about once in `one_in` times."""
        return self.below(one_in) == 0


# --- valid histories -------------------------------------------------------------------


def result_of(uid: str) -> str:
    """What the real result of the call `uid` says."""
    return f"result of {uid}."


def _raw(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["args"])}
    return {"id": call["id"], "type": "function", "function": function}


def _raw_too(calls: Sequence[Any]) -> dict[str, Any]:
    return {"additional_kwargs": {"tool_calls": [_raw(call) for call in calls]}}


def _gemini(calls: Sequence[Any]) -> dict[str, Any]:
    signatures = {c["id"]: base64.b64encode(c["args"]["uid"].encode()).decode() for c in calls}
    return {"additional_kwargs": {SIGNATURES: signatures}}


def _anthropic(calls: Sequence[Any]) -> dict[str, Any]:
    blocks = [{"type": "tool_use", **_with(c, args="input")} for c in calls]
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
    return {"content": [thought, {"type": "text", "text": "I will"}, *blocks]}


def _server_tools(calls: Sequence[Any]) -> dict[str, Any]:
    server = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    ]
    return {"content": [*server, *_anthropic(calls)["content"]]}


def _responses(calls: Sequence[Any]) -> dict[str, Any]:
    blocks = [
        {
            **_with(c, id="call_id", args="arguments"),
            "type": "function_call",
            "id": f"fc_{c['args']['uid']}",
            "arguments": json.dumps(c["args"]),
        }
        for c in calls
    ]
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    return {"content": [thought, *blocks]}


def _standard(calls: Sequence[Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": "I will"}, *({**call} for call in calls)]
    return {"content": content, "response_metadata": {"output_version": "v1"}}


def _with(call: Mapping[str, Any], **renamed: str) -> dict[str, Any]:
    """The id, name and arguments of a call under other keys."""
    return {renamed.get(key, key): call[key] for key in ("id", "name", "args")}


SHAPES: Mapping[str, Callable[[Sequence[Any]], dict[str, Any]]] = {
    "plain": lambda _: {},
    "anthropic": _anthropic,
    "raw_too": _raw_too,
    "responses": _responses,
    "gemini": _gemini,
    "standard": _standard,
    "chunk": lambda _: {},
    "server_tools": _server_tools,
}
"""What an `AIMessage` that calls has beside its calls."""

CARRIED_SHAPES = tuple(name for name in SHAPES if name != "server_tools")
"""The shapes that every provider accepts."""


def calling_message(shape: str, calls: Sequence[Any], message_id: str | None) -> AIMessage:
    """A message with calls, in one of `SHAPES`."""
    if shape == "chunk":
        pieces: list[Any] = [
            {**call, "args": json.dumps(call["args"]), "index": k} for k, call in enumerate(calls)
        ]
        return AIMessageChunk(content="", tool_call_chunks=pieces, id=message_id)
    fields = {"content": "", **SHAPES[shape](calls)}
    return AIMessage(tool_calls=[*calls], id=message_id, **fields)


def _valid_history(pick: Pick, shapes: Sequence[str]) -> History:
    history: History = [SystemMessage("be brief", id="sys")] if pick.chance(4) else []
    uid = 0
    for turn in range(1 + pick.below(3)):
        content: Any = f"ask {turn}"
        if pick.chance(4):
            content = [{"type": "text", "text": content}, {"type": "text", "text": "please"}]
        history.append(HumanMessage(content, id=None if pick.chance(4) else f"human-{turn}"))
        for step in range(pick.below(3)):
            count = 1 + pick.below(3)
            calls = [
                {"name": pick(NAMES), "args": {"uid": f"u{n}"}, "id": f"call-{n}"}
                for n in range(uid, uid + count)
            ]
            calls = [{**call, "type": "tool_call"} for call in calls]
            uid += count
            message_id = None if pick.chance(4) else f"ai-{turn}-{step}"
            history.append(calling_message(pick(shapes), calls, message_id))
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


# --- damage ----------------------------------------------------------------------------

DAMAGES: dict[str, Callable[[Pick, History], None]] = {}
"""Every way in which a history is broken here, by name; it changes the list."""

IN_PLACE: list[str] = []
"""Damage after which ids may occur twice, but each result is where it was."""

HONEST: list[str] = []
"""Damage after which each call has an id that no other call has, and each result names its own."""


def _damage(where: Callable[[History], Sequence[int]], *kinds: list[str]) -> Callable[[Any], Any]:
    """Register a change of a history at one of the places that `where` finds."""

    def register(change: Callable[[Pick, History, int], None]) -> Any:
        def damage(pick: Pick, history: History) -> None:
            if found := where(history):
                change(pick, history, pick(found))

        for names in kinds:
            names.append(change.__name__)
        DAMAGES[change.__name__] = damage
        return change

    return register


def _anywhere(history: History) -> Sequence[int]:
    return range(len(history))


def _places(*kinds: type) -> Callable[[History], Sequence[int]]:
    return lambda history: [k for k, m in enumerate(history) if isinstance(m, kinds)]


_results = _places(ToolMessage)


def _real(history: History) -> Sequence[int]:
    return [k for k in _results(history) if PLACEHOLDER_KEY not in history[k].additional_kwargs]


def _calling(history: History) -> Sequence[int]:
    return [k for k in _places(AIMessage)(history) if history[k].tool_calls]


def _update(history: History, place: int, **fields: Any) -> None:
    history[place] = history[place].model_copy(update=fields)


def _answer(history: History, call_id: object, start: int) -> int | None:
    """The index of the `ToolMessage` that answers `call_id`, before the next calls."""
    end = next((k for k in _calling(history) if k > start), len(history))
    found = (k for k in _results(history) if start < k < end)
    return next((k for k in found if history[k].tool_call_id == (call_id or "")), None)


def _rename(history: History, place: int, old_id: str | None, **new: Any) -> None:
    """Give the first call `old_id` a new `id` or `name`, in every place of its message."""
    message = history[place]
    update: dict[str, Any] = {"tool_calls": _changed(message.tool_calls, "id", old_id, new)}
    if isinstance(message.content, list):
        content = _changed(message.content, "id", old_id, new)
        of_block = {"call_id" if key == "id" else key: value for key, value in new.items()}
        update["content"] = _changed(content, "call_id", old_id, of_block)
    if isinstance(message, AIMessageChunk):
        update["tool_call_chunks"] = _changed(message.tool_call_chunks, "id", old_id, new)
    extra = dict(message.additional_kwargs)
    if "id" in new:
        if "tool_calls" in extra:
            extra["tool_calls"] = _changed(extra["tool_calls"], "id", old_id, new)
        if SIGNATURES in extra:
            signatures = extra[SIGNATURES].items()
            extra[SIGNATURES] = {new["id"] if k == old_id else k: v for k, v in signatures}
    _update(history, place, **update, additional_kwargs=extra)


def _changed(items: Sequence[Any], key: str, value: Any, new: Mapping[str, Any]) -> list[Any]:
    found = list(items)
    for place, item in enumerate(found):
        if isinstance(item, dict) and item.get(key) == value:
            found[place] = {**item, **new}
            break
    return found


def _unlist(history: History, place: int, call: Any, **fields: Any) -> None:
    message = history[place]
    if isinstance(message, AIMessageChunk):
        chunks = [chunk for chunk in message.tool_call_chunks if chunk["id"] != call["id"]]
        fields["tool_call_chunks"] = chunks
    left = [each for each in message.tool_calls if each is not call]
    _update(history, place, tool_calls=left, **fields)


def placeholder_for(call_id: str, **fields: Any) -> ToolMessage:
    """A placeholder of this package, as an earlier repair wrote it."""
    marker = {PLACEHOLDER_KEY: {"cause": "unknown"}}
    return ToolMessage("no result", tool_call_id=call_id, additional_kwargs=marker, **fields)


@_damage(_results, HONEST, IN_PLACE)
def drop_result(_pick: Pick, history: History, place: int) -> None:
    """A tool that never finished."""
    del history[place]


@_damage(_results, HONEST)
def move_result_later(pick: Pick, history: History, place: int) -> None:
    """A result that came in behind other messages."""
    moved = history.pop(place)
    history.insert(place + pick.below(len(history) - place + 1), moved)


@_damage(_results, HONEST)
def move_result_earlier(pick: Pick, history: History, place: int) -> None:
    """A result that was written before its call."""
    history.insert(pick.below(place + 1), history.pop(place))


@_damage(_calling, HONEST, IN_PLACE)
def steer(pick: Pick, history: History, place: int) -> None:
    """A message that came in between a call and its results."""
    messages = HumanMessage("steer", id="steer"), SystemMessage("hm"), AIMessage("hm", id="hm")
    history.insert(place + 1 + pick.below(2), pick(messages))


@_damage(_results, HONEST)
def duplicate_result(pick: Pick, history: History, place: int) -> None:
    """A second result for one call, somewhere behind the first."""
    text = f"{history[place].content}{pick(('', ', again'))}"
    again = history[place].model_copy(update={"id": None, "content": text})
    history.insert(place + 1 + pick.below(len(history) - place), again)


@_damage(_real, HONEST)
def late_real_result(pick: Pick, history: History, place: int) -> None:
    """A placeholder of this package is in the place of a result that came later."""
    real = history[place]
    history[place] = placeholder_for(real.tool_call_id, id=f"patch-{place}")
    history.insert(place + 1 + pick.below(len(history) - place), real)


@_damage(_calling)
def placeholder_anywhere(pick: Pick, history: History, place: int) -> None:
    """A placeholder of this package for some call, at any place."""
    call_id = pick(history[place].tool_calls)["id"] or ""
    history.insert(pick.below(len(history) + 1), placeholder_for(call_id))


@_damage(_results)
def foreign_placeholder(_pick: Pick, history: History, place: int) -> None:
    """What deepagents wrote where it found no result."""
    text = DEEPAGENTS_CANCELLED.format("t", history[place].tool_call_id)
    fields = {"additional_kwargs": {}, "id": f"deep-{place}", "name": None}
    _update(history, place, content=text, **fields)


@_damage(_anywhere, HONEST)
def orphan(_pick: Pick, history: History, place: int) -> None:
    """A result without a call."""
    lost = ToolMessage("lost", tool_call_id="nobody", name="search", id="orphan")
    history.insert(place, lost)


@_damage(_calling, IN_PLACE)
def reuse_id(pick: Pick, history: History, place: int) -> None:
    """A model that numbers its calls anew in every turn: call and result have an old id."""
    earlier = [k for k in _calling(history) if k < place]
    new_id = history[pick(earlier)].tool_calls[0]["id"] if earlier else None
    if new_id is None or new_id in {call["id"] for call in history[place].tool_calls}:
        return
    _renamed_with_result(pick, history, place, new_id)


def _renamed_with_result(pick: Pick, history: History, place: int, new_id: str | None) -> None:
    old_id = pick(history[place].tool_calls)["id"]
    answer = _answer(history, old_id, place)
    _rename(history, place, old_id, id=new_id)
    if answer is not None:
        _update(history, answer, tool_call_id=new_id or "")


@_damage(lambda history: [k for k in _calling(history) if len(history[k].tool_calls) > 1], IN_PLACE)
def reuse_id_in_message(_pick: Pick, history: History, place: int) -> None:
    """Two calls of one message with one id, and their results in call order."""
    first, second = (call["id"] for call in history[place].tool_calls[:2])
    answers = [_answer(history, call_id, place) for call_id in (first, second)]
    if first == second or None in answers:
        return
    _rename(history, place, second, id=first)
    moved = history[answers[1]].model_copy(update={"tool_call_id": first or ""})
    history.insert(answers[0] + 1, moved)
    del history[answers[1] + (answers[1] > answers[0])]


@_damage(_calling)
def bad_id(pick: Pick, history: History, place: int) -> None:
    """No id, an empty one, or one that is too long; its result has it too."""
    _renamed_with_result(pick, history, place, pick((None, "", LONG_ID)))


@_damage(
    lambda history: [k for k in _calling(history) if history[k].tool_calls[0]["id"]],
    HONEST,
)
def refused_id(pick: Pick, history: History, place: int) -> None:
    """An id that some provider refuses and no other call has; all its results have it too."""
    old_id = history[place].tool_calls[0]["id"]
    new_id = pick((f"{LONG_ID}-{old_id}", f"functions/{old_id}"))
    if any(f"'{old_id}'" in str(m) for m in history if not isinstance(m, AIMessage | ToolMessage)):
        return
    _rename(history, place, old_id, id=new_id)
    for answer in _results(history):
        if history[answer].tool_call_id == old_id:
            _update(history, answer, tool_call_id=new_id)


@_damage(_calling, HONEST)
def bad_name(pick: Pick, history: History, place: int) -> None:
    """A tool's name that no provider accepts; its results may have it too."""
    call_id, name = pick(history[place].tool_calls)["id"], pick(BAD_NAMES)
    _rename(history, place, call_id, name=name)
    for answer in _results(history):
        if history[answer].name is not None and history[answer].tool_call_id == call_id:
            _update(history, answer, name=name)


@_damage(_calling, HONEST)
def invalid_call(pick: Pick, history: History, place: int) -> None:
    """A call with arguments that could not be read; a tool node may have answered it."""
    message = history[place]
    call = pick(message.tool_calls)
    raw = json.dumps(call["args"])
    args = pick((raw[:-2], raw, None, ""))
    invalid = {**call, "args": args, "type": "invalid_tool_call", "error": "no JSON"}
    answer = _answer(history, call["id"], place)
    _unlist(history, place, call, invalid_tool_calls=[*message.invalid_tool_calls, invalid])
    if answer is not None and pick.chance(2):
        del history[answer]


@_damage(
    lambda history: [k for k in _calling(history) if isinstance(history[k].content, list)],
    HONEST,
)
def block_only(pick: Pick, history: History, place: int) -> None:
    """A call that is only in a content block."""
    _unlist(history, place, pick(history[place].tool_calls))


@_damage(
    lambda history: [k for k in _calling(history) if "tool_calls" in history[k].additional_kwargs],
    HONEST,
    IN_PLACE,
)
def raw_only(_pick: Pick, history: History, place: int) -> None:
    """Calls that are only in the provider's raw form."""
    _update(history, place, tool_calls=[], invalid_tool_calls=[])


@_damage(
    lambda history: [k for k in _calling(history) if isinstance(history[k], AIMessageChunk)],
    IN_PLACE,
)
def truncated_chunk(pick: Pick, history: History, place: int) -> None:
    """A stream that was cut in a call's arguments and stored: its parser calls it valid."""
    message = history[place]
    *whole, last = message.tool_call_chunks or [{"args": ""}]
    if message.tool_call_chunks:
        cut: Any = {**last, "args": (last["args"] or "")[: 1 + pick.below(12)]}
        history[place] = AIMessageChunk("", tool_call_chunks=[*whole, cut], id=message.id)


@_damage(lambda history: [k for k in _real(history) if history[k].name])
def function_message(_pick: Pick, history: History, place: int) -> None:
    """A result as a `FunctionMessage`: identified by the tool's name alone."""
    old = history[place]
    history[place] = FunctionMessage(old.content, name=old.name, id=old.id)


def _as_chat(pick: Pick, old: ToolMessage, **extra: Any) -> ChatMessage:
    role = pick(("tool", "function"))
    return ChatMessage(old.content, role=role, id=old.id, additional_kwargs=extra)


@_damage(_real)
def chat_message(pick: Pick, history: History, place: int) -> None:
    """A result as a `ChatMessage` that names nothing."""
    history[place] = _as_chat(pick, history[place])


@_damage(_real, HONEST)
def named_chat_message(pick: Pick, history: History, place: int) -> None:
    """A result as a `ChatMessage` that names its call."""
    old = history[place]
    history[place] = _as_chat(pick, old, tool_call_id=old.tool_call_id)


@_damage(_real, HONEST)
def human_tool_result(pick: Pick, history: History, place: int) -> None:
    """Results as `tool_result` blocks of one human message, which may say something too."""
    found, end = _real(history), place + 1
    while end in found and pick.chance(2):
        end += 1
    blocks: list[Any] = [
        {"type": "tool_result", "tool_use_id": old.tool_call_id, "content": old.content}
        for old in history[place:end]
    ]
    blocks += pick(([], [{"type": "text", "text": "and go on"}]))
    history[place:end] = [HumanMessage(blocks, id=f"human-result-{place}")]


@_damage(_anywhere, HONEST)
def trim_head(_pick: Pick, history: History, place: int) -> None:
    """A window that cut through a pair."""
    del history[:place]


@_damage(_anywhere, HONEST, IN_PLACE)
def cut_tail(_pick: Pick, history: History, place: int) -> None:
    """A run that ended in the middle of a step."""
    del history[place + 1 :]


@_damage(_places(HumanMessage), HONEST, IN_PLACE)
def as_dict(_pick: Pick, history: History, place: int) -> None:
    """A message in the form in which clients send it."""
    old = history[place]
    history[place] = {"role": "user", "content": old.content, "id": old.id}


def broken_history(
    seed: int, names: Sequence[str], max_damages: int = 4, shapes: Sequence[str] = tuple(SHAPES)
) -> Broken:
    """A valid history, damaged up to `max_damages` times; another one for each seed."""
    pick = Pick(seed)
    history = _valid_history(pick, shapes)
    done = [pick(names) for _ in range(1 + pick.below(max_damages))]
    for name in done:
        DAMAGES[name](pick, history)
    return Broken(history, tuple(done))


_SEEDS = st.integers(0, 2**32)
"""Choosing by a seed and not by many draws: the histories are unlike, and made quickly."""


def valid_histories() -> st.SearchStrategy[History]:
    """Histories without a defect, in which every shape of message occurs."""
    return _SEEDS.map(lambda seed: _valid_history(Pick(seed), tuple(SHAPES)))


def broken_histories(
    names: Sequence[str] = tuple(DAMAGES), shapes: Sequence[str] = tuple(SHAPES)
) -> st.SearchStrategy[Broken]:
    """Valid histories, damaged several times."""
    return _SEEDS.map(lambda seed: broken_history(seed, names, shapes=shapes))


# --- what can be read off a history -----------------------------------------------------


def answered(history: Sequence[Any]) -> set[str]:
    """The names of the calls that have a real result after them."""
    made: set[str] = set()
    found: set[str] = set()
    for message in history:
        if isinstance(message, AIMessage):
            made.update(re.findall(r"\bu\d+\b", repr(message)))
        else:
            found |= made.intersection(re.findall(r"result of (u\d+)\.", repr(message)))
    return found
