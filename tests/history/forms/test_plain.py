"""The form that every provider reads: the ids and names of calls, and all messages beside them."""

from langchain_core.messages import SystemMessage

from langgraph_patch.history.forms.plain import plain_form
from support.histories import H, ai, check_portable, result


def ids_of(messages):
    """The ids of all calls."""
    return [call["id"] for m in messages if m.type == "ai" for call in m.tool_calls]


def plain(history):
    """The plain form of a history, which every provider reads; made again it is the same object."""
    messages = plain_form(history).messages
    check_portable(messages)
    assert plain_form(messages).messages is messages
    assert plain_form(history).messages == messages
    return messages


def answered(*calls):
    """Messages that call, each with its results behind it."""
    found = []
    for message in calls:
        results = [
            result(f"r{n}", c["id"] or "", name=c["name"] or None)
            for n, c in enumerate(message.tool_calls)
        ]
        found += [message, *results]
    return found


def test_each_call_has_an_id_of_its_own_in_the_plain_form():
    """A stored one that is valid and new stays; others are made of it: always the same ones."""
    messages = answered(ai(None), ai(None), ai("", id="a2"), ai("abcdefgh1"), ai("abcdefgh1"))
    found = ids_of(plain(messages))
    assert found == ["efb3dd494", "90ad0d446", "4327b6746", "abcdefgh1", "d0fe4f487"]
    taken = answered(ai("", id="a2"), ai("4327b6746", id="a3"))
    assert ids_of(plain(taken))[1] == "4327b6746"
    twins = plain(answered(ai("c", "c", id="a1")))
    assert [m.tool_call_id for m in twins[1:]] == ids_of(twins)
    assert [m.text for m in twins[1:]] == ["r0", "r1"]


def test_the_names_of_two_speakers_never_become_one():
    """Neither by characters that are replaced, nor by what is cut off; valid names stay."""
    names = ["a b", "a_b", "\u5f20", "\u674e", "n" * 70, "n" * 71, "bob\nalice", "bob alice"]
    found = [m.name for m in plain([H("x", name=name) for name in [*names, "a b"]])]
    assert len({*found}) == len(names)
    assert (found[1], found[-1]) == ("a_b", found[0])
    systems = [SystemMessage("q", name="example_user"), SystemMessage("a", name="example_model")]
    [system] = plain(systems)
    assert (system.name, system.text) == (None, "[example_user]: q\n\n[example_model]: a")
