"""Where an `AIMessage` can carry a call, what is read of it, and that it is written everywhere."""

from langchain_core.messages import AIMessage, AIMessageChunk, FunctionMessage

from langgraph_patch import patch_messages
from langgraph_patch.history.calls import STOPPED, read_calls
from support.histories import (
    H,
    ai,
    call_of,
    chunk,
    defects,
    invalid_of,
    is_quiet,
    made,
    made_of_malformed,
    patched,
    repaired,
    result,
    with_field,
)

SCREEN = {"type": "input_image", "image_url": "data:image/png;base64,AAA"}
SHOWN = {"type": "computer_call_output", "call_id": "k1", "output": SCREEN}
COMPUTER = {"type": "computer_call", "id": "cu_1", "call_id": "k1", "action": {}}


COMPUTER_CALLS = [
    (AIMessage([COMPUTER]), result([SCREEN], "k1")),
    (
        AIMessage([{"type": "non_standard", "value": COMPUTER}]),
        result([{"type": "non_standard", "value": SHOWN}], "k1"),
    ),
    (AIMessage([], additional_kwargs={"tool_outputs": [COMPUTER]}), result("data:", "k1")),
]


TOOL_USE = {"type": "tool_use", "id": "c1", "name": "t", "input": {"a": 1}}
ARGS = '{"a": 1}'
FUNCTION_CALL = {"type": "function_call", "call_id": "c1", "name": "t", "arguments": ARGS}
CUSTOM = {"type": "custom_tool_call", "id": "x1", "call_id": "c1", "name": "t", "input": "ls"}


def in_block(block):
    """A message with one block, not listed."""
    return AIMessage([block])


