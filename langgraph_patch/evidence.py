"""What a checkpointer recorded of calls that have no result.

When a run stops in the middle of a step, LangGraph keeps what the step's finished tasks wrote
as *pending writes* of the checkpoint that was current, and forgets them when the next message
comes in. They stay in the database, and so do older states. Here they are read back.

What counts, and nothing else does:

- **A result** is a real `ToolMessage` with the call's id, written or standing where the call
  was the last one with that id: in a write to the history, in what a task returned, in the
  update of a `Command`, in an older state. Placeholders, ours or others', never count.
- **An interrupt or an error** is that of a task that ran this one call: one `Send` per call
  (`create_agent`, `create_react_agent` v2), or `record_tool_calls`. A task that ran a whole
  message (a plain `ToolNode`) tells something of a call only if that is the only one without
  a result, no other node ran beside it, and the message was made in the step before.
- A cancelled task may or may not have run, and so may one that was given an answer without
  an interrupt id after it had asked: nothing is said of them, and nothing means `unknown`.
- Of a result, an error and an interrupt of one call, the first in this order is reported.

Only the checkpoints from which the current one came are read, and the namespaces of subgraphs
into which the task that made the message leads. Beyond the newest 58 checkpoints, the one in
which a message appeared is found by bisection. Where that is impossible (`DeltaChannel`
state, gaps in the steps) the newest 508 are read and what lies beyond them is `unknown`.

What no checkpoint tells: that a waiting call was answered *by interrupt id* and the process
was then killed (it reads as waiting), or that a failed call was started again and then killed
(it reads as failed). With durability "exit" a killed run leaves nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.errors import GraphBubbleUp
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Overwrite

from langgraph_patch.calls import read_calls
from langgraph_patch.changes import Evidence, Finding
from langgraph_patch.errors import EvidenceError
from langgraph_patch.placeholders import is_foreign_placeholder, is_placeholder
from langgraph_patch.recorded_call import MARK

# Names under which LangGraph stores what happened. No public constant holds them, but they are
# in every database, so they cannot change without breaking old threads. An unknown name is
# only ever not found: the answer is then `unknown`.
_RETURN = "__return__"  # what a functional task returned
_INTERRUPT = "__interrupt__"  # the task waits
_RESUME = "__resume__"  # an answer to it
_ERROR = "__error__"  # the task raised
_SENDS = "__pregel_tasks"  # the Sends of the step, in order
_TRIGGERS = ("branch:to:", "join:")  # channels that name the nodes of the step
_PUSH = "__pregel_push"  # first part of the path of a task made by a Send
_NO_TASK = "00000000-0000-0000-0000-000000000000"  # who wrote what no task wrote

_NEWEST = 8  # read first: damage is nearly always found there
_PAGE = 50
_PAGES = 10  # how many pages are read if bisection is impossible
_NEAR = 8  # how near bisection comes before the rest is read as one page
_ASKS = 64  # for all calls together: nobody waits for ever on a thread that is broken everywhere

_T = TypeVar("_T")


def find_evidence(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    calls: Sequence[tuple[AIMessage, str]],
    *,
    messages_key: str = "messages",
) -> Evidence:
    """Find what the checkpoints of a thread recorded of calls that have no result.

    Args:
        saver: The checkpointer. It is only read.
        config: Names the thread (`thread_id`), the namespace of the graph whose history is
            damaged (`checkpoint_ns`, default `""`), and, if it is not the newest, the current
            checkpoint (`checkpoint_id`).
        calls: Each call as the message that made it and the call's id, both as stored.
        messages_key: The state key of the history.

    Returns:
        The recorded result, or the cause why there is none, under the ids of message and
        call. A call of which nothing certain is known is absent.

    Raises:
        EvidenceError: If the checkpointer raises.

    Example:
        >>> from langchain_core.messages import AIMessage, ToolMessage
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph.types import Send, interrupt
        >>> def send_email(call):
        ...     return {"messages": [ToolMessage("sent to bob", tool_call_id="c1")]}
        >>> def wire_money(call):
        ...     interrupt("1000 EUR?")
        >>> ai = AIMessage("", id="m1", tool_calls=[
        ...     {"name": "send_email", "args": {}, "id": "c1"},
        ...     {"name": "wire_money", "args": {}, "id": "c2"}])
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [ai]})
        >>> _ = builder.add_node(send_email).add_node(wire_money).set_entry_point("model")
        >>> _ = builder.add_conditional_edges(
        ...     "model", lambda state: [Send(c["name"], [c]) for c in ai.tool_calls])
        >>> saver, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
        >>> _ = builder.compile(checkpointer=saver).invoke({"messages": []}, config)
        >>> found = find_evidence(saver, config, [(ai, "c1"), (ai, "c2")])
        >>> found["m1", "c1"].content, found["m1", "c2"].cause
        ('sent to bob', 'awaiting_input')
    """
    search = _Search(messages_key).run(config, _turns_of(calls))
    try:
        ask = next(search)
        while True:
            try:
                found = list(saver.list(**ask.arguments))
            except Exception as error:
                raise ask.error(error) from error
            ask = search.send(found)
    except StopIteration as done:
        return _as_evidence(done.value)


async def afind_evidence(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    calls: Sequence[tuple[AIMessage, str]],
    *,
    messages_key: str = "messages",
) -> Evidence:
    """As `find_evidence`, for a checkpointer that is read asynchronously."""
    search = _Search(messages_key).run(config, _turns_of(calls))
    try:
        ask = next(search)
        while True:
            try:
                found = [saved async for saved in saver.alist(**ask.arguments)]
            except Exception as error:
                raise ask.error(error) from error
            ask = search.send(found)
    except StopIteration as done:
        return _as_evidence(done.value)


# --- what is sought ----------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Turn:
    """The calls of one message, and what is known of them so far.

    Checkpoints are shown to it from newer to older, until the one that is older than the
    message.
    """

    message: AIMessage
    ids: Sequence[str]
    known: dict[str, ToolMessage | Finding] = field(default_factory=dict)
    first: CheckpointTuple | None = None  # the oldest one seen that has the message
    maker: tuple[CheckpointTuple, str] | None = None  # where and by which task it was made
    closed: bool = False

    @property
    def open_ids(self) -> list[str]:
        return [call_id for call_id in self.ids if call_id not in self.known]

    def see(self, saved: CheckpointTuple, key: str) -> None:
        """Read one checkpoint that is older than those seen before."""
        state = _history_in(saved, key)
        if state is not None and _place(state, self.message) is None:
            self._close(saved, _maker_in(saved, self.message, key, anew=False), key)
            return
        if state is None and (maker := _maker_in(saved, self.message, key, anew=True)):
            self._close(saved, maker, key)
            return
        self.first = saved
        for call_id in self.ids:
            if state is not None and not _owns(state, self.message, call_id):
                continue
            if state is None and _makes_another(saved, self.message, call_id, key):
                self.known.pop(call_id, None)  # what was seen so far is of that later message
            self._learn(call_id, _answer_in(state or (), self.message, call_id))
            for _, written in _written(saved, key):
                self._learn(call_id, _answer_in(written, self.message, call_id))
            self._learn(call_id, _finding_in(saved, call_id))
        if state is not None and all(_is_result(self.known.get(i)) for i in self.ids):
            self.closed = True

    def _close(self, saved: CheckpointTuple, task: str | None, key: str) -> None:
        self.closed = True
        if task is None:
            return
        self.maker = (saved, task)
        for writer, written in _written(saved, key):
            for call_id in self.ids if writer == task else ():
                if _place(written, self.message) is not None:
                    self._learn(call_id, _answer_in(written, self.message, call_id))

    def _learn(self, call_id: str, news: ToolMessage | Finding | None) -> None:
        """Keep the newest, but a result before an error before an interrupt."""
        if _weight(news) > _weight(self.known.get(call_id)) and news is not None:
            self.known[call_id] = news


def _weight(known: ToolMessage | Finding | None) -> int:
    if known is None:
        return 0
    if isinstance(known, ToolMessage):
        return 3
    return 2 if known.cause == "failed" else 1


def _is_result(known: object) -> bool:
    return isinstance(known, ToolMessage)


def _turns_of(calls: Sequence[tuple[AIMessage, str]]) -> list[_Turn]:
    """Group calls by message; without those whose id does not tell them apart."""
    turns: dict[int, _Turn] = {}
    keys = Counter((message.id, call_id) for message, call_id in calls)
    for message, call_id in calls:
        twice = sum(call.id == call_id for call in read_calls(message)) > 1
        if call_id and not twice and keys[message.id, call_id] == 1:
            turn = turns.setdefault(id(message), _Turn(message, []))
            turn.ids = [*turn.ids, call_id]
    return list(turns.values())


def _as_evidence(turns: Sequence[_Turn]) -> Evidence:
    return {(t.message.id, call_id): t.known[call_id] for t in turns for call_id in t.known}


# --- where to look -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ask:
    """One question to the checkpointer: which checkpoints to list, newest first."""

    config: RunnableConfig
    limit: int
    filter: dict[str, Any] | None = None
    before: RunnableConfig | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "config": self.config,
            "filter": self.filter,
            "before": self.before,
            "limit": self.limit,
        }

    def error(self, error: Exception) -> EvidenceError:
        place = self.config.get("configurable", {})
        return EvidenceError(
            f"Thread {place.get('thread_id')!r}: the checkpointer raised {error!r} when it was "
            f"asked to list {self.limit} checkpoints of namespace "
            f"{place.get('checkpoint_ns', 'any')!r} (filter {self.filter!r}, before "
            f"{_id_of(self.before)!r}). Nothing was repaired: see to the checkpointer, or set "
            f"recover=False to repair without it."
        )


_Steps: TypeAlias = Generator[_Ask, list[CheckpointTuple], _T]
"""A search: yields questions, is sent the answers. Both drivers run the same one."""


@dataclass(slots=True)
class _Search:
    key: str
    asks_left: int = _ASKS

    def run(self, config: RunnableConfig, turns: list[_Turn]) -> _Steps[list[_Turn]]:
        """Find what is known of all calls of `turns`, in `config`'s namespace and below."""
        if not turns:
            return turns
        trail = _Trail(_config_of(config, checkpoint_ns=""), turns, self.key)
        yield from self._start(trail, _id_of(config))
        yield from self._page(trail, _PAGE)
        if trail.open_turns and not (yield from self._bisect(trail)):
            for _ in range(_PAGES - 1):
                yield from self._page(trail, _PAGE)
        for turn in turns:
            if turn.open_ids and turn.maker:
                yield from self._descend(trail.config, turn, *turn.maker)
        return turns

    def _ask(self, ask: _Ask) -> _Steps[list[CheckpointTuple]]:
        if not self.asks_left:
            return []
        self.asks_left -= 1
        return (yield ask)

    def _start(self, trail: _Trail, current: str | None) -> _Steps[None]:
        page = yield from self._ask(_Ask(trail.config, _NEWEST))
        # A checkpoint that is newer than all was not written yet: durability "async" or "exit".
        if current and page and _id(page[-1]) > current:
            place = {**trail.config["configurable"], "checkpoint_id": current}
            page = yield from self._ask(_Ask(RunnableConfig(configurable=place), 1))
        trail.follow([saved for saved in page if current is None or _id(saved) <= current])

    def _page(self, trail: _Trail, limit: int) -> _Steps[None]:
        if trail.open_turns and trail.oldest and trail.goes_on:
            ask = _Ask(trail.config, limit, before=trail.oldest.config)
            trail.follow((yield from self._ask(ask)))

    def _bisect(self, trail: _Trail) -> _Steps[bool]:
        """Jump to where each open message appeared; False if it cannot be told."""
        bottom = trail.oldest
        if bottom is None or _history_in(bottom, self.key) is None:
            return False
        probes: dict[int, list[CheckpointTuple]] = {}
        for turn in trail.open_turns:
            low, high = -2, _step(bottom)
            while high - low > _NEAR:
                middle = (low + high) // 2
                if middle not in probes:
                    ask = _Ask(trail.config, 1, {"step": middle}, bottom.config)
                    probes[middle] = yield from self._ask(ask)
                state = _history_in(probes[middle][0], self.key) if probes[middle] else None
                if state is None:
                    return False
                found = _place(state, turn.message) is not None
                low, high = (low, middle) if found else (middle, high)
            yield from self._window(trail, turn, high + _NEAR, bottom)
        return True

    def _window(
        self, trail: _Trail, turn: _Turn, top: int, bottom: CheckpointTuple
    ) -> _Steps[None]:
        """Read the checkpoints below step `top`: those in which the message was new."""
        before = bottom
        if top < _step(bottom):
            ask = _Ask(trail.config, 1, {"step": top}, bottom.config)
            found = yield from self._ask(ask)
            before = found[0] if found else bottom
        ask = _Ask(trail.config, 3 * _NEAR, before=before.config)
        window = yield from self._ask(ask)
        _Trail(trail.config, [turn], self.key).follow(window)

    def _descend(
        self, config: RunnableConfig, turn: _Turn, saved: CheckpointTuple, task: str
    ) -> _Steps[None]:
        """Follow the task that made the message into its subgraph, if it was one.

        A handoff takes the message out of the subgraph and leaves its siblings' results there.
        """
        here = config["configurable"]["checkpoint_ns"]
        parents = {**saved.metadata.get("parents", {}), here: _id(saved)}
        place = {k: v for k, v in config["configurable"].items() if k != "checkpoint_ns"}
        ask = _Ask(RunnableConfig(configurable=place), _PAGE, {"parents": parents, "step": -1})
        begun = yield from self._ask(ask)
        spaces = {str(b.config["configurable"]["checkpoint_ns"]) for b in begun}
        inner = sorted(space for space in spaces if space.endswith(f":{task}"))
        for space in inner:
            below = _Turn(turn.message, turn.open_ids)
            yield from self.run(_config_of(config, checkpoint_ns=space), [below])
            turn.known.update(below.known)
        if not inner:
            turn.known.update(_finding_of_only_call(turn, saved, task, self.key))


