"""Odd ids and names stay as the model wrote them, and which calls are left open."""

from support.histories import (
    H,
    ai,
    is_quiet,
    made,
    repaired,
    result,
)

IDS = [None, "", "x" * 46, "sl\u00e4sh", "a\n", "functions.f:0"]
NAMES = ["", "bank.wire", "a:b", "a/b", "wire it", "\u68c0 \u7d22", "n" * 70]


def test_two_calls_of_a_message_with_one_id_stay():
    """With two results, in the order of the calls."""
    assert is_quiet([ai("c", "c"), result("1", "c"), result("2", "c"), H("x")])
    assert repaired([ai("c", "c"), result("1", "c")]) == [ai("c", "c"), made("c"), made("c")]
