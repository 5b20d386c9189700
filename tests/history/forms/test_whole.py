"""What is repaired after a refusal: messages that say nothing or stop halfway, and thinking.

The laws of `langgraph_patch.history.forms.whole`, each over generated messages.
"""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_patch import Change, patch_messages, validate_messages
from langgraph_patch.history.forms.plain import plain_form
from langgraph_patch.history.forms.whole import repair_refused
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
    assert repair_refused(history).messages is history
    messages = repair_refused([*history, ai("", id="a8"), H("Hello?")]).messages
    assert [id(m) for m in messages[: len(history)]] == [id(m) for m in history]


# --- the traps ----------------------------------------------------------------------------------


def test_the_last_message_stays():
    """A model may be asked to go on with it; a tool of the provider may still run."""
    for last in (ai(""), claude(THINKING), claude(TEXT, SEARCH), gpt(COMPUTER), gpt(reasoning())):
        history = [ASK, last]
        assert repair_refused(history).messages is history
    assert stored([ASK, claude(SEARCH), ai("", id="a2"), ai("", id="a3")])[1] == claude(
        started("web_search")
    )


def test_a_dropped_message_does_not_separate_and_does_not_follow():
    """A call keeps its result, a search that runs stays, and only what is kept has an id."""
    history = [ASK, ai("", "c1"), ai("", id="a2"), result(), AGAIN]
    assert stored(history) == [*history[:2], *history[3:]]
    assert stored([ASK, ai(""), result("x"), AGAIN])[1:] == [result("x"), AGAIN]
    waits = [ASK, claude(SEARCH), result("x")]
    assert repair_refused(waits).messages is waits
    twice = [ASK, gpt(reasoning()), gpt(reasoning(), said("x"), id="a2"), AGAIN]
    assert stored(twice) == [ASK, *twice[2:]]


def test_the_id_of_a_block_that_goes_is_free_again():
    """An earlier message lost its id with its reasoning: the later one keeps it."""
    lost = gpt(call_block(), calls=["c1"], usage_metadata=states.REASONED)
    kept = gpt(reasoning(), call_block(call_id="c2"), calls=["c2"], id="a2")
    history = [ASK, lost, result(), kept, result("c2"), AGAIN]
    assert stored(history)[3] is kept


def test_reasoning_that_goes_takes_only_the_ids_of_its_own_calls():
    """The second call has its own reasoning."""
    blocks = [reasoning(), call_block(), reasoning(2), call_block("fc_2", "c2")]
    second = gpt(*blocks, calls=["c1", "c2"], id="a2")
    first = gpt(reasoning(), said("x"))
    after = stored([ASK, first, second, result(), result("c2"), AGAIN])[2]
    assert after.content == [call_block(None), *blocks[2:]]


