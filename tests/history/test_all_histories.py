"""The laws of a repair over every history of up to three messages; of four with `--long`.

Nothing is sampled, so the shortest history that breaks a law is found, and printed as a test.
`support.words` has the alphabet and the laws.
"""

from collections import Counter

import pytest

from support.words import ALPHABET, LAWS, LETTERS, as_test, words

SPEAKS = {
    "answered": (1_884, 22_620),
    "only_results_change": (1_884, 22_620),
    "valid_stays": (1_860, 22_499),
    "second_pass": (1_884, 22_620),
    "only_result": (148, 1_948),
    "each_result": (14, 426),
    "nearest_call": (599, 10_629),
    "portable_ids": (1_884, 22_620),
    "settled": (114, 1_723),
}
"""Of how many histories each law says something: in the quick suite, and with `--long`."""


@pytest.mark.parametrize("law", LAWS)
def test_all_histories(law, pytestconfig):
    """Each law holds for every history over the alphabet."""
    is_long = pytestconfig.getoption("--long")
    # The last one repairs each history many times; two calls of one id and tool are its matter.
    longest, alphabet = (
        (2 + is_long, f"{ALPHABET}S") if law == "settled" else (3 + is_long, ALPHABET)
    )
    found = Counter()
    for length in range(1, longest + 1):
        for word in words(length, alphabet):
            kept = LAWS[law](word)
            found[kept] += 1
            assert kept is not False, f"\n\n{as_test(law, word)}"
    assert found.total() == sum(len(alphabet) ** length for length in range(1, longest + 1))
    assert found[True] == SPEAKS[law][is_long]


def test_the_letters_differ():
    """A word is one history, and no history has two words."""
    assert {*ALPHABET} <= LETTERS.keys()
    made = {repr(letter.make(0)) for letter in LETTERS.values()}
    assert len(made) == len({*ALPHABET, *LETTERS}) == len(LETTERS)
