"""Placeholders of calls without a result: text, marker, cause, id, and texts of the caller."""

from __future__ import annotations

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_patch import (
    DanglingCall,
    is_placeholder,
    patch_messages,
    set_language,
    validate_messages,
)
from langgraph_patch.errors import OptionError
from langgraph_patch.history.calls import STOPPED
from langgraph_patch.history.ids import PLACEHOLDER_KEY
from langgraph_patch.history.texts import CAUSES, LANGUAGES, Finding
from support.placeholder_texts import (
    CANCELLED,
    FAILED,
    INCOMPLETE,
    MALFORMED,
    NO_NAME,
    NOT_APPROVED,
    NOT_APPROVED_YET,
    NOT_STARTED,
    TIMED_OUT,
    UNKNOWN,
    WAITED,
    WAITED_UNTIL_ENDED,
    WAITING,
)

HOSTILE = [
    "{0.__class__}",
    "{name}{id}{error}",
    "{",
    "%s%n",
    "x" * 10_000,
    "工具" * 5_000,
    "\x1b[31mred\x1b[0m\a",
    "a\nb\r\nc\tTool call",
    "\u202egnp.exe",
    "\ud800",
]


@pytest.fixture(autouse=True)
def english_again():
    """Reset the language to English after each test."""
    yield
    set_language("en")


def asked(name="wire", call_id="c1", args=None, message_id="a1"):
    """A model's message with one call."""
    call = {"name": name, "args": args or {}, "id": call_id}
    return AIMessage("", tool_calls=[call], id=message_id)


def cut(raw='{"a":'):
    """A model's message with one call with truncated arguments."""
    call = {"name": "wire", "args": raw, "id": "c1", "error": "no JSON"}
    return AIMessage("", invalid_tool_calls=[call], id="a1")


def placeholders(history, **options):
    """The placeholders in the repaired history."""
    return [
        message
        for message in patch_messages(history, **options).messages
        if is_placeholder(message)
    ]


def placeholder(history, **options):
    """The one placeholder in the repaired history."""
    (found,) = placeholders(history, **options)
    return found


def marked(marker):
    """A result with a marker of this package."""
    return ToolMessage("x", tool_call_id="c", additional_kwargs={PLACEHOLDER_KEY: marker})


