"""What is repaired after a refusal: messages that say nothing or stop halfway, and thinking.

The laws of `langgraph_patch.history.forms.whole`, each over generated messages.
"""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage

from langgraph_patch import patch_messages, portable_messages, validate_messages
from langgraph_patch.history.forms.plain import plain_form
from langgraph_patch.history.forms.whole import repair_refused, with_texts
from support import refused as states
from support.histories import work
from support.refused import (
    AGAIN,
    ASK,
    COMPUTER,
    FOUND,
    REDACTED,
    SAID,
    SEARCH,
    TEXT,
    THINKING,
    UNSIGNED,
    H,
    ai,
    call_block,
    claude,
    gpt,
    reasoning,
    result,
    said,
    started,
)
from support.strategies import fewer

BOUND = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to"


def stored(history, refusal=""):
    """What is stored of a history; what its repair leaves is repaired no more."""
    patch = repair_refused(history, refusal)
    assert repair_refused(patch.messages, refusal).messages is patch.messages
    return patch.messages


# --- each state ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", states.STATES)
def test_each_state_is_repaired_as_the_table_says(name):
    """The message is dropped or corrected, and all others are the same objects."""
    history, expected = states.STATES[name]
    assert stored(history) == expected
    kept = [id(message) for message in history if message in expected]
    assert [id(m) for m in repair_refused(history).messages if m in history] == kept


@pytest.mark.parametrize("name", states.FOREIGN)
def test_the_plain_form_is_what_every_model_reads(name):
    """Texts and calls; what a model cannot read is named. It is no state that is stored."""
    history, expected = states.FOREIGN[name]
    patch = plain_form(history, keeps_ids=True)
    assert patch.messages == expected
    assert plain_form(patch.messages, keeps_ids=True).messages is patch.messages
    assert repair_refused(history).messages is history


@pytest.mark.parametrize("name", states.BLANK)
def test_a_blank_of_a_human_or_a_tool_becomes_a_text(name):
    """A blank beside something is left out. It is for a request: nothing of it is stored."""
    history, expected = states.BLANK[name]
    assert with_texts(history).messages == expected
    assert repair_refused(history).messages is history
    assert portable_messages(history).messages == with_texts(plain_form(history).messages).messages