@dataclass(slots=True)
class _Trail:
    """The way back from one checkpoint to those it came from. Forks lie beside it."""

    config: RunnableConfig
    turns: Sequence[_Turn]
    key: str
    oldest: CheckpointTuple | None = None
    goes_on: bool = True

    @property
    def open_turns(self) -> list[_Turn]:
        return [turn for turn in self.turns if not turn.closed]

    def follow(self, page: Sequence[CheckpointTuple]) -> None:
        """Show to the open turns what of the next older checkpoints lies on the way."""
        for saved in page:
            if self.oldest is None or _id(saved) == _id_of(self.oldest.parent_config):
                self.oldest = saved
                for turn in self.open_turns:
                    turn.see(saved, self.key)
        parent = _id_of(self.oldest.parent_config) if self.oldest else None
        self.goes_on = bool(page) and parent is not None and parent < _id(page[-1])


def _config_of(config: RunnableConfig, **place: str) -> RunnableConfig:
    configurable = {**place, **config.get("configurable", {}), **place}
    configurable.pop("checkpoint_id", None)
    return RunnableConfig(configurable=configurable)


def _id(saved: CheckpointTuple) -> str:
    return saved.checkpoint["id"]


def _id_of(config: RunnableConfig | None) -> str | None:
    found = (config or {}).get("configurable", {}).get("checkpoint_id")
    return str(found) if found else None