HUMAN = [HumanMessage("never mind")]
SYSTEM = [SystemMessage("be brief")]
CHUNK = AIMessageChunk(
    "", tool_call_chunks=[{"name": "wire", "args": '{"a":', "id": "c1", "index": 0}], id="a1"
)
CASES = [
    (
        "awaiting_input",
        [asked(), *HUMAN],
        Finding("awaiting_input"),
        WAITED,
        "工具调用 wire(ID 为 c1)在等待人工输入时收到了另一条消息;没有记录到答复,也没有记录到结果。",
    ),
    (
        "awaiting_input",
        [asked(), *SYSTEM],
        Finding("awaiting_input"),
        WAITED_UNTIL_ENDED,
        "工具调用 wire(ID 为 c1)在暂停结束时仍在等待人工输入;没有记录到答复,也没有记录到结果。",
    ),
    (
        "awaiting_input",
        [asked(), *SYSTEM],
        Finding("awaiting_input", detail="paused"),
        WAITING,
        "工具调用 wire(ID 为 c1)正在等待人工输入;没有记录到答复,也没有记录到结果。",
    ),
    (
        "failed",
        [asked(), *HUMAN],
        Finding("failed", error="RuntimeError('kaput')"),
        FAILED.format("{}", "{}", "RuntimeError('kaput')"),
        "工具调用 wire(ID 为 c1)在最后一次有记录的尝试中失败:RuntimeError('kaput')",
    ),
    (
        "failed",
        [asked(), *HUMAN],
        Finding("failed", error="NodeTimeoutError()", detail="timeout"),
        TIMED_OUT.format("{}", "{}", "NodeTimeoutError()"),
        "工具调用 wire(ID 为 c1)已超时;它可能仍在继续执行:NodeTimeoutError()",
    ),
    (
        "not_started",
        [asked(), *HUMAN],
        Finding("not_started"),
        NOT_STARTED,
        "工具调用 wire(ID 为 c1):没有记录到开始,也没有记录到结果。",
    ),
    (
        "not_started",
        [asked(), *HUMAN],
        Finding("not_started", detail="approval"),
        NOT_APPROVED,
        "工具调用 wire(ID 为 c1):收到另一条消息时正在等待批准;没有记录到开始,也没有记录到结果。",
    ),
    (
        "not_started",
        [asked(), *SYSTEM],
        Finding("not_started", detail="approval"),
        NOT_APPROVED_YET,
        "工具调用 wire(ID 为 c1):当时正在等待批准;没有记录到开始,也没有记录到结果。",
    ),
    (
        "cancelled",
        [asked(), *HUMAN],
        Finding("cancelled"),
        CANCELLED,
        "工具调用 wire(ID 为 c1):记录到一次取消;它可能已经全部或部分生效。",
    ),
    (
        "malformed",
        [cut(), *HUMAN],
        None,
        MALFORMED,
        "工具调用 wire(ID 为 c1)没有执行:其参数不是完整的 JSON 对象。",
    ),
    (
        "malformed",
        [cut(), *HUMAN],
        Finding("malformed", detail="tools_ran"),
        INCOMPLETE,
        "工具调用 wire(ID 为 c1)的参数不完整;其结果未知。",
    ),
    (
        "malformed",
        [CHUNK, *HUMAN],
        None,
        INCOMPLETE,
        "工具调用 wire(ID 为 c1)的参数不完整;其结果未知。",
    ),
    (
        "malformed",
        [CHUNK, *HUMAN],
        Finding("malformed"),
        MALFORMED,
        "工具调用 wire(ID 为 c1)没有执行:其参数不是完整的 JSON 对象。",
    ),
    (
        "malformed",
        [asked(name=""), *HUMAN],
        None,
        NO_NAME.format("unknown_tool", "c1"),
        "工具调用 unknown_tool(ID 为 c1)没有执行:它没有指明工具。",
    ),
    (
        "unknown",
        [asked(), *HUMAN],
        None,
        UNKNOWN,
        "工具调用 wire(ID 为 c1)的结果未知;它可能已经执行,也可能没有执行。",
    ),
]


@pytest.mark.parametrize(("cause", "history", "recorded", "english", "chinese"), CASES)
def test_each_cause_has_its_text_in_each_language(cause, history, recorded, english, chinese):
    """The sentence is true of the cause; the mark says the cause to machines."""
    evidence = {(0, 0): recorded} if recorded else None
    mark = {"cause": cause}
    if history[0].tool_calls in ([], CHUNK.tool_calls) and cause == "malformed":
        mark["arguments"] = '{"a":'
    name = "unknown_tool" if "unknown_tool" in english else "wire"
    for language, text in (("en", english.format("wire", "c1")), ("zh", chinese)):
        set_language(language)
        found = placeholder(history, evidence=evidence)
        assert found == ToolMessage(
            text,
            tool_call_id="c1",
            name=name,
            status="error",
            id=found.id,
            additional_kwargs={PLACEHOLDER_KEY: mark},
        )


def test_a_call_that_this_package_stopped_was_not_run():
    """Also beside a call that ran, and whatever the checkpoints say of it."""
    stopped = {"name": "wire", "args": '{"a":', "id": "c1", "error": STOPPED}
    history = [asked("mail", "c2").model_copy(update={"invalid_tool_calls": [stopped]}), *HUMAN]
    history.insert(1, ToolMessage("sent", tool_call_id="c2"))
    for recorded in (Finding(), Finding("malformed", detail="tools_ran")):
        found = placeholder(history, evidence={(0, 1): recorded})
        assert found.content == MALFORMED.format("wire", "c1")


def test_no_cause_and_no_language_goes_untested():
    """The table above names all of them."""
    assert {case[0] for case in CASES} == set(CAUSES)
    assert LANGUAGES == ("en", "zh")


def test_a_failure_without_an_error_has_a_text():
    """Nothing is made up where no error was recorded."""
    found = placeholder([asked()], evidence={(0, 0): Finding("failed")})
    assert found.content == FAILED.format("wire", "c1", "")


