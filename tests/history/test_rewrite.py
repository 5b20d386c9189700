"""A new id or name is written everywhere where a call or its result has it."""

from langchain_core.messages import AIMessage, AIMessageChunk

from langgraph_patch import patch_messages
from support.histories import ai, call_of, defects, kinds, made, repaired, result, with_field
from support.placeholder_texts import UNKNOWN

SIGNATURES = "__gemini_function_call_thought_signatures__"
THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
TEXT = {"type": "text", "text": "a."}
IMAGE = {"type": "image", "url": "https://x.y/z.png"}


def block(kind, call_id="c 1", **fields):
    """A content block that calls `no good`."""
    key = "call_id" if kind in ("function_call", "custom_tool_call") else "id"
    return {"type": kind, key: call_id, "name": fields.pop("name", "no good"), **fields}


def wrapped(inner):
    """A block in LangChain's v1 content."""
    return {"type": "non_standard", "value": inner}


BLOCKS = [
    lambda c, n: block("tool_use", c, name=n, input={}, cache={"x": 1}),
    lambda c, n: block("function_call", c, name=n, arguments="{}", id="fc_1"),
    lambda c, n: wrapped(block("custom_tool_call", c, name=n, input="ls")),
]


def test_f26_a_block_gets_the_new_id_and_name_and_nothing_else_changes():
    """Thoughts and signatures are byte-identical; of a valid call the message is the same."""
    valid = ai("c1", content=[THINKING, TEXT])
    assert patch_messages([valid]).messages[0] is valid
    for make in BLOCKS:
        content = [THINKING, "text", REASONING, make("c 1", "no good"), {"no": "type"}]
        found = repaired([ai(("no good", "c 1"), content=content)])[0]
        (call,) = found.tool_calls
        assert call["name"] == "no_good"
        assert call["id"].startswith("c_1_")
        content[3] = make(call["id"], "no_good")
        assert found.content == content
    blocks = [block("tool_use", "c1", name="t", input={"k": k}) for k in (1, 2)]
    found = repaired([ai(("t", "c1", {"k": 1}), ("t", "c1", {"k": 2}), content=blocks)])[0]
    assert found.content == [blocks[0], {**blocks[1], "id": found.tool_calls[1]["id"]}]


def test_f26_the_maps_by_call_id_get_the_new_id_and_the_raw_form_goes():
    """Gemini's signatures; other maps and values stay as they are."""
    extra = {
        SIGNATURES: {"c 1": "s==", "c9": "s9"},
        "other": {"x": "c 1"},
        "tool_calls": [{"id": "c 1"}, {"id": "c 2"}],
        "function_call": {"name": "no good"},
        "refusal": None,
    }
    found = repaired([ai(("no good", "c 1"), "c 2", additional_kwargs=extra)])[0]
    assert found.additional_kwargs == {
        SIGNATURES: {found.tool_calls[0]["id"]: "s==", "c9": "s9"},
        "other": {"x": "c 1"},
        "refusal": None,
    }


def test_f26_the_signature_of_an_id_that_two_calls_share_is_of_both():
    """The call that keeps the id keeps its signature too."""
    message = ai("c1", ("u", "c1"), "", additional_kwargs={SIGNATURES: {"c1": "s", "": "e"}})
    found = repaired([message])[0]
    new_id = found.tool_calls[1]["id"]
    assert found.additional_kwargs == {SIGNATURES: {"c1": "s", new_id: "s", "": "e"}}


def test_f25_a_renamed_chunk_says_the_same_in_its_pieces():
    """As LangChain writes them, whatever the arguments hold."""
    odd = call_of("t", "c 1", {"a": {1, 2}})
    stored = with_field(AIMessageChunk(content="", id="a1"), tool_calls=[odd])
    found = patch_messages([stored]).messages[0]
    [piece] = found.tool_call_chunks
    assert (piece["id"], piece["name"]) == (found.tool_calls[0]["id"], "t")
    assert (piece["args"], piece["index"]) == ('{"a": "{1, 2}"}', None)
    assert found.tool_calls[0]["args"] == odd["args"]


def test_f10_the_result_of_a_custom_call_is_wrapped():
    """As it is it would answer a function call; what is no text is not lost."""
    content = [block("custom_tool_call", "c1", name="t", input="ls")]
    caller = ai(("t", "c1", {"__arg1": "ls"}), content=content)
    for text, stored, kept in (
        ("a.txt", [TEXT, "txt"], [TEXT, "txt"]),
        ("", [], []),
        ("", [IMAGE], [IMAGE]),
    ):
        output = [{"type": "custom_tool_call_output", "output": text}, *kept]
        assert defects([caller, result(stored)]) == ["wrong_role"]
        assert kinds([caller, result(stored)]) == ["converted"]
        assert repaired([caller, result(stored)]) == [caller, result(output)]
    unknown = {"type": "custom_tool_call_output", "output": UNKNOWN.format("t", "c1")}
    for block_of_call in (*content, wrapped(content[0])):
        message = ai(("t", "c1", {"__arg1": "ls"}), content=[block_of_call])
        answer = with_field(made("c1"), content=[unknown])
        assert repaired([AIMessage([block_of_call])]) == [message, answer]