WHOLE = {
    "an answer": [SAID],
    "thinking with a text": [claude(THINKING, REDACTED, TEXT)],
    "thinking with a call": [ai([THINKING], "c1", response_metadata=states.CLAUDE), result()],
    "reasoning with its call": [gpt(reasoning(), call_block(), calls=["c1"]), result()],
    "reasoning with a call that no block has": [gpt(reasoning(), calls=["c1"]), result()],
    "a call of a model that does not reason": [gpt(call_block(), calls=["c1"]), result()],
    "a refusal": [ai("", additional_kwargs={"refusal": "I can't."})],
    "audio": [ai("", additional_kwargs={"audio": {"id": "x", "transcript": "hm"}})],
    "a parsed answer": [ai("", additional_kwargs={"parsed": {"rain": True}})],
    "a search": [claude(SEARCH, FOUND, TEXT)],
    "a search that a later message ends": [claude(SEARCH), claude(FOUND, TEXT, id="a2")],
    "an image": [ai([{"type": "image", "base64": "aGk=", "mime_type": "image/png"}])],
    "unsigned thinking of a server that imitates Claude": [
        ai([UNSIGNED, TEXT], response_metadata={**states.CLAUDE, "model_name": "deepseek"})
    ],
    "several blocks with one id": [gpt(said("It ", "msg_1"), said("rains.", "msg_1"))],
    "blanks beside a call": [ai(" ", "c1"), result()],
    "a computer call with its output": [gpt(reasoning(), COMPUTER), states.SCREENSHOT],
    "a block of an unknown type": [ai([{"type": "hologram"}])],
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_message_is_the_same_object(name):
    """Also beside one that is not; a refusal that speaks of nothing else changes nothing."""
    history = [ASK, *WHOLE[name], AGAIN]
    assert repair_refused(history).messages is with_texts(history).messages is history
    messages = repair_refused([*history, ai("", id="a8"), H("Hello?")]).messages
    assert [id(m) for m in messages[: len(history)]] == [id(m) for m in history]


# --- the traps ----------------------------------------------------------------------------------


def test_content_is_read_as_well():
    """LangChain's standard blocks: reasoning with a signature, an item id in the extras."""
    v1 = {"output_version": "v1"}
    thought = {"type": "reasoning", "reasoning": "hm", "extras": {"signature": "c2ln"}}
    unsigned = {"type": "reasoning", "reasoning": "hm"}
    wrapped = {"type": "non_standard", "value": REDACTED}
    call = {"type": "tool_call", "id": "c1", "name": "look", "args": {}}
    search = {"type": "server_tool_call", "id": "srvtoolu_1", "name": "web_search", "args": {}}
    message = ai([unsigned, thought, wrapped, TEXT, search], response_metadata=v1 | states.CLAUDE)
    [_, after, _] = stored([ASK, message, AGAIN])
    assert after.content == [thought, wrapped, TEXT, started("web_search")]
    assert stored([ASK, after, AGAIN], BOUND)[1].content == after.content[2:]
    item = {**call, "extras": {"item_id": "fc_1"}}
    lost = ai([item], "c1", response_metadata=v1, usage_metadata=states.REASONED)
    assert stored([ASK, lost, result(), AGAIN])[1].content == [{**call, "extras": {}}]
    other = {"type": "non_standard", "value": {"type": "mcp_call", "id": "msg_1"}}
    twice = [gpt(other, TEXT), AGAIN, gpt(other, TEXT, id="a2"), H("Hm?")]
    assert stored([ASK, *twice])[3].content[0] == {**other, "value": {"type": "mcp_call"}}
    only = ai([thought], "c1", response_metadata=v1)
    assert stored([ASK, only, result(), AGAIN], BOUND)[1].content == []


# --- thinking that is refused -------------------------------------------------------------------

SIGNED = {"type": "reasoning_content", "reasoning_content": {"text": "hm", "signature": "c2ln"}}
HIDDEN = {"type": "reasoning_content", "reasoning_content": {"redacted_content": b"x"}}
OPEN = {"type": "reasoning_content", "reasoning_content": {"text": "hm"}}


def test_thinking_goes_only_if_the_refusal_speaks_of_it():
    """Of Anthropic and Bedrock, in all earlier turns; reasoning of other providers stays."""
    first = ai([THINKING, REDACTED, SIGNED, HIDDEN, OPEN, reasoning(), TEXT])
    calls = [claude(THINKING, TEXT, id="a2"), ai([THINKING], "c1", id="a3"), result()]
    history = [ASK, first, *calls[1:], H("And?"), calls[0]]
    for text in ("", "messages: text content blocks must be non-empty"):
        assert repair_refused(history, text).messages is history
    for text in (BOUND, "Missing thought_signature", "bad REASONING item"):
        patch = repair_refused(history, text)
        assert [m.content for m in patch.messages[1:3]] == [[OPEN, reasoning(), TEXT], ""]
        assert [id(m) for m in patch.messages[3:]] == [id(m) for m in history[3:]]
        assert {change.defect for change in patch.changes} == {"refused_thinking"}


# --- the plain form -----------------------------------------------------------------------------


def test_the_plain_form_keeps_what_openai_states_beside_the_content():
    """A refusal, a transcript, the output of a free-text tool."""
    extra = {"refusal": "I can't.", "audio": {"id": "x", "transcript": "Sorry."}, "kept": 1}
    message = ai("", additional_kwargs={**extra, "tool_outputs": [{"type": "web_search_call"}]})
    [after] = plain_form([message]).messages
    assert after.content == f"I can't.Sorry.\n{states.USED.format('web_search')}"
    assert after.additional_kwargs == {"kept": 1}
    output = ToolMessage([{"type": "custom_tool_call_output", "output": "ok"}], tool_call_id="c1")
    assert plain_form([ai("", "c1"), output]).messages[1].content == "ok"


# --- the laws -----------------------------------------------------------------------------------

BLOCKS = [
    *(TEXT, states.BLANK_TEXT, THINKING, UNSIGNED, REDACTED, SEARCH, FOUND, states.MCP, COMPUTER),
    *(reasoning(), reasoning(2), said("Item.", "msg_1"), SIGNED, OPEN, states.IMAGE, "x", ""),
    *({"type": "refusal", "refusal": "No."}, {"type": "hologram"}),
    *({"type": "web_search_call", "id": "ws_1"}, {"type": "non_standard", "value": REDACTED}),
]
BLANKS = [" ", [], [states.BLANK_TEXT, TEXT, {"text": ""}]]
METADATA = [{}, states.CLAUDE, {"model_provider": "openai"}]


@st.composite
def odd_histories(draw):
    """Valid calls and results among messages of any content."""
    history = []
    for number in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(["human", "ai", "ai", "ai", "call", "system"]))
        blocks = copy.deepcopy(draw(st.lists(st.sampled_from(BLOCKS), max_size=4)))
        content = draw(st.sampled_from([blocks, blocks, "", " ", f"text {number}"]))
        fields = {
            "id": f"m{number}",
            "response_metadata": draw(st.sampled_from(METADATA)),
            "usage_metadata": draw(st.sampled_from([None, states.REASONED])),
            "additional_kwargs": draw(st.sampled_from([{}, {}, {"refusal": "No."}])),
        }
        if kind == "human":
            said_by_human = draw(st.sampled_from([f"ask {number}", f"ask {number}", *BLANKS]))
            history.append(H(said_by_human, id=f"m{number}"))
        elif kind == "system":
            history.append(SystemMessage(f"rule {number}"))
        elif kind == "ai":
            history.append(AIMessage(content, **fields))
        else:
            if isinstance(content, list) and draw(st.booleans()):
                content.append(call_block(f"fc_{number % 2}", f"c{number}"))
            history += [ai(content, f"c{number}", **fields), result(f"c{number}")]
    return history