def test_a_cached_search_of_openai_becomes_a_text():
    """LangChain cannot read the block without its id; the earlier message has it."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    history = [ASK, gpt(search, TEXT), AGAIN, gpt(search, TEXT, id="a2"), H("Hm?")]
    assert stored(history)[3].content == [said("[web_search was used.]"), TEXT]
    assert [each["type"] for each in stored(history)[3].content_blocks] == ["text", "text"]


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


def test_damaged_fields_are_read_as_they_are_meant():
    """`content=None` says nothing; calls that are no list are none."""
    for fields in ({"content": None}, {"tool_calls": 7}):
        message = ai("").model_copy(update=fields)
        assert stored([ASK, SAID, message, AGAIN]) == [ASK, SAID, AGAIN]


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


def test_a_change_says_what_was_done_and_keeps_what_was_there():
    """The kind, the defect, the index, and the message before and after."""
    history = [ASK, claude(THINKING, TEXT), SAID, ai(""), claude(SEARCH, id="a2"), AGAIN]
    patch = repair_refused(history, BOUND)
    thinking, empty, unfinished = patch.changes
    assert str(thinking) == "corrected message 1 (refused_thinking)"
    assert empty == Change("dropped", "empty", 3, "", None, None, history[3], None)
    assert str(unfinished) == "corrected message 4 (unfinished)"
    assert patch.before is history
    assert (thinking.before, thinking.after) == (history[1], patch.messages[1])


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


def test_the_plain_form_joins_system_messages_of_any_content():
    """Blocks stay blocks; one system message goes to the front as it is."""
    blocks = [{"type": "text", "text": "B.", "cache_control": {"type": "ephemeral"}}]
    first, second = SystemMessage("A.", id="s1"), SystemMessage(blocks)
    [joined, _] = plain_form([ASK, first, second]).messages
    assert (joined.id, joined.content) == ("s1", [said("A."), *blocks])
    moved = plain_form([ASK, first])
    assert moved.messages == [first, ASK]
    assert str(moved) == "corrected message 1 (foreign)"


# --- the laws -----------------------------------------------------------------------------------

BLOCKS = [
    *(TEXT, states.BLANK, THINKING, UNSIGNED, REDACTED, SEARCH, FOUND, states.MCP, COMPUTER),
    *(reasoning(), reasoning(2), said("Item.", "msg_1"), SIGNED, OPEN, states.IMAGE, "x", ""),
    *({"type": "refusal", "refusal": "No."}, {"type": "hologram"}),
    *({"type": "web_search_call", "id": "ws_1"}, {"type": "non_standard", "value": REDACTED}),
]
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
            history.append(H(f"ask {number}", id=f"m{number}"))
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


@given(history=odd_histories(), refusal=REFUSALS)
def test_refused_nothing_lost(history, refusal):
    """Each text, call, result, image and foreign block stays; humans stay the same objects."""
    messages = repair_refused(history, refusal).messages
    texts, others, kept = stated(messages)
    old_texts, *rest = stated(history)
    assert [text for text in texts if not text.startswith("[")] == old_texts
    assert [others, kept] == rest
    for kind in (HumanMessage, ToolMessage, SystemMessage):
        own = [id(message) for message in history if isinstance(message, kind)]
        assert [id(message) for message in messages if isinstance(message, kind)] == own


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
    assert all(isinstance(m.content, str) for m in patch.messages)
    assert "thinking" not in json.dumps(patch.to_dict()["messages"])


@given(history=odd_histories(), refusal=REFUSALS)
def test_refused_calls_stay_valid(history, refusal):
    """A history with valid calls and results has valid ones after each of the two."""
    history = patch_messages(history).messages
    messages = repair_refused(history, refusal).messages
    assert validate_messages(messages) == []
    assert validate_messages(plain_form(messages).messages) == []


@EACH_FORM
@fewer(5)
@given(history=odd_histories(), refusal=REFUSALS)
def test_refused_linear(form, history, refusal):
    """Twice the messages, at most twice the work (and a little)."""
    small, large = (work(lambda h: form(h, refusal), history * n) for n in (10, 20))
    assert large <= 2.2 * small


# --- LangChain's v1 content -----------------------------------------------------------------------

V1 = {"output_version": "v1"}
NO_TEXT = [{"type": "text", "text": "[no text]"}]


@pytest.mark.parametrize(
    "content", ["", [], [{"type": "refusal", "refusal": "", "extras": {}}]], ids=repr
)
def test_a_text_is_written_into_v1_content_as_a_block(content):
    """Integrations iterate v1 content: a text there is a TypeError in each later turn."""
    said_nothing = AIMessage(content, response_metadata=V1)
    _, written, _ = stored([ASK, said_nothing, AGAIN])
    assert written.content == NO_TEXT


@pytest.mark.parametrize("empty", [AIMessage(""), AIMessage([])])
def test_an_empty_message_behind_a_result_stays_with_a_text(empty):
    """Without it a human message would follow a tool message, which some servers refuse."""
    history = [ASK, ai("", "c1"), result(), empty, AGAIN]
    assert [m.text for m in stored(history)[3:]] == ["[no text]", AGAIN.text]
    assert stored([*history[:3], empty, SAID, AGAIN]) == [*history[:3], SAID, AGAIN]


def test_the_id_of_a_call_is_no_item_of_the_responses_api():
    """A `tool_use` block keeps its id, also one that begins as an item's."""
    block = {"type": "tool_use", "id": "fc_1", "name": "t", "input": {}}
    call = {"name": "t", "args": {}, "id": "fc_1", "type": "tool_call"}
    turn = [AIMessage([block], tool_calls=[call]), ToolMessage("r", tool_call_id="fc_1")]
    history = [ASK, *turn, *turn, AGAIN]
    assert stored(history) is history


def test_a_refusal_with_a_text_says_something():
    """It is no empty message."""
    refused = AIMessage([{"type": "refusal", "refusal": "I will not."}], response_metadata=V1)
    history = [ASK, refused, AGAIN]
    assert stored(history) is history


def test_a_message_that_has_a_text_for_v1_content_heals():
    """An earlier repair left it: the plain form writes it anew, without the mark of v1."""
    hurt = AIMessage("[no text]", response_metadata=V1)
    [_, written, _] = plain_form([ASK, hurt, AGAIN]).messages
    assert (written.content, written.response_metadata) == ("[no text]", {})
