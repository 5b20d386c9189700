"""`patch_model`: the model reads a valid history wherever it is called, or an error says more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt
from pydantic import BaseModel

from kit import StrictModel, calls, loop, send_each, tool_of
from langgraph_patch import patch_model
from langgraph_patch.errors import OptionError

BROKEN = [HumanMessage("go"), calls(("wire", {})), HumanMessage("never mind")]
REPAIRED = ["human", "ai", "tool", "human"]


class Answer(BaseModel):
    """An answer with a type."""

    text: str


def test_structured_output_is_typed():
    """What parses the answer comes after the model."""

    class Model(StrictModel):
        def with_structured_output(self, schema: Any, **_: Any) -> Any:
            return self | RunnableLambda(lambda message: schema(text=message.text))

    model = Model()
    for patched in (
        patch_model(model).with_structured_output(Answer),
        patch_model(model.with_structured_output(Answer)),
    ):
        assert patched.invoke(BROKEN) == Answer(text="done")
        assert [m.type for m in model.seen[-1]] == REPAIRED


PROMPT = ChatPromptTemplate.from_messages([("placeholder", "{messages}")])


@pytest.mark.parametrize(
    "value",
    ["gpt", RunnableLambda(lambda x: x), PROMPT | FakeListChatModel(responses=["x"])],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_model_is_refused(value):
    """The error names the value, its type and what was expected; the model behind a prompt."""
    remedy = r"init_chat_model\('gpt'\)" if value == "gpt" else r"prompt \| patch_model\(model\)"
    expected = rf"is a {type(value).__name__}: expected a chat model, or what bind_tools.*{remedy}"
    with pytest.raises(OptionError, match=expected) as error:
        patch_model(value)
    assert str(error.value).startswith(f"model={value!r:.59}")


def test_a_patched_model_behind_a_prompt():
    """It reads a valid history."""
    model = StrictModel()
    (PROMPT | patch_model(model)).invoke({"messages": BROKEN})
    assert [m.type for m in model.seen[0]] == REPAIRED


def test_an_option_with_a_wrong_value():
    """It is refused also for a model that is patched already, which stays as it is."""
    patched = patch_model(StrictModel())
    assert patch_model(patched) is patched
    assert repr(patched).startswith("patch_model(StrictModel(")
    with pytest.raises(OptionError, match="recover='always'"):
        patch_model(patched, recover="always")


class Slow(InMemorySaver):
    """A checkpointer that takes its time to store a checkpoint."""

    seconds = 0.0

    async def aput(self, *args: Any) -> Any:
        """Store it later."""
        await asyncio.sleep(self.seconds)
        return self.put(*args)


def mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


def wire(to: str) -> str:
    """Wire, if a human agrees."""
    return str(interrupt(f"wire to {to}?"))


async def test_a_synchronous_call_in_an_asynchronous_run_waits_for_the_checkpoint():
    """Its node runs in a thread, where it cannot wait for what the event loop does."""
    model = StrictModel(calls(("mail", {"to": "bob"}), ("wire", {"to": "bob"})), "done")
    tools = [tool_of(mail), tool_of(wire)]
    saver, config = Slow(), {"configurable": {"thread_id": "1"}}
    asks = RunnableLambda(patch_model(model).invoke)
    graph = loop(asks, tools, router=send_each).compile(checkpointer=saver)
    await graph.ainvoke({"messages": [("user", "go")]}, config)
    saver.seconds = 0.1
    await graph.ainvoke({"messages": [("user", "never mind")]}, config)
    assert "sent to bob" in [message.text for message in model.seen[-1]]
