"""Hypothesis strategies: valid histories of every message shape, damage to them, and anything.

Every call has a name of its own (`u7`) in its arguments, and its real result is
`result of u7.`: whether a result is beside its own call can be read off the messages, without
the code under test.
"""

import copy
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_patch.history.fields import PLACEHOLDER_KEY
from support.histories import marked
from support.placeholder_texts import DEEPAGENTS_CANCELLED

SIGNATURES = "__gemini_function_call_thought_signatures__"
BAD_IDS = (
    "call-with-an-id-that-chat-completions-refuses-since-it-is-long-{old}",
    "functions/{old}",
)
NAMES = ("search", "send_email", "wire-money")
BAD_NAMES = ("", "wire money", "检索", "functions.search", "x" * 70, "{{0.__class__}}")
ORPHAN = ToolMessage("lost", tool_call_id="nobody", name="search", id="orphan")
MARK = {"cause": "unknown"}
TEXT = {"type": "text", "text": "I will"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}

History = list[Any]


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


def _anthropic(call: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}


def _responses(call: Any) -> dict[str, Any]:
    own = {"id": f"fc_{call['args']['uid']}", "call_id": call["id"], "name": call["name"]}
    return {"type": "function_call", **own, "arguments": json.dumps(call["args"])}


def _raw(call: Any) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["args"])}
    return {"id": call["id"], "type": "function", "function": function}


SHAPES: Mapping[str, Callable[[list[Any]], dict[str, Any]]] = {
    "plain": lambda _: {},
    "chunk": lambda _: {},
    "anthropic": lambda calls: {"content": [THINKING, TEXT, *map(_anthropic, calls)]},
    "responses": lambda calls: {"content": [REASONING, *map(_responses, calls)]},
    "standard": lambda calls: {"content": [TEXT, *map(dict, calls)]},
    "raw_too": lambda calls: {"additional_kwargs": {"tool_calls": [*map(_raw, calls)]}},
    "gemini": lambda calls: {"additional_kwargs": {SIGNATURES: {c["id"]: "c2ln" for c in calls}}},
}
"""What a message that calls has beside its calls; every provider can carry each."""


def _calling_message(shape: str, calls: list[Any], message_id: str | None) -> AIMessage:
    if shape == "chunk":
        pieces = [{**c, "args": json.dumps(c["args"]), "index": n} for n, c in enumerate(calls)]
        return AIMessageChunk(content="", tool_call_chunks=pieces, id=message_id)
    return AIMessage(**{"content": "", **SHAPES[shape](calls)}, tool_calls=calls, id=message_id)


def result_of(uid: str) -> str:
    """What the real result of the call `uid` says."""
    return f"result of {uid}."


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


def _valid_history(pick: Pick) -> History:
    history: History = [SystemMessage("be brief", id="sys")] if pick.chance(4) else []
    made = 0
    for turn in range(1 + pick.below(3)):
        content = [TEXT, TEXT] if pick.chance(4) else f"ask {turn}"
        history.append(HumanMessage(content, id=None if pick.chance(4) else f"human-{turn}"))
        for step in range(pick.below(3)):
            uids = range(made, made + 1 + pick.below(3))
            made = uids.stop
            calls: list[Any] = [
                {"name": pick(NAMES), "args": {"uid": f"u{n}"}, "id": f"call-{n}"} for n in uids
            ]
            calls = [{**call, "type": "tool_call"} for call in calls]
            message_id = None if pick.chance(4) else f"ai-{turn}-{step}"
            history.append(_calling_message(pick(tuple(SHAPES)), calls, message_id))
            results = [_result(pick, call) for call in calls]
            history += reversed(results) if pick.chance(3) else results
        if not pick.chance(3):
            history.append(AIMessage(f"answer {turn}", id=f"answer-{turn}"))
    return history


DAMAGES: dict[str, Callable[[Pick, History], None]] = {}
"""Every way in which a history is broken here, by name; it changes the list."""

