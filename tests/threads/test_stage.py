"""Messages that are compared after they were staged, and after they were read back."""

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langgraph_patch.threads.stage import are_same, is_same

ONE, TWO = HumanMessage("1", id="1"), AIMessage("2", id="2")


class Odd:
    """A value that refuses to be compared."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None


class Frame(list):
    """Compares element by element, as an array does."""

    def __eq__(self, other):
        return [one == two for one, two in zip(self, other, strict=True)]

    __hash__ = None

    def copy(self):
        return Frame(self)


FRAME = Frame([1, 2])


def test_messages_are_compared_by_their_contents():
    """Also those whose values cannot be compared; a message without an id is only itself."""
    for one, other, expected in (
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        (Odd(1), Odd(1), True),
        (Odd(1), Odd(2), False),
        ({"a": 1, "b": (Odd(1), 2)}, {"b": [Odd(1), 2], "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        (FRAME, FRAME.copy(), True),
    ):
        both = (ToolMessage("r", tool_call_id="c", id="1", artifact=a) for a in (one, other))
        first, second = both
        assert is_same(first, second) == expected
        assert is_same(first, first)
        assert not is_same(first, first.model_copy(update={"id": "2"}))
    assert are_same([ONE, TWO], [ONE.model_copy(), TWO])
    assert not are_same([ONE, TWO], [ONE])
    assert not are_same([ONE, TWO], [TWO, ONE])
