"""The public functions: what they accept, return and refuse; the laws are in `test_laws`."""

import json
from datetime import date
from itertools import product
from typing import Any

import pytest
from pydantic import BaseModel

from langgraph_patch import Change, PatchError, patch_messages, validate_messages
from langgraph_patch.errors import MessagesError, OptionError
from langgraph_patch.history.changes import json_value
from langgraph_patch.history.findings import Finding
from support.histories import H, ai, call_of, result, with_field

DAY = date(2020, 1, 1)


class Holder(BaseModel):
    """A model that holds anything, even itself."""

    value: Any = None


CYCLE: Any = []
CYCLE.append(CYCLE)
DEEP: Any = []
for _ in range(10_000):
    DEEP = [DEEP]


def test_a_patch_has_json_values_whatever_an_artifact_holds():
    """Keys of any type, cycles, depth; the rest of the message is whole, and a page is made."""
    for thing, shown in (
        ({(1, 2): 3, b"k": {DAY: 4}}, {"1,2": 3, "aw==": {str(DAY): 4}}),
        ([10**6000, "\ud800", b"\xff", (1,)], ["<int>", "\ud800", "_w==", [1]]),
        ({"\ud800": CYCLE, (1,): 2}, {"\ud800": ["<list>"], "(1,)": 2}),
        (Holder(value=CYCLE), {"value": ["<list>"]}),
        (DEEP, [["<list>"]]),
    ):
        patch = patch_messages([H("x"), result("r", "gone", artifact=thing)])
        values = patch.to_dict()
        assert json.loads(json.dumps(values)) == values
        assert values["changes"][0]["before"]["artifact"] == shown
        assert "gone" in patch._repr_html_()
    message = with_field(ai("c1", id="a1"), tool_calls=[call_of("t", "c1", {"q": DEEP})])
    expected = {**ai("c1", id="a1").model_dump(), "tool_calls": [call_of("t", "c1", "<dict>")]}
    assert json_value(message) == expected


NO_LIST = r" is no list of messages: expected a list of LangChain messages"
NO_MESSAGE = r", the item with index {} of {}, is no message: expected a list of LangChain messages"


def test_what_is_no_history_is_refused():
    """The error is a `TypeError` of the package; it shows the value, if that is short."""
    for value, words in (
        *((None, f"None{NO_LIST}"), (b"hi", f"b'hi'{NO_LIST}"), ({"content": "x"}, NO_LIST)),
        ({"messages": [H("x" * 300)]}, r"xxx… is no list of messages: pass state\['messages'\]\.$"),
        (patch_messages([]), r"^<Patch: nothing to repair> is no list .* pass its \.messages\.$"),
        *(((7,), "^7" + NO_MESSAGE.format(0, 1)), ("x" * 10_000, NO_LIST)),
        (["x", "y" * 10_000, 7], "^7" + NO_MESSAGE.format(2, 3)),
    ):
        for function in (patch_messages, validate_messages):
            with pytest.raises(MessagesError, match=words) as caught:
                function(value)
            assert len(str(caught.value)) < 400
    assert issubclass(MessagesError, PatchError)
    assert issubclass(MessagesError, TypeError)


CAUSES = r"a text, .* a mapping from causes \(awaiting_input, failed"
KEYS = r"expected a mapping \(index of the message, position of the call in it\) -> Finding"
OPTIONS = [
    ({"placeholder": 7}, f"placeholder=7: expected {CAUSES}"),
    ({"placeholder": {"lost": "x"}}, f"'lost': 'x'.*: expected {CAUSES}"),
    ({"placeholder": {"unknown": 7}}, f"'unknown': 7.*: expected {CAUSES}"),
    ({"evidence": 7}, f"evidence=7: {KEYS}"),
    ({"evidence": {("a1", "c1"): Finding()}}, f"'a1', 'c1'.*{KEYS}"),
    ({"evidence": {(0, 0): Finding(), (1, 0): H("x")}}, f"HumanMessage.*{KEYS}"),
    ({"evidence": {(0, 0): Finding("lost")}}, f"cause='lost'.*{KEYS}"),
    ({"evidence": {(0, 0): Finding(result="r")}}, f"result='r'.*{KEYS}"),
]


def test_what_is_no_option_is_refused():
    """Before anything is read: whether the history is damaged does not matter."""
    for (options, words), history in product(OPTIONS, ([], [ai("c1")])):
        with pytest.raises(OptionError, match=words):
            patch_messages(history, **options)
    assert len(patch_messages([ai("c1")], evidence={}).messages) == 2
    assert issubclass(OptionError, PatchError)
    assert issubclass(OptionError, ValueError)


def test_a_correction_in_a_history():
    """It is reported with the message before and after, which stays in its place.

    `model_construct`, `model_copy(update=...)`, assignment and old checkpoints make such messages.
    """
    message = with_field(H("hi", id="m"), content=7)
    patch = patch_messages([message, H("x")])
    assert patch.messages == [H("7", id="m"), H("x")]
    [change] = patch.changes
    assert change == Change("corrected", "bad_field", 0, "", None, None, message, patch.messages[0])
    assert str(change) == "corrected message 0 (HumanMessage)"