@pytest.mark.parametrize(("text", "language"), list(zip(HOSTILE, LANGUAGES * 5, strict=True)))
def test_hostile_names_ids_and_errors_are_data(text, language):
    """At most 500 characters, valid names and ids, no format string, for every cause."""
    history = [
        asked(name=text, call_id="c1", message_id="a1"),
        asked(name="wire", call_id=text, message_id="a2"),
        asked(name=text, call_id=text, message_id="a3"),
        asked(name="wire", call_id="c4", message_id="a4"),
        cut(text).model_copy(update={"id": "a5"}),
    ]
    evidence = {(3, 0): Finding("failed", error=text), (2, 0): Finding("awaiting_input")}
    set_language(language)
    patch = patch_messages(history, evidence=evidence)
    found = [message for message in patch.messages if is_placeholder(message)]
    assert len(found) == 5
    assert all(len(message.content) <= 500 for message in found)
    assert validate_messages(patch.messages) == []
    for message in (found[0], found[1], found[2], found[4]):
        assert message.content.isprintable()
        assert message.tool_call_id in message.content
        assert message.name in message.content
    assert text[:300] in found[3].content


def test_a_long_error_is_cut_with_an_ellipsis():
    """To exactly 500 characters; one that just fits is not cut."""
    head = FAILED.format("wire", "c1", "")
    space = 500 - len(head)
    for length, texts in ((space, "e" * space), (space + 1, "e" * (space - 1) + "…")):
        evidence = {(0, 0): Finding("failed", error="e" * length)}
        assert placeholder([asked()], evidence=evidence).content == head + texts


def test_raw_arguments_are_kept_whole_in_the_mark():
    """What was cut off is all there is; it is not cut further."""
    raw = '{"a": "' + "x" * 10_000
    assert placeholder([cut(raw)]).additional_kwargs == {
        PLACEHOLDER_KEY: {"cause": "malformed", "arguments": raw}
    }


# --- ids -------------------------------------------------------------------------------


def test_ids_are_made_of_message_call_and_ordinal():
    """The same call has the same id in every run; any other call has another."""
    calls = [[asked()], [asked(call_id="c2")], [asked(message_id="a2")], [asked(message_id=None)]]
    ids = [placeholder(history).id for history in calls]
    assert ids == [placeholder(history).id for history in calls]
    assert len(set(ids)) == 4
    assert ids[0] == "patch-b0548b6649fd775f9d4da1d00f4d5551"


def test_ids_do_not_depend_on_texts_or_on_other_messages():
    """It depends on neither language, text, cause nor other messages."""
    expected = placeholder([asked()]).id
    set_language("zh")
    assert placeholder([asked()]).id == expected
    assert placeholder([asked()], placeholder="gone").id == expected
    assert placeholder([*HUMAN, asked(), *HUMAN]).id == expected
    recorded = {(0, 0): Finding("failed", error="x")}
    assert placeholder([asked()], evidence=recorded).id == expected


def test_ids_of_siblings_differ():
    """A message that calls under one id thrice gets three placeholders."""
    calls = [{"name": "wire", "args": {}, "id": "c1"} for _ in range(3)]
    found = placeholders([AIMessage("", tool_calls=calls)])
    assert len({message.id for message in found}) == 3
    assert len({message.tool_call_id for message in found}) == 3


# --- the mark --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "is_one"),
    [
        (marked({"cause": "unknown"}), True),
        (marked({"cause": "not_started", "look_again": True}), True),
        (marked({"cause": "reconciled"}), False),
        (marked({"not_kept": ["files"]}), False),
        (marked({"cause": ["unknown"]}), False),
        (marked({}), False),
        (marked(None), False),
        (ToolMessage("x", tool_call_id="c"), False),
        (HumanMessage("x", additional_kwargs={PLACEHOLDER_KEY: {}}), False),
        (AIMessage("x"), False),
    ],
)
def test_is_placeholder(message, is_one):
    """A `ToolMessage` whose marker has the cause of a placeholder, whatever its text."""
    assert is_placeholder(message) is is_one


def test_the_mark_is_public_and_stable():
    """It is in stored threads: it must never change."""
    assert PLACEHOLDER_KEY == "langgraph_patch"


