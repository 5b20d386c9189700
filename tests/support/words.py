"""Every history over a small alphabet, each written as a word, and the laws of a repair.

What a law expects is worked out here anew: nothing is asked of the package but to repair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product, takewhile
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_patch import Finding, is_placeholder, patch_messages, portable_messages
from support.histories import ai, invalid_of, marked
from support.placeholder_texts import ANOTHER, UNKNOWN


class Letter(NamedTuple):
    """One kind of message.

    Attributes:
        means: What it is, in words.
        make: Makes it, from its place in the history.
    """

    means: str
    make: Callable[[int], BaseMessage]


def _calls(*calls: tuple[str, str]) -> Callable[[int], BaseMessage]:
    return lambda place: ai(*calls, id=f"m{place}")


def _result(call_id: str, name: str | None) -> Callable[[int], BaseMessage]:
    return lambda k: ToolMessage(f"r{k}", tool_call_id=call_id, name=name, id=f"m{k}")


def _ours(place: int) -> BaseMessage:
    text = UNKNOWN.format("f", "c1")
    return marked({"cause": "unknown"}, text, name="f", status="error", id=f"m{place}")


LETTERS: Mapping[str, Letter] = {
    "h": Letter("a human", lambda k: HumanMessage(f"r{k}", id=f"m{k}")),
    "a": Letter("an answer", lambda k: AIMessage(f"r{k}", id=f"m{k}")),
    "1": Letter("calls f (c1)", _calls(("f", "c1"))),
    "2": Letter("calls g (c2)", _calls(("g", "c2"))),
    "B": Letter("calls f (c1) and g (c2)", _calls(("f", "c1"), ("g", "c2"))),
    "D": Letter("calls f and g, both c1", _calls(("f", "c1"), ("g", "c1"))),
    "I": Letter(
        "calls f (c1) with cut arguments",
        lambda k: AIMessage("", invalid_tool_calls=[invalid_of("{", "c1", "f")], id=f"m{k}"),
    ),
    "x": Letter("a result of f (c1)", _result("c1", "f")),
    "y": Letter("a result of g (c2)", _result("c2", "g")),
    "n": Letter("a result of c1 without a name", _result("c1", None)),
    "z": Letter("a result of g (c1)", _result("c1", "g")),
    "p": Letter("our placeholder of f (c1)", _ours),
    # Not in the alphabet of all laws.
    "S": Letter("calls f twice, both c1", _calls(("f", "c1"), ("f", "c1"))),
    "G": Letter("calls g (c1)", _calls(("g", "c1"))),
}

ALPHABET = "ha12BDIxynzp"
"""The letters of all histories."""


def words(length: int, alphabet: str = ALPHABET) -> Iterator[str]:
    """Every word of a length, in a fixed order."""
    return map("".join, product(alphabet, repeat=length))


def history_of(word: str) -> list[BaseMessage]:
    """The messages of a word; the id and the text of each tell its place."""
    return [LETTERS[letter].make(place) for place, letter in enumerate(word)]


@cache
def repaired(word: str) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """The history of a word, and what a repair makes of it."""
    history = history_of(word)
    return history, patch_messages(history).messages


def as_test(law: str, word: str) -> str:
    """A test of one word, to be pasted."""
    means = "; ".join(LETTERS[letter].means for letter in word)
    return (
        "from support.words import LAWS\n\n\n"
        f"def test_{law}_of_{word}():\n"
        f'    """{means}."""\n'
        f'    assert LAWS["{law}"]("{word}")\n'
    )


# --- what a history is, worked out anew -----------------------------------------------------------


class Made(NamedTuple):
    """A call as a message makes it: its id and the tool that it names."""

    id: str
    name: str


def made_by(message: BaseMessage) -> list[Made]:
    """The calls of a message, those with cut arguments too."""
    if not isinstance(message, AIMessage):
        return []
    listed: list[Any] = [*message.tool_calls, *message.invalid_tool_calls]
    return [Made(call["id"], call["name"]) for call in listed]


def behind(history: Sequence[BaseMessage], index: int) -> list[ToolMessage]:
    """The results directly behind a message."""
    following = takewhile(lambda m: isinstance(m, ToolMessage), history[index + 1 :])
    return [message for message in following if isinstance(message, ToolMessage)]


def is_whole(history: Sequence[BaseMessage]) -> bool:
    """Whether each message that calls has one result for each call behind it, and none is left."""
    count = 0
    for index, message in enumerate(history):
        if calls := made_by(message):
            found = behind(history, index)
            if Counter(m.tool_call_id for m in found) != Counter(call.id for call in calls):
                return False
            count += len(found)
        if getattr(message, "invalid_tool_calls", None):
            return False
    return count == sum(isinstance(message, ToolMessage) for message in history)


def has_own_names(history: Sequence[BaseMessage]) -> bool:
    """Whether each result behind a message names the tool of a call with its id, or none."""
    return all(
        Counter(Made(m.tool_call_id, m.name) for m in behind(history, index) if m.name)
        <= Counter(made_by(message))
        for index, message in enumerate(history)
    )


def real(history: Iterable[BaseMessage]) -> list[ToolMessage]:
    """The results that are no placeholders."""
    return [m for m in history if isinstance(m, ToolMessage) and not is_placeholder(m)]


def told(message: ToolMessage) -> list[str]:
    """The texts of the results that a message tells: each is a line that names its place."""
    return [line for line in str(message.text).splitlines() if line != ANOTHER]


def callers(history: Sequence[BaseMessage]) -> dict[str | None, str | None]:
    """The text of each real result, and the id of the message behind whose results it is told."""
    found: dict[str | None, str | None] = {}
    for index, message in enumerate(history):
        own = real(behind(history, index)) if made_by(message) else []
        found |= dict.fromkeys((text for m in own for text in told(m)), message.id)
    return found


# --- the laws -------------------------------------------------------------------------------------

Law = Callable[[str], "bool | None"]
"""Whether a history keeps a law; None if the law says nothing of it."""


def answered(word: str) -> bool:
    """Each call has one result directly behind its message, and there is no other result."""
    return is_whole(repaired(word)[1])


def only_results_change(word: str) -> bool:
    """All other messages stay the same objects; no result is changed, or told twice.

    A message with a cut call lists that call. One with several results tells those of its id.
    """
    history, messages = repaired(word)
    others, kept = ([m for m in h if not isinstance(m, ToolMessage)] for h in (history, messages))
    cut = [isinstance(m, AIMessage) and bool(m.invalid_tool_calls) for m in others]
    are_same = len(others) == len(kept) and all(
        (a.id, made_by(a)) == (b.id, made_by(b)) if is_cut else a is b
        for a, b, is_cut in zip(others, kept, cut, strict=True)
    )
    own, found = {id(message) for message in history}, real(messages)
    texts = {call_id: {*_texts_of(history, call_id)} for call_id in ("c1", "c2")}
    all_told = [text for m in found for text in told(m)]
    are_own = all(id(m) in own or {*told(m)} <= texts[m.tool_call_id] for m in found)
    return are_same and are_own and len({*all_told}) == len(all_told)


def _texts_of(history: Sequence[BaseMessage], call_id: str) -> list[str]:
    return [str(m.text) for m in real(history) if m.tool_call_id == call_id]


def valid_stays(word: str) -> bool | None:
    """A valid history comes back as the same object, and only a whole one does."""
    history, messages = repaired(word)
    is_same = messages is history
    if not is_whole(history):
        return not is_same
    return is_same if has_own_names(history) else None


def second_pass(word: str) -> bool:
    """A history that a repair wrote is not changed by another one."""
    messages = repaired(word)[1]
    return patch_messages(messages).messages is messages


def only_result(word: str) -> bool | None:
    """The only result of the only call of its id, behind that, is kept at that call."""
    history, messages = repaired(word)
    made = [(index, call) for index, m in enumerate(history) for call in made_by(m)]
    found = callers(messages)
    is_certain = False
    for index, call in made:
        own = [m for m in real(history) if m.tool_call_id == call.id]
        if [other.id for _, other in made].count(call.id) != 1 or len(own) != 1:
            continue
        [result] = own
        if history.index(result) > index and result.name in (None, call.name):
            is_certain = True
            if found.get(str(result.text)) != history[index].id:
                return False
    return is_certain or None


def each_result(word: str) -> bool | None:
    """Each different result of the only call of its id can be read beside it."""
    history, messages = repaired(word)
    made = [(index, call) for index, m in enumerate(history) for call in made_by(m)]
    found = callers(messages)
    are_several = False
    for index, call in made:
        if [other.id for _, other in made].count(call.id) == 1:
            behind_it = [m for m in history[index:] if m.name in (None, call.name)]
            own = _texts_of(behind_it, call.id)
            are_several |= len(own) > 1
            if any(found.get(text) != history[index].id for text in own):
                return False
    return are_several or None


def nearest_call(word: str) -> bool | None:
    """No result stands under an older call than the nearest before it with its id.

    Nor under a newer one, if anything but results is between the two.
    """
    history, messages = repaired(word)
    places = {message.id: index for index, message in enumerate(history)}
    found = callers(messages)
    for result in (result for result in real(history) if str(result.text) in found):
        place, caller = places[result.id], places[found[str(result.text)]]
        ids = [{call.id for call in made_by(m)} for m in history[:place]]
        nearest = max((i for i, own in enumerate(ids) if result.tool_call_id in own), default=-1)
        between = history[place + 1 : caller]
        if caller < nearest or not all(isinstance(m, ToolMessage) for m in between):
            return False
    return bool(found) or None


def portable_ids(word: str) -> bool:
    """In the portable form no two calls have one id, and each has its result."""
    messages = portable_messages(history_of(word)).messages
    ids = [call.id for message in messages for call in made_by(message)]
    return len({*ids}) == len(ids) and is_whole(messages)


def settled(word: str) -> bool | None:
    """A result that a repair found in the records is told at its call, also if a late one comes.

    One that names no tool may give way to one that does.
    """
    history, are_known = history_of(word), False
    keys = [(place, *each) for place, m in enumerate(history) for each in enumerate(made_by(m))]
    for place, ordinal, call in keys:
        for name, later in ((call.name, "xynz"), (None, "n")):
            known = ToolMessage("known", tool_call_id=call.id, name=name, id="known")
            evidence = {(place, ordinal): Finding(result=known)}
            first = patch_messages(history, evidence=evidence).messages
            key = history[place].id, ordinal
            if "known" not in _answers(first).get(key, ()):
                continue  # it has a result already
            are_known = True
            seconds = [[*first, LETTERS[late].make(len(history))] for late in later]
            after = [_answers(patch_messages(second).messages) for second in seconds]
            if patch_messages(first).messages is not first:
                return False
            if any("known" not in answers.get(key, ()) for answers in after):
                return False
    return are_known or None


def _answers(messages: Sequence[BaseMessage]) -> dict[tuple[Any, ...], list[str]]:
    """What is told of each call with a result: by the message, and the position of the call in it.

    Of the calls of one id, the results name the tool, or are in the order of the calls.
    """
    found: dict[tuple[Any, ...], list[str]] = {}
    for index, message in enumerate(messages):
        left, calls = behind(messages, index), dict(enumerate(made_by(message)))
        for is_wanted in (
            lambda m, call: (m.tool_call_id, m.name) == call,
            lambda m, call: m.tool_call_id == call.id,
        ):
            for ordinal, call in [*calls.items()]:
                own = next((m for m in left if is_wanted(m, call)), None)
                if own is not None:
                    left.remove(own)
                    del calls[ordinal]
                    if not is_placeholder(own):
                        found[message.id, ordinal] = told(own)
    return found


LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        *(answered, only_results_change, valid_stays, second_pass),
        *(only_result, each_result, nearest_call, portable_ids, settled),
    )
}
