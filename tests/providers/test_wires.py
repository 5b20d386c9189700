"""Each wire takes what the repair makes of each broken history, and the checker is not blind."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_patch.history.patch import patch_messages
from langgraph_patch.history.texts import Finding
from support import wires
from support.damaged import CARRIED_BY, DAMAGED, SHAPES, Call, ai, carried_by, human, result
from support.wires import INTEGRATIONS, WIRES, assert_accepted, broken_rules, payload, refusals

LETTERS = dict(zip("CRAGMB", WIRES, strict=True))

# The wires (C R A G M B, in the order of WIRES) that refuse a history before its repair, of those
# that carry it; measured. A name without a shape means all shapes that are not named.
REFUSED_BEFORE = {
    "F1-answered-by-hand": "CRAGMB",
    "F1-new-message": "CRAGMB",
    "F1-still-pending": "CRAGMB",
    "F2-second-of-two-alike": "CRAGMB",
    "F2-sibling-lost": "CRAGMB",
    "F6-reminder": "C...M.",
    "F6-result-before-call": "C.A.MB",
    "F6-steering-between-siblings": "C.A.MB",
    "F6-steering-message": "C.A.MB",
    "F6-streamed-text": "C.A.M.",
    "F7-orphan": "CRA.MB",
    "F7-trimmed-front": "CRA.MB",
    "F8-two-handoffs": "CRAGMB",
    "F9-cut-arguments": "CRA.MB",
    "F9-cut-arguments@string": "CRA.M.",
    "F9-cut-arguments@gemini": "CRA.M.",
    "F9-cut-arguments-answered": "......",
    "F9-cut-arguments-answered@string": ".....B",
    "F9-cut-arguments-answered@gemini": ".....B",
    "F9-cut-arguments-beside-a-call": "CRA.MB",
    "F9-cut-arguments-beside-a-call@string": "CRA.M.",
    "F9-cut-arguments-beside-a-call@gemini": "CRA.M.",
    "F9-nothing-known": "CR..M.",
    "F9-text-in-a-block": "CRA.MB",
    "F10-block-and-another-call": "CRAGMB",
    "F10-custom-tool-call": ".R....",
    "F10-custom-tool-call-known": ".R.G..",
    "F10-custom-tool-call-standard": ".R....",
    "F10-function-call": ".R....",
    "F10-function-call-reasoning": ".R....",
    "F10-invalid-block": "..A..B",
    "F10-raw-tool-calls": "CR..M.",
    "F10-standard-block": ".RAG.B",
    "F10-tool-use": "..A..B",
    "F10-tool-use-no-provider": "..A..B",
    "F10-tool-use-thinking": "..A..B",
    "F11-id-used-again": "C.A.MB",
    "F11-id-used-again@responses": "CRA.MB",
    "F11-id-used-again@v1": "CRA.MB",
    "F11-id-used-again-answered": ".RA..B",
    "F12-id-empty": "CRA.MB",
    "F12-id-none": "CRAGMB",
    "F12-id-of-500": "CR...B",
    "F12-id-too-long": "C.....",
    "F12-id-twice": "CRAGMB",
    "F12-id-twice-one-result": "CRAGMB",
    "F12-name-empty": "CRAGMB",
    "F12-name-odd": "CRA.MB",
    "F12-result-under-a-siblings-id": "CRAGMB",
    "F13-late-real-result": "CRA.MB",
    "F13-two-results": "CRA.MB",
    "F25-left-over-chunk-block": ".RAGMB",
    "F25-left-over-delta": ".....B",
    "F25-stored-chunk": "CRAGMB",
    "F25-stored-chunk-answered": "......",
    "F26-thinking": "CRAGMB",
    "F27-server-tool": "......",
    "F27-server-tool-beside-a-call": ".RAGM.",
    "F27-server-tool-still-running": "......",
    "F29-function-message": "CRA.MB",
    "F29-function-role": "CRAGMB",
    "F29-human-talks-about-it": "CRAGMB",
    "F29-human-with-tool-call-id": "CRAGMB",
    "F29-legacy-function-call": ".RA.MB",
    "F29-result-blocks": "CR.GM.",
    "F29-result-blocks-and-text": "CRAGMB",
    "F29-tool-role": "CRAGMB",
    "mixed-used-again-and-misplaced": "CRAGMB",
    "mixed-wrong-role-and-cut": "CRAGMB",
}


IN_EVERY_SHAPE = {
    base: [name for name in DAMAGED if name.partition("@")[0] == base]
    for base in REFUSED_BEFORE
    if "@" not in base
}
each_damage = pytest.mark.parametrize("names", IN_EVERY_SHAPE.values(), ids=IN_EVERY_SHAPE)


def refused_before(name: str) -> str:
    """What the table says of a history."""
    base, _, shape = name.partition("@")
    return REFUSED_BEFORE.get(f"{base}@{shape or 'string'}", REFUSED_BEFORE[base])


def every_refusal(wire: str, messages: list) -> list[str]:
    """Refusals by any rule but that of older Mistral servers, which no repair can obey."""
    return [
        refused
        for refused in refusals(wire, messages, ours_only=False)
        if not refused.startswith("user-after-tool")
    ]


@each_damage
def test_the_damage_is_real(names):
    """Before the repair exactly the wires of the table refuse the history."""
    for name in names:
        carriers = carried_by(name)
        assert refused_before(name) == "".join(
            letter if wire in carriers and refusals(wire, DAMAGED[name]) else "."
            for letter, wire in LETTERS.items()
        ), name


@each_damage
def test_the_repair_is_taken(names):
    """After the repair no wire that can carry the history refuses it, by whatever rule."""
    repaired = {name: patch_messages(DAMAGED[name]).messages for name in names}
    assert {
        (name, wire): refused
        for name, messages in repaired.items()
        for wire in carried_by(name)
        if (refused := every_refusal(wire, messages))
    } == {}


@pytest.mark.parametrize("name", CARRIED_BY)
def test_what_is_not_carried_is_refused_whatever_we_do(name):
    """A wire that is listed as not carrying a history refuses it even after the repair."""
    repaired = patch_messages(DAMAGED[name]).messages

    assert set(WIRES) - carried_by(name) == {
        wire for wire in WIRES if every_refusal(wire, repaired)
    }


def test_the_table_has_no_line_for_a_history_that_is_gone():
    """Every line of the table is about a history that exists."""
    assert {name.partition("@")[0] for name in DAMAGED} == {
        name.partition("@")[0] for name in REFUSED_BEFORE
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_parallel_calls_are_taken_everywhere(shape):
    """Two answered calls in a turn, results in any order, then a second turn: no wire refuses."""
    history = [
        human("hi", "h1"),
        ai(shape, "a1", Call("c1"), Call("c2", "wire")),
        result("r2", "c2"),
        result("r1", "c1"),
        ai(shape, "a2", Call("c3")),
        result("r3", "c3"),
        AIMessage("done", id="a3"),
        human("thanks", "h2"),
    ]

    assert_accepted(history)
    assert {wire: refused for wire in WIRES if (refused := every_refusal(wire, history))} == {}


# --- what Gemini hears, since it is sent no ids ---------------------------------------------------


def gemini_parts(name: str, kind: str) -> list[dict]:
    """The parts of one kind that Gemini gets of a repaired history."""
    repaired = patch_messages(DAMAGED[name]).messages
    return [
        part for content in payload("gemini", repaired) for part in content["parts"] if kind in part
    ]


@pytest.mark.parametrize("shape", ["", *(f"@{shape}" for shape in SHAPES[1:])])
def test_gemini_hears_the_second_result_of_an_id_used_again(shape):
    """Unrepaired, the first result is sent for both calls; repaired, each call has its own."""
    name = f"F11-id-used-again-answered{shape}"

    def outputs(parts):
        return [part["function_response"]["response"]["output"] for part in parts]

    unrepaired = [
        part
        for content in payload("gemini", DAMAGED[name])
        for part in content["parts"]
        if "function_response" in part
    ]
    assert outputs(unrepaired) == ["r1", "r1"]
    assert outputs(gemini_parts(name, "function_response")) == ["r1", "r2"]


@each_damage
def test_gemini_hears_each_result_under_the_name_of_its_call(names):
    """A name that changed has changed in the result too."""
    for name in names:
        called, answered = (
            sorted(part[kind]["name"] for part in gemini_parts(name, kind))
            for kind in ("function_call", "function_response")
        )
        assert called == answered, name


WITHOUT_ID = {"F12-id-none", "F12-id-empty", "mixed-used-again-and-misplaced"}


def test_gemini_hears_every_thought_signature():
    """A call that got a new id is still sent with its signature (a call without id has none)."""
    for name in DAMAGED:
        base, _, shape = name.partition("@")
        if shape == "gemini" and base not in WITHOUT_ID:
            calls = gemini_parts(name, "function_call")
            assert calls, name
            assert all("thought_signature" in part for part in calls), name


# --- the checker itself -----------------------------------------------------------------------

_USER = {"role": "user", "content": "hi"}


def _asked(*calls: Call, shape: str = "string") -> list:
    return [human("hi", "h1"), ai(shape, "a1", *calls)]


def _unnamed() -> list:
    call = {"name": None, "args": None, "id": "c1", "error": "cut off"}
    return [human("hi", "h1"), AIMessage("", id="a1", invalid_tool_calls=[call]), result("r", "c1")]


def _twice(shape: str = "string") -> list:
    return [
        *_asked(Call("c1"), shape=shape),
        result("r1", "c1"),
        ai(shape, "a2", Call("c1")),
        result("r2", "c1"),
    ]


_ORPHAN = [human("hi", "h1"), AIMessage("ho", id="a1"), result("r", "gone")]
_TWO_RESULTS = [*_asked(Call("c1")), result("r", "c1"), result("r", "c1")]
_LATE = [*_asked(Call("c1")), human("steer", "h2"), result("r", "c1")]
_OPEN = [*_asked(Call("c1")), human("never mind", "h2")]
_SAME = [*_asked(Call("c1"), Call("c1")), result("r", "c1")]
_RESULT_BLOCK = [
    *_asked(Call("c1")),
    HumanMessage([{"type": "tool_result", "tool_use_id": "c1", "content": "r"}], id="h2"),
]
_SERVER_BLOCK = [
    human("hi", "h1"),
    AIMessage([{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}]),
]
_TEXT_INPUT = {"type": "tool_use", "id": "c1", "name": "look", "input": '{"a', "caller": {"x": 1}}
_NESTED = ToolMessage(
    [{"type": "tool_result", "tool_use_id": "c1", "content": "r"}], tool_call_id="c1"
)

# (wire, rule, what breaks it). A dict is a payload's message, for what no integration builds.
BROKEN = [
    ("openai-chat", "bad-id", [*_asked(Call(41 * "x")), result("r", 41 * "x")]),
    ("openai-chat", "bad-id", [*_asked(Call("")), result("r", "")]),
    ("openai-chat", "bad-id", _asked(Call(None))),
    ("openai-chat", "bad-name", [*_asked(Call("c1", "look it up")), result("r", "c1")]),
    ("openai-chat", "bad-arguments", _unnamed()),
    ("openai-chat", "repeated-id", _SAME),
    ("openai-chat", "repeated-result", _TWO_RESULTS),
    ("openai-chat", "orphan-result", _ORPHAN),
    ("openai-chat", "orphan-result", [*_asked(Call("c1")), ChatMessage("r", role="tool")]),
    ("openai-chat", "unanswered-call", _OPEN),
    ("openai-chat", "unanswered-call", _LATE),
    ("openai-chat", "unanswered-call", _asked(Call("c1"))),
    ("openai-chat", "result-in-content", _RESULT_BLOCK),
    ("openai-chat", "foreign-content", _SERVER_BLOCK),
    ("openai-responses", "bad-id", [*_asked(Call(65 * "x")), result("r", 65 * "x")]),
    ("openai-responses", "bad-name", [*_asked(Call("c1", "")), result("r", "c1")]),
    ("openai-responses", "bad-arguments", _unnamed()),
    ("openai-responses", "repeated-id", _twice("responses")),
    ("openai-responses", "repeated-result", _TWO_RESULTS),
    ("openai-responses", "orphan-result", _ORPHAN),
    ("openai-responses", "unanswered-call", _OPEN),
    (
        "openai-responses",
        "unanswered-call",
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"},
            {"type": "function_call_output", "call_id": "c1", "output": "r"},
        ],
    ),
    ("openai-responses", "bad-role", [*_asked(Call("c1")), FunctionMessage("r", name="look")]),
    ("openai-responses", "lonely-reasoning", [{"type": "reasoning", "id": "rs_1"}, _USER]),
    ("anthropic", "bad-id", [*_asked(Call("")), result("r", "")]),
    ("anthropic", "bad-name", [*_asked(Call("c1", "")), result("r", "c1")]),
    (
        "anthropic",
        "bad-arguments",
        [human("hi", "h1"), AIMessage([_TEXT_INPUT]), result("r", "c1")],
    ),
    ("anthropic", "repeated-id", _twice()),
    ("anthropic", "repeated-result", _TWO_RESULTS),
    ("anthropic", "orphan-result", _ORPHAN),
    ("anthropic", "unanswered-call", _OPEN),
    ("anthropic", "late-result", _LATE),
    ("anthropic", "raised", [*_asked(Call("c1")), FunctionMessage("r", name="look")]),
    ("anthropic", "raised", [human("hi", "h1"), SystemMessage("a"), *_OPEN, SystemMessage("b")]),
    (
        "anthropic",
        "text-after-call",
        [
            human("hi", "h1"),
            AIMessage([Call("c1").block("anthropic"), "and now"]),
            result("r", "c1"),
        ],
    ),
    ("anthropic", "open-server-tool", _SERVER_BLOCK),
    ("anthropic", "empty-message", [human("", "h1")]),
    ("anthropic", "foreign-content", [human("hi", "h1"), AIMessage([Call("c1").block("v1")])]),
    ("gemini", "bad-name", [*_asked(Call("c1", "")), result("r", "c1", name="look")]),
    (
        "gemini",
        "bad-name",
        [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"function_call": {"name": "look", "args": {}}}]},
            {"role": "user", "parts": [{"function_response": {"response": {}}}]},
        ],
    ),
    (
        "gemini",
        "bad-arguments",
        [{"role": "model", "parts": [{"function_call": {"name": "look", "args": "{}"}}]}],
    ),
    ("gemini", "unanswered-call", _OPEN),
    (
        "gemini",
        "orphan-result",
        [{"role": "user", "parts": [{"function_response": {"name": "look", "response": {}}}]}],
    ),
    ("gemini", "raised", _RESULT_BLOCK),
    (
        "gemini",
        "call-after-model",
        [human("hi", "h1"), AIMessage("ho"), ai("string", "a1", Call("c1")), result("r", "c1")],
    ),
    (
        "mistral",
        "bad-id",
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}],
            }
        ],
    ),
    ("mistral", "bad-name", [*_asked(Call("c1", "")), result("r", "c1")]),
    ("mistral", "bad-arguments", _unnamed()),
    ("mistral", "repeated-id", _SAME),
    ("mistral", "repeated-result", _TWO_RESULTS),
    ("mistral", "orphan-result", _ORPHAN),
    ("mistral", "unanswered-call", _LATE),
    ("mistral", "result-in-content", _RESULT_BLOCK),
    ("mistral", "empty-message", [human("hi", "h1"), AIMessage("")]),
    ("mistral", "user-after-tool", [*_asked(Call("c1")), result("r", "c1"), human("ok", "h2")]),
    ("mistral", "foreign-content", _SERVER_BLOCK),
    ("bedrock", "bad-id", [*_asked(Call(65 * "x")), result("r", 65 * "x")]),
    ("bedrock", "bad-id", [*_asked(Call("c 1")), result("r", "c 1")]),
    ("bedrock", "bad-name", [*_asked(Call("c1", "")), result("r", "c1")]),
    (
        "bedrock",
        "bad-arguments",
        [
            {
                "role": "assistant",
                "content": [{"toolUse": {"toolUseId": "c1", "name": "look", "input": "{}"}}],
            }
        ],
    ),
    ("bedrock", "repeated-id", _twice()),
    ("bedrock", "repeated-result", _TWO_RESULTS),
    ("bedrock", "orphan-result", _ORPHAN),
    ("bedrock", "unanswered-call", _OPEN),
    ("bedrock", "late-result", _LATE),
    ("bedrock", "bad-shape", [*_asked(Call("c1")), _NESTED]),
    ("bedrock", "raised", [*_asked(Call("c1")), FunctionMessage("r", name="look")]),
]

NOT_OURS = {
    "call-after-model",
    "empty-message",
    "foreign-content",
    "lonely-reasoning",
    "open-server-tool",
    "text-after-call",
    "user-after-tool",
}


@pytest.mark.parametrize(("wire", "rule", "broken"), BROKEN)
def test_a_broken_rule_is_named(wire, rule, broken):
    """What breaks a rule of the provider is refused under that rule's name."""
    if isinstance(broken[0], dict):
        found = [str(refusal) for refusal in broken_rules(wire, broken)]
    else:
        found = refusals(wire, broken, ours_only=False)

    assert rule in {refusal.partition(":")[0] for refusal in found}


