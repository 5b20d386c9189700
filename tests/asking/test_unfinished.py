"""What a node returns beside the messages of its model, if one of them was cut."""

import pytest
from langgraph.types import Command, Send

from langgraph_patch.asking.streamed_calls import StreamedCall
from langgraph_patch.asking.unfinished import Correction, Unfinished

CUT = {"name": "pay", "args": {"to": "bo"}, "id": "c1", "type": "tool_call"}
"""What LangChain makes of a call whose arguments end within a text."""
WHOLE = {**CUT, "args": {"to": "bob"}, "id": "c2"}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"todo": [CUT, WHOLE]}, {"todo": [WHOLE]}),
        ([Send("tools", [CUT]), Send("tools", [WHOLE])], [Send("tools", [WHOLE])]),
        (Command(goto=[Send("tools", CUT), "end"]), Command(goto=["end"])),
        (Command(goto=Send("tools", [CUT])), Command(goto=[])),
    ],
)
def test_what_carries_a_cut_call_is_left_out(output, expected):
    """In a state key of the application, and in what is sent to the tools: it would run."""
    cut = Unfinished({"a1"}, [StreamedCall("c1", "pay", '{"to": "bo'), StreamedCall("c2", "pay")])
    correction = Correction([cut], ["messages"], lambda *_, **__: False)
    assert correction.of(output, drops=False) == expected
