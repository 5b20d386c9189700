"""Messages with fields that LangChain's constructor refuses: they are corrected, without an error.

`model_construct`, `model_copy(update=...)`, assignment and old checkpoints make such messages.
"""

from langgraph_patch import Change, patch_messages
from support.histories import H, with_field

HUMAN = H("hi", id="m")


def test_a_correction_in_a_history():
    """It is reported with the message before and after, which stays in its place."""
    message = with_field(HUMAN, content=7)
    patch = patch_messages([message, H("x")])
    assert patch.messages == [H("7", id="m"), H("x")]
    [change] = patch.changes
    assert change == Change("corrected", "bad_field", 0, "", None, None, message, patch.messages[0])
    assert str(change) == "corrected message 0 (HumanMessage)"
