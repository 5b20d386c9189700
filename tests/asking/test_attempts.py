"""In which form a request is sent: the one that its model accepted before comes first.

`test_refused_runs` shows the forms after a refusal.
"""

from itertools import count
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import push_message
from langgraph.types import RetryPolicy

from kit import StrictModel, above
from langgraph_patch import patch_model, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.histories import call_of
from support.refused import (
    CONFIG,
    SAID,
    TEXT,
    THINKING,
    WAYS,
    RefusedError,
    RefusingModel,
    ai,
    claude,
)

FOREIGN = [HumanMessage("1", id="h1"), claude(THINKING, TEXT, id="a1"), HumanMessage("2", id="h2")]
BOTH = [FOREIGN[0], SAID, ai(" ", id="a0"), *FOREIGN[1:]]
"""With a message that says nothing: the plain form is the third request."""

LOOP = 10


def blocks(messages: Any) -> str | None:
    """A rule of a provider that knows texts alone."""
    return "unknown block" if any(isinstance(m.content, list) for m in messages) else None


def plain(messages: Any) -> bool:
    """Whether a request was sent in a form that the rule accepts."""
    return blocks(messages) is None


def node_of(node: Any) -> Any:
    """A graph of one node."""
    return above(node).compile(InMemorySaver())


class Repeats(AgentMiddleware):
    """Asks ten times, and gives each answer to the next request."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Do so."""
        for _ in range(LOOP):
            response = handler(request)
            request = request.override(messages=[*request.messages, *response.result])
        return response

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """Do the same, asynchronously."""
        for _ in range(LOOP):
            response = await handler(request)
            request = request.override(messages=[*request.messages, *response.result])
        return response


def looping(ask: Any, aask: Any) -> Any:
    """A node that asks ten times."""

    def node(state: Any) -> Any:
        history = [*state["messages"]]
        for _ in range(LOOP):
            history.append(ask(history))
        return {"messages": history[-1:]}

    async def anode(state: Any) -> Any:
        history = [*state["messages"]]
        for _ in range(LOOP):
            history.append(await aask(history))
        return {"messages": history[-1:]}

    return RunnableLambda(node, anode)


async def streamed(model: Any, history: Any) -> Any:
    """The chunks of an asynchronous stream, as one message."""
    found = [chunk async for chunk in model.astream(history)]
    return AIMessage("".join(chunk.text for chunk in found))


def in_one_node(place: str, model: Any) -> Any:
    """A graph whose one node asks ten times."""
    patched = patch_model(model)
    made: dict[str, Any] = {
        "a node": lambda: with_patching(node_of(looping(model.invoke, model.ainvoke))),
        "patch_model": lambda: node_of(looping(patched.invoke, patched.ainvoke)),
        "patch_model in a patched graph": lambda: with_patching(
            node_of(looping(patched.invoke, patched.ainvoke))
        ),
        "a stream of patch_model": lambda: node_of(
            looping(
                lambda history: AIMessage("".join(c.text for c in patched.stream(history))),
                lambda history: streamed(patched, history),
            )
        ),
        "bound anew each time": lambda: node_of(
            looping(
                lambda history: patch_model(model.bind(stop=["x"])).invoke(history),
                lambda history: patch_model(model.bind(stop=["x"])).ainvoke(history),
            )
        ),
        "middleware": lambda: create_agent(
            model, middleware=[Repeats(), PatchToolCallsMiddleware()]
        ),
    }
    return made[place]() if place else list(made)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", in_one_node("", StrictModel()))
def test_a_node_that_asks_ten_times_is_refused_once(place: str, way: str):
    """Eleven requests in place of twenty: the last ten in the form that was accepted."""
    model = RefusingModel(rule=blocks, disable_streaming="stream" not in place)
    WAYS[way](in_one_node(place, model), {"messages": FOREIGN}, CONFIG)
    assert [plain(seen) for seen in model.seen] == [False] + [True] * LOOP


def test_what_a_refused_request_pushed_is_dropped():
    """Its node runs again, and pushes it again."""
    model, ids = RefusingModel(rule=blocks), (f"p{number}" for number in count())

    def node(state: Any) -> Any:
        push_message(AIMessage("thinking", id=next(ids)))
        return {"messages": [model.invoke(state["messages"])]}

    state = with_patching(node_of(node)).invoke({"messages": FOREIGN}, CONFIG)
    assert len(model.seen) == 2
    assert [m.id for m in state["messages"] if m.text == "thinking"] == ["p1"]


