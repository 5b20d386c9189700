"""What a node writes beside a repair."""

from langgraph.types import Command

from langgraph_patch.repairing.writing import NodeOutput


def test_a_value_of_a_key_that_the_node_did_not_write():
    """It is written with the last part; what the node wrote stays, in its own part."""
    assert NodeOutput({"tone": "calm"}).with_values({"messages": []}) == {
        "tone": "calm",
        "messages": [],
    }
    parts = [Command(update={"messages": [1]}), Command(update={"tone": "calm"}, goto="tools")]
    first, last = NodeOutput(parts).with_values({"messages": [2], "notes": 1})
    assert first.update == {"messages": [2]}
    assert (last.update, last.goto) == ({"tone": "calm", "notes": 1}, "tools")
