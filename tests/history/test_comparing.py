"""Messages that are the same: of equal contents, at two times, or the very same objects."""

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langgraph_patch.evidence.window import is_version
from langgraph_patch.history.comparing import are_identical, is_equal
from langgraph_patch.threads.read import are_equal


class Odd:
    """A value that refuses to be compared, as an array does."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None


def returned(artifact, **fields):
    """A result with an artifact."""
    return ToolMessage("r", tool_call_id="c", artifact=artifact, **fields)


def test_equal_contents():
    """Also what cannot be compared; a message with another id, or in another place, is another."""
    for one, other, expected in (
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        (Odd(1), Odd(1), True),
        (Odd(1), Odd(2), False),
        ({"a": 1, "b": (Odd(1), 2)}, {"b": [Odd(1), 2], "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
    ):
        first, second = returned(one, id="1"), returned(other, id="1")
        assert are_equal([first, first], [first, second]) == expected
        assert not are_equal([first], [first.model_copy(update={"id": "2"})])
        assert not are_equal([first, second], [first])


def test_a_message_at_two_times():
    """An id decides; without one, what is equal but for the id. What cannot be compared is not."""
    human, ai = HumanMessage("x"), AIMessage("x")
    assert is_version(HumanMessage("y", id="1"), HumanMessage("x", id="1"))
    assert is_version(human, HumanMessage("x", id="1"))
    assert is_version(HumanMessage("x", id="1"), human)
    assert not is_version(HumanMessage("y"), human)
    assert not is_version(ai, human)
    assert not is_version(returned(Odd(1)), returned(Odd(1), id="1"))
    assert not is_equal(Odd(1), Odd(1))


def test_the_same_objects():
    """Equal ones are others; no history is an empty one."""
    one, other = HumanMessage("x", id="1"), HumanMessage("x", id="1")
    assert are_identical([one, other], [one, other])
    assert not are_identical([one], [other])
    assert not are_identical([one], [one, one])
    assert are_identical(None, [])
