"""Which messages carry a result, and how it becomes a `ToolMessage` after its call."""

import pytest
from langchain_core.messages import AIMessage, ChatMessage, FunctionMessage, ToolMessage
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition

from kit import StrictModel
from langgraph_patch import patch_messages, with_patching
from support.histories import (
    H,
    ai,
    comparable,
    is_quiet,
    kinds,
    made,
    repaired,
    result,
    with_field,
)
from support.placeholder_texts import UNKNOWN


def in_block(call_id="c1", content="r", **fields):
    """A result in Anthropic's form."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def chat(role="tool", **extra):
    """A result as a home-made converter writes it."""
    return ChatMessage("r", role=role, id="x", additional_kwargs=extra)


TEXT = {"type": "text", "text": "go on"}
IMAGE = {"type": "image", "url": "https://x.y/z.png"}


def test_result_blocks_may_hold_anything():
    """What a `ToolMessage` cannot hold is kept as text."""
    for stored, kept in ((None, ""), ([TEXT, "x"], [TEXT, "x"]), ({"a": 1}, "{'a': 1}")):
        history = [ai("c1"), H([in_block(content=stored)])]
        assert repaired(history) == [ai("c1"), result(kept, id="result")]
    assert repaired([ai("c1"), H([in_block(content=[1])])])[1].content == "[1]"


EXTRA = {"additional_kwargs": {"a": 1}, "response_metadata": {"b": 2}}
FIELDS = {"name": "t", "id": "x", **EXTRA}
CONVERTED = [
    (FunctionMessage("r", **FIELDS), result("r", **FIELDS)),
    (chat(name="t"), result("r", id="x", additional_kwargs={"name": "t"})),
    (H([in_block(is_error=True)]), result("r", id="result", status="error")),
]


def test_a_result_in_the_wrong_role_is_converted():
    """It becomes a `ToolMessage` after its call, with all that the message carries."""
    for message, converted in CONVERTED:
        history = [ai("c0"), result("r0", "c0"), ai("c1"), message, H("z")]
        assert repaired(history) == [*history[:3], converted, H("z")]
        [found] = patch_messages(history).changes
        assert (found.kind, found.defect, found.index) == ("converted", "wrong_role", 3)
        assert (found.before, comparable([found.after])) == (message, [converted])
        assert found.tool_call_id == "c1"


def test_which_call_a_result_in_the_wrong_role_goes_to():
    """That which it names, else one of its tool; after those of results that name their call."""
    others = chat("function", name="u"), chat(tool_call_id="c2"), chat(tool_call_id="c2", name=7)
    for message in (FunctionMessage("r", name="u"), chat(name="u"), *others):
        *_, answer, placeholder = repaired([ai("c1", ("u", "c2")), message])
        assert (answer.content, answer.tool_call_id, placeholder) == ("r", "c2", made("c1"))
    unnamed, named = FunctionMessage("r2", name="t", id="x"), result("r1")
    assert [m.content for m in repaired([ai("c1", "c2"), unnamed, named])] == ["", "r2", "r1"]


def test_results_without_a_call_are_dropped():
    """Also in the wrong role, whether they name a call or not."""
    named, unnamed = chat(tool_call_id="gone"), FunctionMessage("r", name="t")
    patch = patch_messages([H("q"), named, unnamed])
    assert str(patch) == "dropped 'result' 'gone'; dropped 't' ''"
    assert kinds([ai("c1"), H([in_block(), in_block("no")])]) == ["converted", "dropped"]
    assert kinds([ai(None), H([in_block(None)])]) == ["converted"]
    assert kinds([H([in_block()])]) == ["dropped"]
    assert is_quiet([AIMessage([in_block()])])


def test_what_else_a_human_message_says_stays():
    """Each block becomes the result of its call; the rest keeps its place and its id."""
    message = H([in_block(), in_block("c2", "no"), TEXT], id="h", additional_kwargs={"a": 1})
    patch = patch_messages([ai("c1", "c2"), message])
    assert comparable(patch.messages) == [
        ai("c1", "c2"),
        result("r", id="result"),
        result("no", "c2", id="result"),
        H([TEXT], id="h", additional_kwargs={"a": 1}),
    ]
    assert patch.messages[1].id != patch.messages[2].id
    assert [change.before for change in patch.changes] == [message] * 2
    for said in (
        H("tool returned r", additional_kwargs={"tool_call_id": "c1"}),
        AIMessage([in_block()]),
    ):
        assert repaired([ai("c1"), said]) == [ai("c1"), made("c1"), said]


def as_functions(state):
    """What an agent of 2023 writes."""
    calls = state["messages"][-1].tool_calls
    return {"messages": [FunctionMessage(f"{c['name']} ran", name=c["name"]) for c in calls]}


class Caller(StrictModel):
    """Calls its tool until it has read the result; it refuses nothing."""

    def _line(self, messages):
        read = any(isinstance(m, ToolMessage) for m in messages)
        return AIMessage("done") if read else ai("c1")


def test_a_wrong_role_loop_ends_after_one_call():
    """Unpatched the model calls until the recursion limit; patched it reads the result once."""
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [Caller().invoke(state["messages"])]})
    builder.add_node("tools", as_functions).add_edge("tools", "agent").add_edge(START, "agent")
    graph = builder.add_conditional_edges("agent", tools_condition).compile()
    with pytest.raises(GraphRecursionError):
        graph.invoke({"messages": "go"}, {"recursion_limit": 12})
    messages = with_patching(graph).invoke({"messages": "go"})["messages"]
    assert [m.text for m in messages] == ["go", "", "t ran", "done"]


def test_the_placeholder_of_a_custom_call_is_wrapped():
    """As a text it would answer a function call. A result that is there stays as it is."""
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "t", "input": "ls"}
    caller = ai(("t", "c1", {"__arg1": "ls"}), content=[call])
    assert is_quiet([caller, result([TEXT, "txt"]), H("x")])
    unknown = {"type": "custom_tool_call_output", "output": UNKNOWN.format("t", "c1")}
    for block_of_call in (call, {"type": "non_standard", "value": call}):
        message = ai(("t", "c1", {"__arg1": "ls"}), content=[block_of_call])
        answer = with_field(made("c1"), content=[unknown])
        assert repaired([AIMessage([block_of_call])]) == [message, answer]
    for text, stored, kept in (
        ("r", FunctionMessage("r", name="t"), []),
        ("", H([in_block(content=[IMAGE])]), [IMAGE]),
    ):
        [_, found] = repaired([caller, stored])
        assert found.content == [{"type": "custom_tool_call_output", "output": text}, *kept]
