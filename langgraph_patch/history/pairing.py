"""Which calls and results of a history belong together.

Providers use ids again, and an id that is used again is another call. So results are paired in
document order and not by a set of ids:

1. A result belongs to the nearest earlier message that has a call of its id, never to an older
   one. One that names no call belongs to the nearest that calls its tool, or any tool.
2. In that message the tool that it names must be that of the call. A missing name agrees with
   any. A name that no call of this id has agrees if the result stands directly after the message
   or among its other results. The `ToolNode` of LangGraph writes the name of a handoff into all
   older results of its id. So a name does not count before the last call of the tool, if it is
   seen to be written into results of others.
3. Equally many results as calls that match them pair in order. Directly behind the message, the
   placeholders of this package count too. Fewer results than calls that match equally well are
   paired with none of them.
4. Placeholders, of this or another package, get the calls that are left.
5. A result that is left behind a message pairs in order, if there are as many as calls of its id:
   a fallback writes the name of the tool that answered in its place. Not if an older call of its
   id and tool has no result: then it may be a late one of that.
6. A result before its call is paired only if nothing but results is stored between them, and
   the names agree. If it could be the result of an older call too, because the nearer calls of
   its id name other tools, it is paired with neither.

A result that is not paired is a duplicate or an orphan. A duplicate that rule 1 and rule 2 give to
the only call of its id in a message is another result of that call, and is told too (`joining`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import TypeAlias

from langchain_core.messages import AIMessage, ToolMessage

from langgraph_patch.history.calls import Call, is_complete
from langgraph_patch.history.fields import grouped
from langgraph_patch.history.placeholders import is_invented, is_placeholder
from langgraph_patch.history.results import Result

# --- what is paired -----------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class PairedCall:
    """One call and its result.

    Attributes:
        calling: The message that makes it.
        call: The call as it is stored.
        real: Its real result.
        others: What else is stored as its result, if no other call of its message has its id.
        placeholder: Its placeholder.
        look_again: The checkpoint from which this turn searches once more, because the placeholder
            asks for that; `""` for the newest one, None if it does not search.
        stays_open: Whether it stays without a result, because what answers it runs next.
    """

    calling: CallingMessage
    call: Call
    real: Result | None = None
    others: Sequence[Result] = ()
    placeholder: Result | None = None
    look_again: str | None = None
    stays_open: bool = False

    @property
    def stated(self) -> ToolMessage | None:
        """The placeholder, if it stays unless more is known: not what a client invented."""
        stored = self.placeholder
        return None if stored is None or is_invented(stored.message) else stored.message

    def take(self, stored: Result) -> None:
        """Pair the call with a result or a placeholder."""
        stored.call_index = self.calling.index
        if stored.is_placeholder:
            self.placeholder = stored
        else:
            self.real = stored

    @property
    def is_open(self) -> bool:
        """Whether it is searched for: without a real result, and without a final placeholder."""
        return self.real is None and (self.stated is None or self.look_again is not None)

    @property
    def has_own_id(self) -> bool:
        """Whether no other call of its message has its id."""
        return sum(each.call.id == self.call.id for each in self.calling.calls) == 1

    @property
    def answer(self) -> Result | None:
        return self.real or self.placeholder


@dataclass(slots=True, eq=False)
class CallingMessage:
    """An `AIMessage` that calls tools.

    Attributes:
        index: Its index in the history.
        message: The message.
        after: The index of the last message before it that holds more than results.
        is_over: Whether no pause of its calls is open: a human message comes before the next
            message of a model, or the repair ends it.
        calls: Its calls.
        behind: The results directly behind it.
        end: The first index after the message that does not hold one of its results.
    """

    index: int
    message: AIMessage
    after: int = -1
    is_over: bool = False
    calls: list[PairedCall] = field(default_factory=list)
    behind: Sequence[Result] = ()
    end: int = 0

    @property
    def is_rewritten(self) -> bool:
        """Whether its calls are written into `tool_calls`: one of them is damaged, and not there.

        Not while a call stays open: what were listed now might be run. A finished call that its
        provider reads from another place, with its result behind it, stays where it is.
        """
        unlisted = [paired for paired in self.calls if paired.call.tool_call is None]
        is_open = any(paired.stays_open for paired in self.calls)
        return not is_open and not all(map(self._is_read_by_its_provider, unlisted))

    def _is_read_by_its_provider(self, paired: PairedCall) -> bool:
        answer = paired.answer
        is_answered = answer is not None and self.has_in_place(answer)
        return is_answered and is_complete(paired.call)

    def has_in_place(self, stored: Result) -> bool:
        """Whether a result is stored directly after this message."""
        return self.index < stored.index < self.end


# --- the calls of each message, by what a result can name of them ----------------------------

_Key: TypeAlias = str | tuple[str] | None
"""What a result names: the id of a call, else a tool (as a tuple), else nothing."""


@dataclass(slots=True, eq=False)
class _Group:
    """The calls of one message that a result with one key may belong to, and such results.

    Attributes:
        calling: The message.
        names: The tools that calls with this key name, in the whole history.
        own_names: The tools that the calls of this group name.
        calls: The calls that have the id, or call the tool; all calls if the key is None.
        results: The results after the message, in the order of the history.
        placeholders: The placeholders among them.
        early: The results directly before the message that belong to no older call.
    """

    calling: CallingMessage
    names: set[str]
    own_names: set[str] = field(default_factory=set)
    calls: list[PairedCall] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    placeholders: list[Result] = field(default_factory=list)
    early: list[Result] = field(default_factory=list)


def _groups_of(calling: CallingMessage, names: defaultdict[_Key, set[str]]) -> dict[_Key, _Group]:
    """The groups of a message by their keys; its tools are added to `names`."""
    groups: dict[_Key, _Group] = {}
    for paired in calling.calls:
        own: tuple[_Key, ...] = (paired.call.id, (paired.call.name,), None)
        for key in own:
            group = groups.setdefault(key, _Group(calling, names[key]))
            group.calls.append(paired)
            group.own_names.add(paired.call.name)
            group.names.add(paired.call.name)
    return groups


def _agree(label: str | None, names: AbstractSet[str], all_names: AbstractSet[str]) -> bool:
    """Whether the name in a result agrees with one of `names`.

    A name that is not in `all_names` does not tell calls apart: some applications write names
    of their own into results.
    """
    return label is None or label not in all_names or label in names or "" in names


# --- pairing ------------------------------------------------------------------------------


_Stored: TypeAlias = Mapping[int, Sequence[Result]]
"""The results, by the index of the message that holds them."""


def pair(calling_messages: Mapping[int, CallingMessage], stored_results: _Stored) -> None:
    """Find the call of each result.

    First results that name a call, then results that name only a tool. Placeholders get what is
    left.
    """
    for index, calling in calling_messages.items():
        places = takewhile(stored_results.__contains__, count(index + 1))
        calling.behind = [stored for place in places for stored in stored_results[place]]
    _forget_names(calling_messages, stored_results)
    names: defaultdict[_Key, set[str]] = defaultdict(set)
    groups = {i: _groups_of(calling, names) for i, calling in calling_messages.items()}
    _place_results(stored_results, groups)
    for index, own in groups.items():
        in_place = {*calling_messages[index].behind}
        for key, group in own.items():
            if isinstance(key, str) and len(group.calls) > 1:
                _keep_places(group, in_place)
    by_key = [(key, group) for own in groups.values() for key, group in own.items()]
    for names_call in (True, False):
        some = [group for key, group in by_key if isinstance(key, str) is names_call]
        for group in some:
            _assign(_free(group.calls), group.results, group.names)
        for group in (each for each in some if each.early):
            free = _free(group.calls)
            own_names = {paired.call.name for paired in free}
            early = [s for s in group.early if s.label in (None, *own_names) or "" in own_names]
            _assign(free, early, own_names)
    for _, group in by_key:
        _pair_in_order(group.calls, group.placeholders, group.names)
    _leave_in_place(calling_messages.values())
    _note_others(by_key)


def _note_others(by_key: Sequence[tuple[_Key, _Group]]) -> None:
    """Note what else is stored as the result of a call: by its id, if no call beside it has that.

    Where an id is used again, a handoff writes its name into the results of other calls.
    """
    times = Counter(key for key, _ in by_key)
    for key, group in by_key:
        if isinstance(key, str) and len(group.calls) == 1:
            tools = (None, group.calls[0].call.name)
            left = [s for s in group.results if s.call_index is None]
            group.calls[0].others = [s for s in left if times[key] == 1 or s.name in tools]


def _forget_names(calling_messages: Mapping[int, CallingMessage], stored_results: _Stored) -> None:
    """Forget the names in results that a later handoff wrote into them (rule 2).

    Such a result belongs to the message that it is directly behind, or it is not paired.
    """
    untrue: set[tuple[str | None, str]] = set()
    still_open: set[tuple[str | None, str]] = set()
    last_caller: dict[tuple[str | None, str | None], int] = {}
    in_place: set[Result] = set()
    for index, calling in calling_messages.items():
        last_caller |= {(paired.call.id, paired.call.name): index for paired in calling.calls}
        in_place |= {*calling.behind}
        behind = grouped((stored.call_id, stored) for stored in calling.behind)
        called = grouped((paired.call.id, paired.call.name) for paired in calling.calls)
        for call_id, tools in called.items():
            own, results = Counter(tools), behind[call_id]
            too_many = Counter(stored.label for stored in results if stored.label) - own
            is_full = len(results) == len(tools)
            wrong = {(call_id, each) for each in too_many if is_full or each not in own}
            untrue |= wrong - still_open
            if sum(not stored.is_placeholder for stored in results) < len(tools):
                still_open |= {(call_id, tool) for tool in tools}
    for stored in (each for results in stored_results.values() for each in results):
        key = stored.call_id, stored.label
        if key in untrue and stored.index < last_caller.get(key, 0):
            stored.label = None
            stored.is_misplaced = stored not in in_place


def _keep_places(group: _Group, in_place: AbstractSet[Result]) -> None:
    """Pair the calls of one id with the results that this package has put in order.

    Only their places tell which is which, and the repair that wrote the placeholders knew it. What
    came later is behind them.
    """
    ours = [stored for stored in group.placeholders if is_placeholder(stored.message)]
    placed = [stored for stored in (*ours, *group.results) if stored in in_place]
    placed = sorted(placed, key=lambda stored: stored.index)[: len(group.calls)]
    if all(s.is_placeholder for s in placed) or not any(s.is_placeholder for s in placed):
        return
    tools = grouped((paired.call.name, paired) for paired in group.calls)
    named = grouped((stored.label, stored) for stored in placed)
    if len(tools) == 1:
        named = defaultdict(list, {None: placed})
    rest = [p for p in group.calls if len(named[p.call.name]) != len(tools[p.call.name])]
    has_nameless = len(named[None]) == len(rest) > 0
    for label, calls in tools.items():
        if len(named[label]) == len(calls) and (has_nameless or len(calls) > 1):
            _pair_in_order(calls, named[label], group.names)
    if has_nameless:
        _pair_in_order(rest, named[None], group.names)


def _leave_in_place(calling_messages: Iterable[CallingMessage]) -> None:
    """Pair the results behind a message with its calls of their id if there are as many (rule 5).

    Who wrote them gave each call its own. A name tells nothing there.
    """
    open_before: set[tuple[str | None, str | None]] = set()
    for calling in calling_messages:
        behind = grouped((stored.call_id, stored) for stored in calling.behind)
        called = grouped((paired.call.id, paired) for paired in calling.calls)
        called[None] = calling.calls
        for call_id, own in behind.items():
            calls = called[call_id]
            is_whole = len(own) == len(calls) and not any(each.is_placeholder for each in own)
            is_paired = all(each.call_index == calling.index for each in own)
            is_free = all(paired.answer is None or paired.answer in own for paired in calls)
            is_late = any((call_id, each.label) in open_before for each in own)
            if is_whole and is_free and not is_paired and not is_late:
                for paired, stored in zip(calls, own, strict=True):
                    paired.take(stored)
        for paired in _free(calling.calls):
            open_before |= {(paired.call.id, paired.call.name), (None, paired.call.name)}


def _free(calls: Iterable[PairedCall]) -> list[PairedCall]:
    return [paired for paired in calls if paired.real is None]


def _place_results(stored_results: _Stored, groups: Mapping[int, Mapping[_Key, _Group]]) -> None:
    """Add each result to the group of its key in the nearest message (rules 1, 2 and 6)."""
    nearest: dict[_Key, _Group] = {}
    names_before: defaultdict[_Key, set[str]] = defaultdict(set)
    early: list[Result] = []
    for index in sorted(groups.keys() | stored_results.keys()):
        for stored in stored_results.get(index, ()):
            key = _key_of(stored)
            if stored.is_misplaced:
                continue
            group = nearest.get(key)
            if group is not None and _agrees(stored, group):
                (group.placeholders if stored.is_placeholder else group.results).append(stored)
            # The text of a placeholder is true of its own call only.
            elif not stored.is_placeholder and stored.label not in names_before[key]:
                early.append(stored)
        if (own := groups.get(index)) is not None:
            for stored in early:
                group = own.get(_key_of(stored))
                if group is not None and stored.index > group.calling.after:
                    group.early.append(stored)
            early = []
            nearest |= own
            for key, called in own.items():
                names_before[key] |= called.own_names


def _key_of(stored: Result) -> _Key:
    if stored.call_id is not None:
        return stored.call_id
    return (stored.label,) if stored.label else None


def _agrees(stored: Result, group: _Group) -> bool:
    """Whether the tool that a result names is that of its calls in a message."""
    is_own_name = stored.label is not None and stored.label not in group.names
    if is_own_name and stored.after > group.calling.index:
        return False
    return _agree(stored.label, group.own_names, group.names)


def _assign(
    calls: Sequence[PairedCall], results: Iterable[Result], names: AbstractSet[str]
) -> None:
    """Pair results with calls of one message if there are enough of them (rules 2 and 3)."""
    left = [stored for stored in results if stored.call_index is None]
    if not left:
        return
    tools = grouped((paired.call.name, paired) for paired in calls)
    named = grouped((stored.label, stored) for stored in left)
    if len(tools) > 1:
        for label, own in tools.items():
            if len(named[label]) >= len(own):
                _pair_in_order(own, named[label], names)
    calls = _free(calls)
    own_names = {paired.call.name for paired in calls}
    left = [s for s in left if s.call_index is None and _agree(s.label, own_names, names)]
    may_have_run = [paired for paired in calls if is_complete(paired.call)]
    if len(left) >= len(calls):
        _pair_in_order(calls, left, names)
    elif len(left) == len(may_have_run):
        _pair_in_order(may_have_run, left, names)


def _pair_in_order(
    calls: Iterable[PairedCall], results: Iterable[Result], names: AbstractSet[str]
) -> None:
    """Pair each result with the first call that is left and agrees with it."""
    free = [paired for paired in calls if paired.answer is None]
    for stored in results:
        for place, paired in enumerate(free):
            if _agree(stored.label, {paired.call.name}, names):
                free.pop(place).take(stored)
                break