def test_every_rule_has_a_case():
    """No rule of the checker goes untested."""
    named = re.findall(r'Refusal\(\s*"([a-z-]+)"', Path(wires.__file__).read_text("utf-8"))

    assert set(named) == {rule for _, rule, _ in BROKEN}


@pytest.mark.parametrize(
    ("wire", "broken"),
    [
        (wire, broken)
        for wire, rule, broken in BROKEN
        if rule in NOT_OURS and not isinstance(broken[0], dict)
    ],
)
def test_other_content_is_not_ours(wire, broken):
    """A rule about other messages' content or order is left out unless it is asked for."""
    assert refusals(wire, broken) == []
    assert refusals(wire, broken, ours_only=False) != []


def test_two_separate_system_messages_are_not_ours():
    """The integration of Anthropic raises on them, with calls or without."""
    history = [human("hi", "h1"), SystemMessage("a"), human("so", "h2"), SystemMessage("b")]

    assert refusals("anthropic", history) == []
    assert refusals("anthropic", history, ours_only=False) == [
        "raised: ValueError: Received multiple non-consecutive system messages."
    ]


def test_assert_accepted_says_which_wire_refuses_what():
    """The error of a property test names the wire, the rule and the history."""
    with pytest.raises(AssertionError, match=r"(?s)gemini refuses: unanswered-call.*never mind"):
        assert_accepted(_OPEN, ["gemini"])


