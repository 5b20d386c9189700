"""Runs the code blocks of the README as they are printed, with a scripted model."""

import logging
import re
from pathlib import Path
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser


def name_a_model(namespace: dict[str, Any]) -> None:
    """Let the model that the README names be a scripted one: all else is the reader's."""
    from langchain.agents import factory  # noqa: PLC0415 - for the README only
    from langchain_core.language_models import GenericFakeChatModel  # noqa: PLC0415
    from langchain_core.messages import AIMessage  # noqa: PLC0415

    class Model(GenericFakeChatModel):
        def bind_tools(self, *_: Any, **__: Any) -> "Model":
            return self

    wire = {"name": "wire_money", "args": {"to": "Bob", "amount": 100}, "id": "c1"}
    replies = [AIMessage("", tool_calls=[wire]), AIMessage("No money was wired.")]
    namespace["__real__"] = factory.init_chat_model
    factory.init_chat_model = lambda *_, **__: Model(messages=iter(replies))
    namespace["__logged__"] = logged = []
    watch = logging.Handler(logging.INFO)
    watch.emit = logged.append
    logger = logging.getLogger("langgraph_patch")
    logger.addHandler(watch)
    logger.setLevel(logging.INFO)


def compare_what_was_printed(namespace: dict[str, Any]) -> None:
    """What the README quotes is what its example has printed and logged: no WARNING of ours."""
    from langchain.agents import factory  # noqa: PLC0415 - for the README only

    factory.init_chat_model = namespace["__real__"]
    logger, logged = logging.getLogger("langgraph_patch"), namespace["__logged__"]
    logger.removeHandler(logger.handlers[-1])
    logger.setLevel(logging.NOTSET)
    text = Path(__file__).with_name("README.md").read_text()
    quoted = re.findall("^> (.*)$", text, re.MULTILINE)
    assert quoted == [namespace["state"]["messages"][2].text]  # noqa: S101 - a test
    assert [each for each in logged if each.levelno > logging.INFO] == []  # noqa: S101
    assert f"`{logged[-1].getMessage()}`" in text  # noqa: S101


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    pattern="README.md",
    setup=name_a_model,
    teardown=compare_what_was_printed,
).pytest()
