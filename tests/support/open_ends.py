"""Repair a history as the entry check does: calls at its end may stay without a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph_patch.history.patch import Patch, as_messages, patch_reading, read_if_damaged


def patched(history: Sequence[Any], *, leaves_open: bool = True) -> Patch:
    """The repair; its messages are the converted ones if the history is valid."""
    messages = as_messages(history)
    reading = read_if_damaged(messages, leaves_open=leaves_open)
    return Patch(messages, (), messages) if reading is None else patch_reading(reading)
