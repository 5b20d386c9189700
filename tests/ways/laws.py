"""What must be true behind each event of a way; every way of up to so many events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from langchain_core.messages import BaseMessage, ToolMessage

from gates.world import open_ids
from ways.graphs import EFFECTS, EVENTS, KINDS, Graph, Kind, Side, World

# --- the laws ------------------------------------------------------------------------------------

_TEXTS: dict[str, Callable[[Sequence[str]], bool]] = {
    r"may or may not": lambda _: True,
    r"no start and no result|was not run": lambda did: "start" not in did,
    r"rejected the tool call": lambda did: not _has_worked(did),
    r"asked for human input": lambda did: did[-1:] == ["start"],
    r"failed in its last recorded attempt: .*kaput": lambda did: (
        "raised" in did and not _has_worked(did)
    ),
    r"a cancellation is recorded": lambda did: "cancelled" in did,
}
"""For a text about a call whether it is true, if that is what became of the call so far."""


def _has_worked(did: Sequence[str]) -> bool:
    return not {*did}.isdisjoint({"looked", "paid", "slowed"})


def _is_true(text: str, did: Sequence[str]) -> bool:
    """Whether a result or a placeholder is true."""
    word = text.partition(" ")[0]
    if word in EFFECTS:
        return word in did
    return any(is_true(did) for pattern, is_true in _TEXTS.items() if re.search(pattern, text))


def _false_reads(world: World) -> Iterator[str]:
    for before, messages in world.read:
        for message in messages:
            if isinstance(message, ToolMessage):
                call_id = message.tool_call_id
                did = [what for each, what in world.done[:before] if each == call_id]
                if not _is_true(str(message.text), did):
                    yield f"false: {message.text!r} of {call_id}, which did {did}"


def _results(messages: Sequence[BaseMessage]) -> dict[str, str]:
    return {m.tool_call_id: str(m.text) for m in messages if isinstance(m, ToolMessage)}


def _lines(messages: Sequence[BaseMessage]) -> list[tuple[str, str, str]]:
    """What people and models said, but for the old turn."""
    said = [m for m in messages if m.type in {"human", "ai"} and m.id not in {"h0", "a0"}]
    return [(m.type, str(m.id), str(m.text)) for m in said]


def _broken(kind: Kind, right: Side, side: Side, *, is_last: bool) -> Iterator[str]:
    """The laws that an event breaks."""
    yield from _false_reads(side.world)
    ran, should = side.effects, right.effects
    if kind.options.get("record") and not right.world.is_edited:
        should = Counter(dict.fromkeys(should, 1))
    if missing := should.keys() - ran.keys():
        yield f"not run: {sorted(missing)}"
    if more := ran - should:
        yield f"run, and bare does not (so often): {sorted(more)}"
    if side.waits != right.waits:
        yield f"{side.waits} questions wait, bare {right.waits}"
    if side.end != right.end:
        yield f"ends {side.end!r}, bare {right.end!r}"
    said, rightly_said = _lines(side.history), _lines(right.history)
    if kind is KINDS["node"]:  # an abandoned run of an agent that is a node is restored
        said = [line for line in said if line in rightly_said or line[0] == "human"]
    if said != rightly_said:
        yield f"history {said}, bare {rightly_said}"
    if not (right.world.is_disturbed or kind.options):
        results, rightly = _results(side.history), _results(right.history)
        if results != rightly:
            yield f"healthy, but results {results}, bare {rightly}"
        if right.world.refuses == "" and _rows(side) != _rows(right):
            yield f"healthy, but {_rows(side)} checkpoints, bare {_rows(right)}"
    if is_last:
        yield from _lost(kind, right, side)


def _rows(side: Side) -> int:
    return sum(len(rows) for each in side.world.thread.storage.values() for rows in each.values())


def _lost(kind: Kind, right: Side, side: Side) -> Iterator[str]:
    """What the model does not read at the end of a way."""
    if not side.world.read:
        yield "nothing was read"
        return
    messages = side.world.read[-1][1]
    if ids := open_ids(messages):
        yield f"open at the end: {ids}"
    results, rightly = _results(messages), _results(right.world.read[-1][1])
    for call_id, text in rightly.items():
        if results.get(call_id) != text:
            yield f"lost: {text!r} of {call_id}; the model reads {results.get(call_id)!r}"
    if kind.own_tasks and not (kind is KINDS["node"] and right.world.is_past):
        for call_id, what in side.effects:
            if not results.get(call_id, "").startswith(what):
                yield f"lost: {call_id} {what}; the model reads {results.get(call_id)!r}"


class Way(NamedTuple):
    """A way, the laws that its last event or the message behind it breaks, and whether it lives.

    Attributes:
        word: Its letters.
        laws: What is broken.
        is_damaged: Whether something came while tasks were not finished.
    """

    word: str
    laws: tuple[str, ...]
    is_damaged: bool


class Reference:
    """What happens in the bare graph; each way once.

    Args:
        name: The kind of graph.
    """

    def __init__(self, name: str) -> None:
        self._graph = Graph(name, None)
        self._played = {"": Side(self._graph.seeded(), "ended")}

    def __call__(self, word: str) -> Side:
        """What is right behind a way."""
        if word not in self._played:
            world = self(word[:-1]).world.fork()
            self._played[word] = self._graph.play(world, word[-1])
        return self._played[word]


def ways(
    name: str, mode: str, right: Reference, most: int, first: str = "", *, but: str = ""
) -> Iterator[Way]:
    """Every way of up to that many events, in one kind of graph; those that begin so, but for one.

    Left out are ways in which an answer comes that nobody waits for, and those that begin with a
    way that is broken or whose last event does nothing.
    """
    kind, graph = KINDS[name], Graph(name, mode)

    def go(word: str, world: World) -> Iterator[Way]:
        for letter in EVENTS:
            new = word + letter
            if letter == but or (letter in "yn" and not right(word).waits):
                continue
            if not new.startswith(first[: len(new)]):
                continue
            is_idle = letter == "i" and not right(word).world.state.next
            side = graph.play(world.fork(), letter)
            laws = [*_broken(kind, right(new), side, is_last=False)]
            calm = graph.play(side.world.fork(), "z")
            laws += [
                f"then: {each}" for each in _broken(kind, right(new + "z"), calm, is_last=True)
            ]
            yield Way(new, tuple(dict.fromkeys(laws)), right(new + "z").world.is_disturbed)
            if not laws and len(new) < most and not is_idle:
                yield from go(new, side.world)

    yield from go("", graph.seeded())


def as_test(name: str, mode: str, way: Way) -> str:
    """A test of one way that can be pasted."""
    told = "; ".join(EVENTS[letter] for letter in way.word)
    return (
        f"\ndef test_this_way():\n"
        f'    """{told}."""\n'
        f"    right = Reference({name!r})\n"
        f"    *_, way = ways({name!r}, {mode!r}, right, {len(way.word)}, {way.word!r})\n"
        f"    assert way.laws == ()\n"
        f"# {way.laws}\n"
    )