def _step(saved: CheckpointTuple) -> int:
    return saved.metadata.get("step", -1)


# --- one checkpoint ----------------------------------------------------------------------


def _history_in(saved: CheckpointTuple, key: str) -> list[BaseMessage] | None:
    """The history as it was, or None where the checkpoint does not hold it."""
    value = saved.checkpoint["channel_values"].get(key)
    value = getattr(value, "value", value)  # now and then, DeltaChannel state is stored whole
    return value if isinstance(value, list) else None


def _written(saved: CheckpointTuple, key: str) -> Iterator[tuple[str, list[BaseMessage]]]:
    """The task and the messages of each write to the history and of each returned value."""
    for task, channel, value in saved.pending_writes or ():
        if channel in (key, _RETURN):
            yield task, list(_messages_in(value, key))


def _messages_in(value: object, key: str) -> Iterator[BaseMessage]:
    if isinstance(value, BaseMessage):
        yield value
    elif isinstance(value, list | tuple):
        for part in value[1:] if value[:1] == (key,) else value:
            yield from _messages_in(part, key)
    elif isinstance(value, Overwrite):
        yield from _messages_in(value.value, key)
    elif isinstance(value, Command):
        yield from _messages_in(value.update, key)
    elif isinstance(value, dict):
        recorded = value.get("recorded")
        held = recorded.get("result") if isinstance(recorded, dict) else value.get(key)
        yield from _messages_in(held, key)