REFUSALS = st.sampled_from(["", BOUND])
FORMS = {"stored": repair_refused, "plain": lambda history, _: plain_form(history)}
FORMS["texts"] = lambda history, _: with_texts(history)
EACH_FORM = pytest.mark.parametrize("form", FORMS.values(), ids=[*FORMS])


@EACH_FORM
@given(history=odd_histories(), refusal=REFUSALS)
def test_refused_idempotent_and_pure(form, history, refusal):
    """A second repair gives the same list; the messages that were passed in are unchanged."""
    before, objects = copy.deepcopy(history), list(map(id, history))
    patch = form(history, refusal)
    assert form(patch.messages, refusal).messages is patch.messages
    assert (history, list(map(id, history))) == (before, objects)
    assert repr(form(before, refusal).to_dict()) == repr(patch.to_dict())


def stated(history):
    """What a history states: the texts, the calls and results, the blocks that are no thinking."""
    texts, blocks, others = [], [], []
    for message in history:
        if not isinstance(message, AIMessage):
            others.append((message.type, message.content))
            continue
        content = message.content if isinstance(message.content, list) else [message.content]
        texts += [b if isinstance(b, str) else b.get("text", b.get("refusal")) for b in content]
        others += [call["id"] for call in message.tool_calls]
        blocks += [b["type"] for b in content if isinstance(b, dict)]
    kept = [block for block in blocks if block in ("image", "hologram", FOUND["type"])]
    return [t.strip() for t in texts if t and t.strip()], others, kept


@given(history=odd_histories())
def test_refused_nothing_lost_in_the_plain_form(history):
    """Each text, call and result stays; each other block is named, but for thinking."""
    patch = plain_form(history, keeps_ids=True)
    plain = "".join(str(m.content) for m in patch.messages)
    texts, others, kept = stated(history)
    assert all(text in plain for text in texts)
    assert plain.count("hologram was used") == kept.count("hologram")
    calls = [c["id"] for m in patch.messages for c in getattr(m, "tool_calls", [])]
    assert calls == [each for each in others if isinstance(each, str)]
    assert all(isinstance(m.content, str) for m in patch.messages if m.type != "human")
    assert "thinking" not in json.dumps(patch.to_dict()["messages"])


@given(history=odd_histories())
def test_refused_nothing_lost_with_texts(history):
    """Each text stays, those of models are untouched, and nothing else is blank."""
    for before, after in zip(history, with_texts(history).messages, strict=True):
        assert before.text.strip() in after.text
        assert after is before if before.type == "ai" else after.text.strip()


@given(history=odd_histories(), refusal=REFUSALS)
def test_refused_calls_stay_valid(history, refusal):
    """A history with valid calls and results has valid ones after each of the two."""
    history = patch_messages(history).messages
    messages = repair_refused(history, refusal).messages
    assert validate_messages(messages) == []
    assert validate_messages(with_texts(plain_form(messages).messages).messages) == []


@EACH_FORM
@fewer(5)
@given(history=odd_histories(), refusal=REFUSALS)
def test_refused_linear(form, history, refusal):
    """Twice the messages, at most twice the work (and a little)."""
    small, large = (work(lambda h: form(h, refusal), history * n) for n in (10, 20))
    assert large <= 2.2 * small


# --- LangChain's v1 content -----------------------------------------------------------------------


def test_the_last_message_stays():
    """A model may be asked to go on with it; a tool of the provider may still run."""
    for last in (ai(""), claude(THINKING), claude(TEXT, SEARCH), gpt(COMPUTER), gpt(reasoning())):
        history = [ASK, last]
        assert repair_refused(history).messages is history
    assert stored([ASK, claude(SEARCH), ai("", id="a2"), ai("", id="a3")])[1] == claude(
        started("web_search")
    )