Change = Callable[[Pick, History, int], Any]
Where = Callable[[History], Sequence[int]]


def _register(name: str, where: Where, change: Change) -> None:
    """Register a change of a history at one of the places that `where` finds."""

    def damage(pick: Pick, history: History) -> None:
        if found := where(history):
            change(pick, history, pick(found))

    DAMAGES[name] = damage


def _damage(where: Where) -> Callable[[Change], None]:
    return lambda change: _register(change.__name__.removeprefix("_"), where, change)


def _anywhere(history: History) -> Sequence[int]:
    return range(len(history))


def _results(history: History) -> Sequence[int]:
    return [k for k, message in enumerate(history) if isinstance(message, ToolMessage)]


def _real(history: History) -> Sequence[int]:
    return [k for k in _results(history) if PLACEHOLDER_KEY not in history[k].additional_kwargs]


def _calling(history: History) -> Sequence[int]:
    return [k for k, m in enumerate(history) if isinstance(m, AIMessage) and m.tool_calls]


def _with_blocks(history: History) -> Sequence[int]:
    return [k for k in _calling(history) if isinstance(history[k].content, list)]


def _turn(history: History, start: int) -> range:
    """The indexes of a message that calls and of what comes before the next calls."""
    return range(start, next((k for k in _calling(history) if k > start), len(history)))


def _update(history: History, place: int, **fields: Any) -> None:
    history[place] = history[place].model_copy(update=fields)


def _replace(history: History, places: Sequence[int], old: str, new: str | None) -> None:
    """Replace an id or a name in every field of these messages."""

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {new if key == old else key: replaced(each) for key, each in value.items()}
        if isinstance(value, list):
            return list(map(replaced, value))
        return new if value == old else value

    for place in places:
        fields = replaced(history[place].__dict__)
        if isinstance(history[place], ToolMessage):
            fields["tool_call_id"] = fields["tool_call_id"] or ""
        _update(history, place, **fields)


def _replace_first(history: History, place: int, key: str, new: str) -> None:
    """Replace the id or the name of the first call of a message, everywhere."""
    if old := history[place].tool_calls[0][key]:
        _replace(history, _anywhere(history), old, new.format(old=old))


def _unlist(history: History, place: int, call: Any, **fields: Any) -> None:
    """Take a call out of the calls of a message."""
    message = history[place]
    if chunks := getattr(message, "tool_call_chunks", None):
        fields["tool_call_chunks"] = [chunk for chunk in chunks if chunk["id"] != call["id"]]
    left = [each for each in message.tool_calls if each is not call]
    _update(history, place, tool_calls=left, **fields)


_register("drop_result", _results, lambda _, h, k: h.pop(k))
_register("trim_head", _anywhere, lambda _, h, k: h.__delitem__(slice(k)))
_register("orphan", _anywhere, lambda _, h, k: h.insert(k, ORPHAN))
_register("block_only", _with_blocks, lambda p, h, k: _unlist(h, k, p(h[k].tool_calls)))
_register("refused_id", _calling, lambda p, h, k: _replace_first(h, k, "id", p(BAD_IDS)))
_register("bad_name", _calling, lambda p, h, k: _replace_first(h, k, "name", p(BAD_NAMES)))


@_damage(_calling)
def _raw_only(_pick: Pick, history: History, place: int) -> None:
    if "tool_calls" in history[place].additional_kwargs:
        _update(history, place, tool_calls=[], invalid_tool_calls=[])


@_damage(_results)
def _move_result(pick: Pick, history: History, place: int) -> None:
    moved = history.pop(place)
    history.insert(pick.below(len(history) + 1), moved)


@_damage(_calling)
def _steer(pick: Pick, history: History, place: int) -> None:
    messages = HumanMessage("steer", id="steer"), SystemMessage("hm"), AIMessage("hm", id="hm")
    history.insert(place + 1 + pick.below(2), pick(messages))