def _is_same(stored: BaseMessage, message: AIMessage) -> bool:
    if stored.id is not None and message.id is not None:
        return stored.id == message.id
    # A write may be older than the id that the reducer gave to its message.
    return stored.model_copy(update={"id": None}) == message.model_copy(update={"id": None})


def _place(history: Sequence[BaseMessage], message: AIMessage) -> int | None:
    places = [i for i, stored in enumerate(history) if _is_same(stored, message)]
    return places[-1] if places else None


def _last_maker(messages: Sequence[BaseMessage], call_id: str) -> int | None:
    """Where the last message stands that makes a call with this id."""
    for place in range(len(messages) - 1, -1, -1):
        stored = messages[place]
        if isinstance(stored, AIMessage) and any(c.id == call_id for c in read_calls(stored)):
            return place
    return None


def _owns(history: Sequence[BaseMessage], message: AIMessage, call_id: str) -> bool:
    place = _last_maker(history, call_id)
    return place is not None and _is_same(history[place], message)


def _answer_in(
    messages: Sequence[BaseMessage], message: AIMessage, call_id: str
) -> ToolMessage | None:
    """The real result of the call in a history, or in a write that may be a whole history."""
    place = _last_maker(messages, call_id)
    if place is not None and not _is_same(messages[place], message):
        return None
    for stored in messages[0 if place is None else place + 1 :]:
        if isinstance(stored, ToolMessage) and stored.tool_call_id == call_id and _is_real(stored):
            return stored
    return None


