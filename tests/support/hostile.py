"""Hypothesis strategies: histories with anything in them, as it is only without validation.

Fields, items and keys of broken histories are missing, of another type, or hostile texts.
"""

import copy
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import BaseMessage

from support.strategies import Pick, damaged_history

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


def _damage(pick: Pick, holder: Any) -> None:
    """Damage one value in a message, however deep it is."""
    keys = [*holder] if isinstance(holder, dict) else range(len(holder))
    key = pick(keys)
    if isinstance(holder[key], dict | list) and holder[key] and not pick.chance(3):
        _damage(pick, holder[key])
    elif pick.chance(8):
        del holder[key]
    else:
        holder[key] = copy.deepcopy(pick(TEXTS if pick.chance(2) else WRONG))


UNCORRECTED = (
    *("additional_kwargs", "response_metadata", "id", "name", "role", "tool_call_chunks"),
)
"""The fields that no repair corrects: a message with a wrong one fails without the package too."""


def _history(seed: int, others: tuple[Any, ...], spared: tuple[str, ...] = ()) -> list[Any]:
    pick = Pick(seed)
    history: list[Any] = copy.deepcopy(damaged_history(seed)[:12])
    for _ in range(pick.below(6) if history else 0):
        place = pick.below(len(history))
        if others and pick.chance(3):
            history[place] = pick(others)
        elif isinstance(history[place], BaseMessage):
            fields = history[place].__dict__
            valid = {name: copy.deepcopy(fields[name]) for name in spared if name in fields}
            _damage(pick, fields)
            fields.update(valid)
    return history


def histories(spared: tuple[str, ...] = ()) -> st.SearchStrategy[list[Any]]:
    """Lists of messages without validation; some fields may be spared."""
    return st.integers(0, 2**32).map(lambda seed: _history(seed, (), spared))


def anything(spared: tuple[str, ...] = ()) -> st.SearchStrategy[list[Any]]:
    """Lists in which other things stand too."""
    return st.integers(0, 2**32).map(lambda seed: _history(seed, INSTEAD + WRONG, spared))