# --- placeholder= ----------------------------------------------------------------------


@pytest.mark.parametrize("text", ["gone", "", "{", "{0.__class__}{error}%s", "x" * 10_000])
def test_one_text_is_used_verbatim(text):
    """For every cause, as it is, however long."""
    found = placeholders([asked(), cut(), *HUMAN], placeholder=text)
    assert [message.content for message in found] == [text, text]
    assert [message.additional_kwargs[PLACEHOLDER_KEY]["cause"] for message in found] == [
        "unknown",
        "malformed",
    ]


@pytest.mark.parametrize("kind", [str, dict])
def test_name_and_id_are_replaced_in_a_text(kind):
    """And nothing else: a text is no format string."""
    text = "{name} ({id}) {name!r} {who knows}"
    expected = "wire (c1) {name!r} {who knows}"
    given = text if kind is str else {"unknown": text}
    assert placeholder([asked()], placeholder=given).content == expected
    assert placeholder([asked()], placeholder=lambda _: text).content == text


def test_a_mapping_may_be_partial():
    """Causes that it does not name have their default text."""
    found = placeholders([asked(), cut(), *HUMAN], placeholder={"unknown": "{who knows}"})
    assert [message.content for message in found] == [
        "{who knows}",
        MALFORMED.format("wire", "c1_4934d874"),
    ]


def test_a_callable_receives_everything():
    """Once for each call without a result, in the order of the history."""
    reported = []
    history = [asked(args={"amount": 3}), cut(), *HUMAN]

    def say(call):
        reported.append(call)
        return f"{call.name} {call.cause}"

    found = placeholders(history, placeholder=say, evidence={(0, 0): Finding("failed", error="e")})
    assert reported == [
        DanglingCall("c1", "wire", {"amount": 3}, "failed", "e", history[0], 0),
        DanglingCall(found[1].tool_call_id, "wire", {}, "malformed", '{"a":', history[1], 1),
    ]
    assert [message.content for message in found] == ["wire failed", "wire malformed"]


def test_a_callable_may_return_a_message():
    """It keeps what it says, and gets our id, mark and call id."""
    own = ToolMessage(
        [{"type": "text", "text": "gone"}],
        tool_call_id="whatever",
        id="mine",
        name="other",
        status="success",
        artifact={"a": 1},
        additional_kwargs={"mine": True},
    )
    found = placeholder([asked()], placeholder=lambda _: own)
    assert found == own.model_copy(
        update={
            "tool_call_id": "c1",
            "id": "patch-b0548b6649fd775f9d4da1d00f4d5551",
            "additional_kwargs": {"mine": True, PLACEHOLDER_KEY: {"cause": "unknown"}},
        }
    )
    assert (own.id, own.additional_kwargs) == ("mine", {"mine": True})


@pytest.mark.parametrize("kaput", [LookupError("kaput"), StopIteration("kaput")])
def test_what_a_callable_raises_reaches_the_caller(kaput):
    """As it is, also what a generator would turn into another error; the history is as it was."""
    history = [asked(), *HUMAN]

    def say(call):
        raise kaput

    with pytest.raises(type(kaput)) as caught:
        patch_messages(history, placeholder=say)
    assert caught.value is kaput
    assert history == [asked(), *HUMAN]


@pytest.mark.parametrize("expected", [None, 7, b"x", HumanMessage("x"), ["x"]])
def test_a_callable_that_returns_anything_else_is_refused(expected):
    """The error shows what was returned, for which call, and what was expected."""
    with pytest.raises(
        OptionError, match=r"returned .* for tool call 'c1': expected a str or a ToolMessage"
    ) as caught:
        patch_messages([asked()], placeholder=lambda _: expected)
    assert repr(expected) in str(caught.value)


# --- languages -------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["fr", "EN", "", None, 7])
def test_an_unknown_language_is_refused(language):
    """And the process goes on speaking as before."""
    set_language("zh")
    with pytest.raises(OptionError, match=r"language=.*: expected one of en, zh"):
        set_language(language)
    assert placeholder([asked()]).content == CASES[-1][4]