def raw_of(arguments, call_id="c1", name="t"):
    """An item of `additional_kwargs["tool_calls"]`."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def raw_only(raw):
    """A message with calls in the provider's raw form only; LangChain's constructor lists them."""
    message = AIMessage("", additional_kwargs={"tool_calls": raw})
    return with_field(message, tool_calls=[], invalid_tool_calls=[])


def invalid(args, **fields):
    """A message with one invalid call, not validated."""
    return with_field(AIMessage(""), invalid_tool_calls=[invalid_of(args, **fields)])


A, CUT = {"a": 1}, {"name": "t", "args": "{", "id": "c1"}
STREAMED = {"type": "tool_use", "id": "c1", "name": "t", "input": {}, "index": 1}
PART = {"type": "tool_call_chunk", "id": "c1", "name": "t", "args": "{}"}
READ = {
    "listed": (ai(("t", "c1", A)), "tool_calls", A, None, None),
    "listed, cut": (with_field(ai("c1"), tool_calls=[CUT]), "tool_calls", {}, "{", None),
    "chunk": (chunk('{"a": "x\ny"}'), "tool_calls", {"a": "x\ny"}, None, None),
    "chunk, cut": (chunk('{"a": "use'), "tool_calls", {}, '{"a": "use', None),
    "invalid": (invalid('{"a":'), "invalid_tool_calls", {}, '{"a":', None),
    "invalid, stopped": (invalid("{", error=STOPPED), "stopped", {}, "{", None),
    "invalid, None": (invalid(None), "invalid_tool_calls", {}, "", None),
    "Anthropic": (in_block({**TOOL_USE, "partial_json": "{"}), "content", A, None, "tool_use"),
    "stream": (in_block({**STREAMED, "partial_json": '{"a": 1}'}), "content", A, None, "tool_use"),
    "cut stream": (in_block({**STREAMED, "partial_json": '{"a'}), "content", {}, '{"a', "tool_use"),
    "Responses": (in_block(FUNCTION_CALL), "content", A, None, "function_call"),
    "standard": (in_block({**PART, "type": "tool_call"}), "content", {}, None, "tool_call"),
    "part": (in_block(PART), "content", {}, None, "tool_call_chunk"),
    "invalid block": (
        in_block({**PART, "type": "invalid_tool_call", "args": "{"}),
        "content", {}, "{", "invalid_tool_call",
    ),
    "wrapped": (
        in_block({"type": "non_standard", "value": TOOL_USE}), "content", A, None, "tool_use",
    ),
    "custom": (in_block(CUSTOM), "content", {"__arg1": "ls"}, None, "custom_tool_call"),
    "in both": (ai(("t", "c1", A), content=[TOOL_USE]), "tool_calls", A, None, "tool_use"),
    "raw": (raw_only([raw_of('{"b"'), "noise"]), "additional_kwargs", {}, '{"b"', None),
}  # fmt: skip


def test_a_call_is_read_wherever_it_is():
    """Its source, arguments, incomplete arguments and block; it is read once."""
    for name, (message, source, args, raw_args, block_type) in READ.items():
        (call,) = read_calls(message, 3)
        assert (call.id, call.name, call.key) == ("c1", "t", (3, 0)), name
        found = call.source, call.args, call.raw_args, call.block_type
        assert found == (source, args, raw_args, block_type), name
        is_whole = message.tool_calls and message.tool_calls[0]["args"] == args and not raw_args
        assert call.tool_call is (message.tool_calls[0] if is_whole else None), name


NO_CALLS = [
    in_block({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}),
    in_block({"type": "web_search_call", "id": "s1"}),
    in_block(COMPUTER),
    in_block({"type": ["tool_use"], "id": "c1"}),
    *(in_block({"type": "non_standard", "value": v}) for v in ("x", {"no": "type"}, {"type": "?"})),
    *(AIMessage("a", additional_kwargs={"tool_calls": v}) for v in (7, {"id": "c1"}, ["c1"])),
    AIMessage("a", additional_kwargs={"function_call": "t"}),
]


def test_what_is_no_call_of_a_client_gets_no_result():
    """Tools of the provider, unknown blocks, and whatever an application put there."""
    for message in NO_CALLS:
        assert read_calls(message) == []
        assert is_quiet([H("q"), message, H("z")])


def test_a_legacy_function_call():
    """OpenAI reads it with its `FunctionMessage`; if it is listed, the raw form is removed."""
    raw = AIMessage("", additional_kwargs={"function_call": {"name": "t", "arguments": '{"a": 1}'}})
    answer = FunctionMessage("r", name="t")
    assert is_quiet([raw, answer, H("z")])
    for behind in ([H("z"), answer], [H("z")]):
        listed, written, _ = repaired([raw, *behind])
        assert listed.tool_calls == [call_of("t", "call_1c9be45b", A)]
        assert written.tool_call_id == "call_1c9be45b"
        assert listed.additional_kwargs == {}
    beside = AIMessage("", invalid_tool_calls=[invalid_of('{"a')])
    beside.additional_kwargs["tool_calls"] = [raw_of('{"a')]
    assert repaired([beside])[0].additional_kwargs == {}
    assert defects([raw_only([raw_of("{}")]), answer]) == ["wrong_role"]


def test_a_block_is_sent_with_its_arguments_as_a_dict():
    """Anthropic refuses a text as the input of a block; of a stream it is read if it is whole."""
    cut = AIMessage([{**TOOL_USE, "input": '{"a'}], invalid_tool_calls=[invalid_of('{"a')])
    for message, block, answer in (
        (cut, {**TOOL_USE, "input": {}}, made_of_malformed("c1", '{"a')),
        (READ["stream"][0], {**STREAMED, "input": A}, made("c1")),
    ):
        assert repaired([message]) == [ai(("t", "c1", block["input"]), content=[block]), answer]


def test_a_chunk_says_the_same_in_its_pieces():
    """As LangChain writes them, whatever the arguments hold."""
    odd = call_of("t", "c1", {"a": {1, 2}})
    stored = with_field(AIMessageChunk(content="", id="a1"), tool_calls=[odd])
    stored = with_field(stored, invalid_tool_calls=[invalid_of("{", "c2")])
    found = patch_messages([stored]).messages[0]
    assert [(p["id"], p["args"]) for p in found.tool_call_chunks] == [
        ("c1", '{"a": "{1, 2}"}'),
        ("c2", "{}"),
    ]
    assert found.tool_calls[0] is odd


def test_the_result_of_a_computer_call_stays():
    """OpenAI gets call and result unchanged, beside other damage and other results too."""
    for message, screen in COMPUTER_CALLS:
        history = [H("go"), message, screen, AIMessage("done"), H("x")]
        assert is_quiet(history)
        assert repaired([*history, ai("c1")]) == [*history, ai("c1"), made("c1")]
    (message, screen), first, second = COMPUTER_CALLS[0], result("r", "c1"), result("s", "c2")
    both = ai("c1", "c2", content=[COMPUTER])
    assert is_quiet([both, screen, first, second])
    assert not patched([both, first, screen])
    assert repaired([H("x"), screen, message]) == [H("x"), message]
    assert repaired([message, result("r", "k2")]) == [message]
    assert is_quiet([message, screen, ai("k1"), result("r", "k1"), H("x")])
