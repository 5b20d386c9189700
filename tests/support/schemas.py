"""States of every kind that LangGraph takes, for the tests of nodes and of graphs."""

from dataclasses import dataclass
from typing import Annotated

from langchain_core.messages import AnyMessage
from langgraph.graph import add_messages
from pydantic import BaseModel


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