def _is_real(result: ToolMessage) -> bool:
    return not is_placeholder(result) and not is_foreign_placeholder(result)


def _maker_in(saved: CheckpointTuple, message: AIMessage, key: str, *, anew: bool) -> str | None:
    """The task that wrote `message`; with `anew`, not one that only wrote it again.

    A repair removes messages and adds them again, or overwrites all of them.
    """
    written = list(_written(saved, key))
    again = {task for task, held in written if any(isinstance(m, RemoveMessage) for m in held)}
    again |= {task for task, _, value in saved.pending_writes or () if isinstance(value, Overwrite)}
    for task, held in written:
        if _place(held, message) is not None and not (anew and task in again):
            return task
    return None


def _makes_another(saved: CheckpointTuple, message: AIMessage, call_id: str, key: str) -> bool:
    for _, held in _written(saved, key):
        place = _last_maker(held, call_id)
        if place is not None and not _is_same(held[place], message):
            return True
    return False


# --- what a task says of its call --------------------------------------------------------


def _finding_in(saved: CheckpointTuple, call_id: str) -> Finding | None:
    """What the tasks say that ran this one call; an error before an interrupt."""
    tasks = [task for named, task in _marks_in(saved) if named == call_id]
    sent = [i for i, send in enumerate(_sends_in(saved)) if _sent_call(send) == call_id]
    if len(sent) == 1:
        tasks += [task for task, place in _tasks_of_sends(saved).items() if place == sent[0]]
    findings = [finding for task in tasks if (finding := _finding_of(saved, task))]
    return max(findings, key=_weight, default=None)