@_damage(_results)
def _duplicate_result(pick: Pick, history: History, place: int) -> None:
    text = f"{history[place].content}{pick(('', ', again'))}"
    again = history[place].model_copy(update={"id": None, "content": text})
    history.insert(place + 1 + pick.below(len(history) - place), again)


@_damage(_real)
def _late_real_result(pick: Pick, history: History, place: int) -> None:
    """A placeholder of this package is in the place of a result that came later."""
    real = history[place]
    history[place] = marked(MARK, "none", real.tool_call_id, id=f"patch-{place}")
    history.insert(place + 1 + pick.below(len(history) - place), real)


@_damage(_results)
def _foreign_placeholder(_pick: Pick, history: History, place: int) -> None:
    """What deepagents wrote where it found no result."""
    call_id = history[place].tool_call_id
    text = DEEPAGENTS_CANCELLED.format("t", call_id)
    history[place] = ToolMessage(text, tool_call_id=call_id, id=f"deep-{place}")


@_damage(_calling)
def _reuse_id(pick: Pick, history: History, place: int) -> None:
    """A model that numbers its calls anew in every turn: call and result have an old id."""
    own = [call["id"] for call in history[place].tool_calls]
    earlier = {c["id"] for k in _calling(history) if k < place for c in history[k].tool_calls}
    if (old := pick(own)) and (new := sorted(filter(None, earlier.difference(own)))):
        _replace(history, _turn(history, place), old, pick(new))


@_damage(_calling)
def _reuse_id_in_message(_pick: Pick, history: History, place: int) -> None:
    """Two calls of one message with one id, and their results in call order."""
    first, last = (history[place].tool_calls[k]["id"] for k in (0, -1))
    turn = [k for k in _turn(history, place) if k in _results(history)]
    found = [[k for k in turn if history[k].tool_call_id == call_id] for call_id in (first, last)]
    if first and last and first != last and all(len(places) == 1 for places in found):
        (before,), (after,) = found
        if before > after:
            history[before], history[after] = history[after], history[before]
        _replace(history, _turn(history, place), last, first)


@_damage(_calling)
def _bad_id(pick: Pick, history: History, place: int) -> None:
    """No id, or an empty one; its result has none either."""
    if old := pick(history[place].tool_calls)["id"]:
        _replace(history, _turn(history, place), old, pick((None, "")))


@_damage(_calling)
def _invalid_call(pick: Pick, history: History, place: int) -> None:
    """A call with arguments that could not be read; a tool node may have answered it."""
    message = history[place]
    call = pick(message.tool_calls)
    raw = json.dumps(call["args"])
    args = pick((raw[:-2], raw, None, ""))
    invalid = {**call, "args": args, "type": "invalid_tool_call", "error": "no JSON"}
    _unlist(history, place, call, invalid_tool_calls=[*message.invalid_tool_calls, invalid])


@_damage(lambda h: [k for k in _calling(h) if getattr(h[k], "tool_call_chunks", 0)])
def _truncated_chunk(pick: Pick, history: History, place: int) -> None:
    """A stream that was cut in a call's arguments and stored: its parser calls it valid."""
    message = history[place]
    *whole, last = message.tool_call_chunks
    cut: Any = {**last, "args": (last["args"] or "")[: 1 + pick.below(12)]}
    history[place] = AIMessageChunk("", tool_call_chunks=[*whole, cut], id=message.id)


@_damage(_real)
def _function_message(_pick: Pick, history: History, place: int) -> None:
    if (old := history[place]).name:
        history[place] = FunctionMessage(old.content, name=old.name, id=old.id)


@_damage(_real)
def _human_tool_result(pick: Pick, history: History, place: int) -> None:
    """Results as `tool_result` blocks of one human message, which may say something too."""
    found, end = _real(history), place + 1
    while end in found and pick.chance(2):
        end += 1
    blocks: list[Any] = [
        {"type": "tool_result", "tool_use_id": old.tool_call_id, "content": old.content}
        for old in history[place:end]
    ]
    blocks += pick(([], [TEXT]))
    history[place:end] = [HumanMessage(blocks, id=f"human-result-{place}")]


