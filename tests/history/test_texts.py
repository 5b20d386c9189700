"""The texts of placeholders, in each language."""

import pytest
from langchain_core.messages import AIMessage, SystemMessage

from langgraph_patch import is_placeholder, patch_messages, set_language, validate_messages
from langgraph_patch._text import one_line
from langgraph_patch.errors import OptionError
from langgraph_patch.history.calls import STOPPED
from langgraph_patch.history.findings import Finding
from langgraph_patch.history.texts import _TEXTS, LANGUAGES
from support import placeholder_texts as en
from support.histories import H, ai, chunk, invalid_of, made, repaired, result, with_field

HOSTILE = ("{0.__class__}{name}%s", "{", "工具" * 5_000, "\x1b[31mred\x1b[0m\a\r\n\u202e", "\ud800")


X, SYSTEM = H("x"), SystemMessage("be brief")
ASKED, NAMELESS, CHUNK = ai("c1", id="a1"), ai(("", "c1"), id="a1"), chunk('{"a')
CUT = with_field(AIMessage(""), invalid_tool_calls=[invalid_of('{"a')])
STOPPED_CALL = with_field(CUT, invalid_tool_calls=[invalid_of('{"a', error=STOPPED)])
RAN, APPROVAL = Finding("malformed", detail="tools_ran"), Finding("not_started", detail="approval")
NO, TIMEOUT = (Finding("failed", error="no", detail=detail) for detail in (None, "timeout"))
WAITS, PAUSED = (Finding("awaiting_input", detail=detail) for detail in (None, "paused"))
FAILED_NO, TIMED_OUT_NO = (text.format("{}", "{}", "no") for text in (en.FAILED, en.TIMED_OUT))


@pytest.fixture(autouse=True)
def english_again():
    """English after each test."""
    yield
    set_language("en")


NO_ANSWER, NO_START = "没有记录到答复,也没有记录到结果。", "没有记录到开始,也没有记录到结果。"
CASES = [
    (ASKED, X, Finding(), en.UNKNOWN, "的结果未知;它可能已经执行,也可能没有执行。"),
    (ASKED, SYSTEM, WAITS, en.WAITED, f"请求过人工输入;{NO_ANSWER}"),
    (ASKED, X, PAUSED, en.WAITED, f"请求过人工输入;{NO_ANSWER}"),
    (ASKED, SYSTEM, PAUSED, en.WAITING, f"请求过人工输入,其暂停记录为未结束;{NO_ANSWER}"),
    (ASKED, X, NO, FAILED_NO, "在最后一次有记录的尝试中失败:no"),
    (ASKED, X, TIMEOUT, TIMED_OUT_NO, "在最后一次有记录的尝试中超时;它可能仍在继续执行:no"),
    (ASKED, X, Finding("not_started"), en.NOT_STARTED, f":{NO_START}"),
    (ASKED, X, APPROVAL, en.NOT_APPROVED, f":请求过批准;没有记录到答复,{NO_START}"),
    (ASKED, X, Finding("cancelled"), en.CANCELLED, ":记录到一次取消;它可能已经全部或部分生效。"),
    (CUT, X, Finding(), en.MALFORMED, f":其参数不是完整的 JSON 对象;{NO_START}"),
    (CUT, X, RAN, en.INCOMPLETE, "的参数不完整;其结果未知。"),
    (CUT, X, NO, FAILED_NO, "在最后一次有记录的尝试中失败:no"),
    (STOPPED_CALL, X, TIMEOUT, en.STOPPED, "没有执行:其参数不是完整的 JSON 对象。"),
    (CHUNK, X, Finding(), en.INCOMPLETE, "的参数不完整;其结果未知。"),
    (NAMELESS, X, Finding("cancelled"), en.NO_NAME, "没有执行:它没有指明工具。"),
]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_cause_has_its_text(language):
    """The sentence is true of the cause; the marker has the cause for machines.

    What is certain of the call itself comes first: it was stopped, or names no tool.
    """
    set_language(language)
    for message, behind, finding, english, chinese in CASES:
        is_cut = english in (en.MALFORMED, en.STOPPED, en.INCOMPLETE)
        marker = {"arguments": '{"a'} if is_cut else {}
        name = "(none)" if message is NAMELESS else "t"
        cause = "malformed" if marker or message is NAMELESS else finding.cause
        text = english if language == "en" else f"工具调用 {name}(ID 为 c1){chinese}"
        found = repaired([message, behind], evidence={(0, 0): finding})[1]
        expected = made("c1", text, cause, name, **marker)
        if message is NAMELESS:
            expected = with_field(expected, name=None)
        assert found == expected


def text_of(finding, *behind):
    """The text of the placeholder that is written for a finding."""
    return patch_messages([ASKED, *behind], evidence={(0, 0): finding}).messages[1].content


KEPT = {
    "en": "These effects of the tool call were not kept: files, goto. Its recorded result:",
    "zh": "该工具调用的以下影响未被保留:files, goto。其已记录的结果:",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_effects_that_were_not_kept_are_named(language):
    """Before the text of the result or its blocks; the recorded message is not changed."""
    set_language(language)
    sentence, recorded = KEPT[language], result("Updated file")
    block = {"type": "text", "text": "Updated file"}
    finding = Finding(result=recorded, not_kept=("files", "goto"))
    assert text_of(finding) == f"{sentence}\nUpdated file"
    blocks = Finding(result=result([block]), not_kept=("files", "goto"))
    assert text_of(blocks) == [{"type": "text", "text": sentence}, block]
    long = text_of(Finding(result=recorded, not_kept=("k" * 900,)))
    assert (len(long.partition("\n")[0]), long[-13:]) == (500, "\nUpdated file")


def test_an_unknown_language_is_refused():
    """The language stays."""
    set_language("zh")
    for language in ("EN", None):
        with pytest.raises(OptionError, match=rf"language={language!r}: expected one of en, zh"):
            set_language(language)
    assert text_of(Finding()).startswith("工具调用 t")


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_names_ids_and_errors_are_data(language):
    """At most 500 characters on one line, no format string; names and ids are shortened."""
    set_language(language)
    for text in HOSTILE:
        history = [ai((text, "c1")), ai(text), ai((text, text)), ai("c4")]
        evidence = {(3, 0): Finding("failed", error=text), (2, 0): WAITS}
        messages = patch_messages(history, evidence=evidence).messages
        found = [message for message in messages if is_placeholder(message)]
        assert validate_messages(messages) == []
        assert all(len(message.content) <= 500 for message in found)
        for message in found[:3]:
            assert message.content.isprintable()
            for data in (message.name, message.tool_call_id):
                assert one_line(data[:99]) in message.content
        assert text[:300] in found[3].content


def test_each_language_has_each_text():
    """A cause that is added has its sentence in all of them."""
    first, *others = _TEXTS.values()
    assert all(each.keys() == first.keys() for each in others)
