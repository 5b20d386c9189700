"""Runs the code blocks of the README as tests."""

from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser


def names_of_a_reader(namespace: dict[str, Any]) -> None:
    """Define what a reader has already: an agent without the package, and a graph."""
    from langchain.agents import create_agent  # noqa: PLC0415 - for the README only
    from langchain_core.language_models import GenericFakeChatModel  # noqa: PLC0415
    from langgraph.checkpoint.memory import InMemorySaver  # noqa: PLC0415
    from langgraph.graph import MessagesState, StateGraph  # noqa: PLC0415

    model = GenericFakeChatModel(messages=iter([]))
    builder = StateGraph(MessagesState).add_node("model", model).set_entry_point("model")
    namespace |= {
        "create_agent": create_agent,
        "model": model,
        "tools": [],
        "saver": InMemorySaver(),
        "builder": builder,
    }


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], pattern="README.md", setup=names_of_a_reader
).pytest()
