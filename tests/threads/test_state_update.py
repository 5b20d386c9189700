"""The writes of a repair, in each form that a reducer may need."""

from typing import Any

from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.channels import BinaryOperatorAggregate
from langgraph.graph import add_messages

from langgraph_patch import patch_messages
from langgraph_patch.threads.state_update import writes_for
from support import agents
from support.agents import both_calls, human, lines
from support.placeholder_texts import UNKNOWN

FIRST = [human("hi"), AIMessage("hello", id="a0"), human("book it"), both_calls()]
DAMAGED = [*FIRST, human("never mind")]
RESULTS = [
    f"tool c1: {UNKNOWN.format('send_email', 'c1')}",
    f"tool c2: {UNKNOWN.format('wire_money', 'c2')}",
]


def channel(reducer: Any) -> Any:
    """A live channel with that reducer."""
    return BinaryOperatorAggregate(list, reducer)


def test_the_tail_only_is_written():
    """Under add_messages nothing before the first change is written again."""
    new = patch_messages(DAMAGED).messages
    removals, tail = writes_for(channel(add_messages), DAMAGED, new)
    assert removals == [RemoveMessage(id="never mind")]
    assert lines(tail) == [*RESULTS, "human: never mind"]


def test_an_append_is_one_write():
    """Calls at the tail: only the new results are written."""
    new = patch_messages(FIRST).messages
    (added,) = writes_for(channel(add_messages), FIRST, new)
    assert lines(added) == RESULTS


def test_messages_without_ids():
    """A stored message without an id cannot be removed by it: the list is replaced."""
    old = [both_calls(), AIMessage("hm")]
    new = patch_messages(old).messages
    (write,) = writes_for(channel(lambda left, right: [*left, *right]), old, new)
    assert write.value == new


def test_no_form_has_the_effect():
    """A reducer that accepts no form of the repair: nothing is written."""

    def refusing(left: list[Any], right: list[Any]) -> list[Any]:
        raise ValueError(right)

    class NoOverwrite(BinaryOperatorAggregate):
        def update(self, values: Any) -> bool:
            raise ValueError(values)

    new = patch_messages(DAMAGED).messages
    assert writes_for(NoOverwrite(list, refusing), DAMAGED, new) is None


def test_an_unknown_channel_is_taken_for_add_messages():
    """Outside of a graph there is no channel to try on: the form of add_messages is used."""
    new = patch_messages(DAMAGED).messages
    assert writes_for(None, DAMAGED, new) == writes_for(channel(add_messages), DAMAGED, new)


def test_the_trial_changes_nothing():
    """A reducer that extends in place is tried on copies: channel and history stay as they are."""
    live = channel(agents.in_place).from_checkpoint(list(DAMAGED))
    old = list(live.get())
    new = patch_messages(old).messages
    (write,) = writes_for(live, old, new)
    assert write.value == new
    assert live.get() == DAMAGED
    assert old == DAMAGED