def damaged_history(seed: int, names: Sequence[str] = ()) -> History:
    """A valid history, damaged up to four times; another one for each seed."""
    pick = Pick(seed)
    history = _valid_history(pick)
    for _ in range(1 + pick.below(4)):
        DAMAGES[pick(names or tuple(DAMAGES))](pick, history)
    return history


_SEEDS = st.integers(0, 2**32)
"""Choosing by a seed and not by many draws: the histories are unlike, and made quickly."""


def valid_histories() -> st.SearchStrategy[History]:
    """Histories without a defect, in which every shape of message occurs."""
    return _SEEDS.map(lambda seed: _valid_history(Pick(seed)))


def damaged_histories(names: Sequence[str] = ()) -> st.SearchStrategy[History]:
    """Valid histories, damaged several times."""
    return _SEEDS.map(lambda seed: damaged_history(seed, names))


def fewer(part: int) -> Any:
    """A property that costs more than most: one in `part` of the profile's examples."""
    return settings(max_examples=settings.default.max_examples // part)


# --- anything, as it is only without validation: missing fields, other types, hostile texts -------

DEEP: Any = {}
for _ in range(200):
    DEEP = {"inner": [DEEP]}

TEXTS = (
    *("", "look", "tool_use", "tool_result", "non_standard", "custom_tool_call", "\ud800 alone"),
    *("\x1b[2J\x1b]0;owned\x07", "\u202egnp.exe", "{0.__class__} %s {name}", "检索\x00"),
    *("x" * 10_000, '{"a": ' * 3_000),
)
WRONG: tuple[Any, ...] = (
    *(None, 7, -1.5, float("nan"), True, b"\xff", (), [], {}, [None], [[]], [7, "c1"], object),
    *({"a": {1, 2}}, {None: None}, {"type": "non_standard", "value": {"type": "tool_use"}}, DEEP),
)
INSTEAD: tuple[Any, ...] = (
    *({}, {"role": "user"}, {"role": "tool", "content": "x"}, ("ai", "x"), ("nobody", None), "x"),
    {"role": "assistant", "content": [{}], "tool_calls": [{"id": 7}]},
)
"""What LangGraph accepts for a message, or might be taken for one."""


def _damage_value(pick: Pick, holder: Any) -> None:
    """Damage one value in a message, however deep it is."""
    keys = [*holder] if isinstance(holder, dict) else range(len(holder))
    key = pick(keys)
    if isinstance(holder[key], dict | list) and holder[key] and not pick.chance(3):
        _damage_value(pick, holder[key])
    elif pick.chance(8):
        del holder[key]
    else:
        holder[key] = copy.deepcopy(pick(TEXTS if pick.chance(2) else WRONG))


UNCORRECTED = (
    *("additional_kwargs", "response_metadata", "id", "name", "role", "tool_call_chunks"),
)
"""The fields that no repair corrects: a message with a wrong one fails without the package too."""


def _hostile_history(seed: int, others: tuple[Any, ...] = ()) -> list[Any]:
    pick = Pick(seed)
    history: list[Any] = copy.deepcopy(damaged_history(seed)[:12])
    for _ in range(pick.below(6) if history else 0):
        place = pick.below(len(history))
        if others and pick.chance(3):
            history[place] = pick(others)
        elif isinstance(history[place], BaseMessage):
            fields = history[place].__dict__
            valid = {name: copy.deepcopy(fields[name]) for name in UNCORRECTED if name in fields}
            _damage_value(pick, fields)
            fields.update(valid)
    return history


def hostile_histories() -> st.SearchStrategy[list[Any]]:
    """Lists of messages without validation; in half of them other things stand too."""
    mixed = _SEEDS.map(lambda seed: _hostile_history(seed, INSTEAD + WRONG))
    return _SEEDS.map(_hostile_history) | mixed
