"""Which messages carry a result, and how it becomes a `ToolMessage` after its call."""

from langchain_core.messages import AIMessage, ChatMessage, FunctionMessage

from langgraph_patch import patch_messages
from support.histories import H, ai, is_quiet, kinds, made, repaired, result, with_field
from support.placeholder_texts import UNKNOWN


def in_block(call_id="c1", content="r", **fields):
    """A result in Anthropic's form."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def chat(role="tool", **extra):
    """A result as a home-made converter writes it."""
    return ChatMessage("r", role=role, id="x", additional_kwargs=extra)


TEXT = {"type": "text", "text": "go on"}
IMAGE = {"type": "image", "url": "https://x.y/z.png"}


def test_results_without_a_call_are_dropped():
    """Also in the wrong role, whether they name a call or not; what is beside one stays."""
    named, unnamed = chat(tool_call_id="gone"), FunctionMessage("r", name="t")
    patch = patch_messages([H("q"), named, unnamed])
    assert str(patch) == "dropped 'result' 'gone'; dropped 't' ''"
    assert kinds([ai("c1"), H([in_block(), in_block("no")])]) == ["converted", "dropped"]
    assert kinds([ai(None), H([in_block(None)])]) == ["converted"]
    assert kinds([H([in_block()])]) == ["dropped"]
    assert is_quiet([AIMessage([in_block()])])
    assert repaired([H([in_block(), TEXT], id="h")]) == [H([TEXT], id="h")]


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
