"""A history with two open calls, what a repair without evidence makes of it, and states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import add_messages
from pydantic import BaseModel

from support.agents import both_calls, human
from support.placeholder_texts import UNKNOWN
from support.strict import StrictModel

OPEN = [human("book it"), both_calls(), human("never mind")]
"""The history before the repair."""

UNKNOWN_STATEMENTS = [
    ("c1", UNKNOWN.format("send_email", "c1"), "unknown"),
    ("c2", UNKNOWN.format("wire_money", "c2"), "unknown"),
]
"""The two placeholders, as `support.transcripts.statements` shows them."""

UNKNOWN_RESULTS = [f"tool {call_id}: {text}" for call_id, text, _ in UNKNOWN_STATEMENTS]
"""The two placeholders, as `support.agents.lines` shows them."""

REPAIRED = ["human: book it", "ai c1 c2: ", *UNKNOWN_RESULTS, "human: never mind"]
"""The lines of the history after the repair."""


def messages_in(state: Any, key: str = "messages") -> Any:
    """The history in a state: a dict, a dataclass or a pydantic model."""
    return state[key] if isinstance(state, dict) else getattr(state, key)


def model_saying(*texts: str) -> StrictModel:
    """A strict model that answers with these texts, one after the other."""
    return StrictModel(script=[AIMessage(text) for text in texts])


@dataclass
class Data:
    """A state as a dataclass."""

    messages: Annotated[list[AnyMessage], add_messages]


@dataclass(frozen=True)
class FrozenData:
    """A state as a frozen dataclass."""

    messages: Annotated[list[AnyMessage], add_messages]


class Model(BaseModel):
    """A state as a pydantic model."""

    messages: Annotated[list[AnyMessage], add_messages]