@pytest.mark.parametrize("wire", WIRES)
def test_looking_changes_nothing(wire):
    """Building a payload leaves the caller's messages as they were (Bedrock strips in place)."""
    history = [human("hi", "h1"), AIMessage([{"type": "text", "text": "ho \n"}], id="a1")]
    before = copy.deepcopy(history)

    payload(wire, history)

    assert history == before


# --- what a repair stores in a message --------------------------------------------------------


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_nothing_of_what_a_repair_stores_is_sent(name):
    """Earlier ids of renamed calls and marks of placeholders stay in the thread."""
    calls = [{"name": "mail", "args": {"to": "bob"}, "id": "c1"}]
    turn = [HumanMessage("go"), AIMessage("", tool_calls=calls, id="a1")]
    again = [AIMessage("", tool_calls=calls, id="a2"), ToolMessage("sent", tool_call_id="c1")]
    found = {(1, 0): Finding("cancelled", look_again=True)}
    patch = patch_messages([*turn, HumanMessage("x"), *again, HumanMessage("y")], evidence=found)
    marked = [m for m in patch.messages if "langgraph_patch" in m.additional_kwargs]
    assert [m.type for m in marked] == ["tool", "ai"]

    sent = repr(INTEGRATIONS[name](copy.deepcopy(patch.messages)))

    assert "bob" in sent
    for word in ("langgraph_patch", "earlier_ids", "look_again"):
        assert word not in sent


def test_a_renamed_custom_call_keeps_its_output():
    """Each free-text call has an id of its own in its block, and so has its output."""
    block = {"type": "custom_tool_call", "call_id": "c1", "id": "ctc", "name": "sh", "input": "ls"}
    call = {"name": "sh", "args": {"__arg1": "ls"}, "id": "c1"}
    turn = [AIMessage([block], tool_calls=[call]), ToolMessage("a.txt", tool_call_id="c1")]

    sent = payload("openai-responses", patch_messages([*turn, HumanMessage("x"), *turn]).messages)

    ids = [item["call_id"] for item in sent if "call_id" in item]
    assert len(ids) == 4
    assert (ids[0], ids[2]) == (ids[1], ids[3])
    assert ids[0] != ids[2]