def _finding_of(saved: CheckpointTuple, task: str) -> Finding | None:
    """How a task ended that left no result; None if that says nothing of its call."""
    written = {channel: value for by, channel, value in saved.pending_writes or () if by == task}
    if _ERROR in written:
        error = written[_ERROR]
        text = error if isinstance(error, str) else repr(error)  # stored as its repr
        cancelled = isinstance(error, asyncio.CancelledError) or text.startswith("CancelledError(")
        told_nothing = cancelled or isinstance(error, GraphBubbleUp)
        return None if told_nothing else Finding("failed", text)
    answered = any(c == _RESUME and by == _NO_TASK for by, c, _ in saved.pending_writes or ())
    waits = _INTERRUPT in written and written.keys() <= {_INTERRUPT, _RESUME} and not answered
    return Finding("awaiting_input") if waits else None


def _finding_of_only_call(
    turn: _Turn, made: CheckpointTuple, maker: str, key: str
) -> Mapping[str, Finding]:
    """What a task of several calls says, if it can only mean one of them."""
    step, pending = turn.first, turn.open_ids
    if step is None or _id_of(step.parent_config) != _id(made) or len(pending) != 1:
        return {}
    values, writes = step.checkpoint["channel_values"], step.pending_writes or ()
    nodes = [channel for channel in values if channel.startswith(_TRIGGERS)]
    ended = {task for task, channel, _ in writes if channel in (_INTERRUPT, _ERROR)}
    recorded = any(channel in (MARK, _RETURN) for _, channel, _ in writes)
    # A task that brought results along with the message has run its tools already.
    ran = any(
        isinstance(stored, ToolMessage)
        for task, held in _written(made, key)
        for stored in held[(_place(held, turn.message) or 0) :]
        if task == maker
    )
    if len(nodes) != 1 or len(ended) != 1 or _sends_in(step) or recorded or ran:
        return {}
    finding = _finding_of(step, ended.pop())
    return {pending[0]: finding} if finding else {}


def _marks_in(saved: CheckpointTuple) -> Iterator[tuple[str, str]]:
    """The call and the task of each call that `record_tool_calls` ran to no result."""
    for _, channel, value in saved.pending_writes or ():
        if channel == MARK and isinstance(value, dict):
            mark = value.get("recorded", {})
            yield mark.get("call"), mark.get("task")


def _sends_in(saved: CheckpointTuple) -> list[Any]:
    return saved.checkpoint["channel_values"].get(_SENDS) or []


def _sent_call(send: Any) -> str | None:
    """The id of the one call that a `Send` carries, in either form that LangGraph has."""
    arg = getattr(send, "arg", None)
    call = arg.get("tool_call") if isinstance(arg, dict) else arg
    if isinstance(call, list) and len(call) == 1:
        call = call[0]
    return call.get("id") if isinstance(call, dict) else None


class _OneCheckpoint(BaseCheckpointSaver[Any]):
    """A checkpointer that holds one checkpoint."""

    def __init__(self, saved: CheckpointTuple) -> None:
        super().__init__()
        self.saved = saved

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple:  # noqa: ARG002
        return self.saved


def _tasks_of_sends(saved: CheckpointTuple) -> dict[str, int]:
    """The id of each task that a `Send` made -> the place of the `Send`.

    How LangGraph makes an id is its own affair, so it is asked: a graph that has the same nodes
    makes the same tasks of the same checkpoint. A mistake finds no writes and says nothing.
    """
    nodes = {send.node for send in _sends_in(saved)}
    builder: StateGraph[Any] = StateGraph(dict)
    for node in nodes:
        builder.add_node(node, lambda _: None)
        builder.add_edge(START, node)
    # A copy without writes: reading must change neither the checkpoint nor the log.
    bare = saved._replace(checkpoint=saved.checkpoint.copy(), pending_writes=[])
    graph = builder.compile(checkpointer=_OneCheckpoint(bare))
    tasks = graph.get_state(RunnableConfig(configurable={"thread_id": ""})).tasks
    return {t.id: t.path[1] for t in tasks if t.path[0] == _PUSH and isinstance(t.path[1], int)}