def test_an_attempt_of_a_policy_sends_what_was_refused_once():
    """The other forms were refused in the attempt before."""
    model = RefusingModel(rule=lambda _: "no")
    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, retry_on=Exception)
    node = lambda state: {"messages": [model.invoke(state["messages"])]}
    builder = StateGraph(MessagesState).add_node("model", node, retry_policy=policy)
    with pytest.raises(RefusedError):
        with_patching(builder.add_edge(START, "model")).compile().invoke({"messages": BOTH})
    assert len(model.seen) == 3 + 1 + 1


def test_a_form_that_is_not_accepted_any_more_takes_no_request_more():
    """Then the history is sent as it is, and in the other forms: three requests, as before."""
    plan = iter([True, False, False, False, False])
    model = RefusingModel(rule=lambda seen: None if not blocks(seen) and next(plan) else "no")
    patched, errors = patch_model(model), []

    def node(state: Any) -> Any:
        patched.invoke(state["messages"])
        try:
            patched.invoke(state["messages"])
        except Exception as error:  # noqa: BLE001 - the provider's
            errors.append(error)
        return {"messages": [AIMessage("over")]}

    node_of(node).invoke({"messages": BOTH}, CONFIG)
    assert [plain(seen) for seen in model.seen] == [False, False, True, True, False, False]
    [note] = errors[0].__notes__
    assert "again after this repair" in note


def _orphan(messages: Any) -> str | None:
    """A rule that reads no result without its call."""
    return "no tool_calls before it" if messages[0].type == "tool" else None


@pytest.mark.parametrize("kept", [3, 4])
def test_a_node_that_shortens_its_history_is_told_what_helps(kept: int, caplog: Any):
    """The note and the WARNING name `patch_model`; neither knows what becomes of the next turn."""
    model = RefusingModel(rule=_orphan if kept == 3 else lambda _: "no")
    node = lambda state: {"messages": [model.invoke(state["messages"][-kept:])]}
    graph = with_patching(node_of(node))
    called = AIMessage("", id="a1", tool_calls=[call_of("mail", "c1")])
    sent = ToolMessage("sent", tool_call_id="c1", id="t1")
    history = [called, sent, AIMessage("done", id="a2"), HumanMessage("more", id="h1")]
    with pytest.raises(RefusedError) as caught:
        graph.invoke({"messages": history}, CONFIG)
    for said in (" ".join(caught.value.__notes__), caplog.text):
        assert "again after this repair" in said
        assert ("patch_model" in said) is (kept == 3)
        assert "will be refused" not in said
    model.rule = lambda _: None
    assert graph.invoke({"messages": [("human", "and more")]}, CONFIG)


def test_a_model_that_reads_the_history_again_is_asked_as_it_is():
    """It accepts what it had refused, and not the form: from then on nothing is changed."""
    reasons = iter(["no", None, "no", None, None])
    model = RefusingModel(rule=lambda _: next(reasons))
    patched = patch_model(model)

    def node(state: Any) -> Any:
        for _ in range(3):
            patched.invoke(state["messages"])
        return {"messages": [AIMessage("over")]}

    node_of(node).invoke({"messages": FOREIGN}, CONFIG)
    assert [plain(seen) for seen in model.seen] == [False, True, True, False, False]


def test_another_model_is_asked_as_it_is():
    """What one has refused it may read."""
    models = RefusingModel(rule=blocks), RefusingModel(rule=lambda _: None)

    def node(state: Any) -> Any:
        return {"messages": [patch_model(each).invoke(state["messages"]) for each in models]}

    node_of(node).invoke({"messages": FOREIGN}, CONFIG)
    assert [[plain(seen) for seen in each.seen] for each in models] == [[False, True], [False]]


def test_nothing_is_kept_in_a_healthy_run(monkeypatch: pytest.MonkeyPatch):
    """Nor read of the history."""
    kept: dict[Any, Any] = {}
    monkeypatch.setattr("langgraph_patch._langgraph.run._KEPT", kept)
    graph = node_of(looping(patch_model(StrictModel(refuses=lambda _: None)).invoke, None))
    graph.invoke({"messages": FOREIGN}, CONFIG)
    assert all(not each for each in kept.values())
