"""`once=[...]`: a call of a named tool runs once, whoever answers or replays, and how often.

Before the tool runs, the run claims the call in the thread's own record (`evidence.claims`). If
another run was first, the tool is not run: the call has the result that the other one recorded, or
the run ends with a `StartedError`. A tool that asks a human gives its claim back.

The claim is made directly before the tool runs, inside of the application's wrappers, and its end
is written outside of them, so that what is recorded is what the model would have read.

The error has to pass all handlers of tool errors: a model that reads of a failed payment pays
again. It is a `GraphBubbleUp`, as an interrupt is: LangGraph passes it through tool nodes, retries
and error handlers, lets the tasks beside it end, and records no error of the task. Where a wrapper
of the application makes a message of it all the same, that message is dropped.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph import errors as langgraph_errors
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.graphs import sent_call
from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IOGenerator, IORequest, method_request, with_methods
from langgraph_patch._text import read_table
from langgraph_patch.errors import GraphError, StartedError
from langgraph_patch.evidence.claiming import Record, keeps_first_write
from langgraph_patch.evidence.claims import Claim
from langgraph_patch.evidence.window import Reader
from langgraph_patch.history.findings import DanglingCall
from langgraph_patch.history.texts import default_text
from langgraph_patch.state import messages_in

REFUSALS: Mapping[str, str] = read_table(__package__, "refusals.toml")
"""Why a call is not run, in words."""

_CLAIMED: ContextVar[frozenset[Address]] = ContextVar(
    "langgraph_patch_claimed", default=frozenset()
)
"""The records of the calls that run here: a middleware and `with_patching` may name one tool."""


class _Started(StartedError, GraphBubbleUp):  # noqa: N818 - it is shown as what it is
    """The error as it is raised."""


_Started.__name__ = StartedError.__name__  # as a server shows it


@dataclass(frozen=True, slots=True)
class Once:
    """The tools whose calls run once.

    Attributes:
        names: Their names.
        messages_key: The state key of the history that makes the calls.
        is_all: Whether nothing else of the application runs in the task. Default: False.
    """

    names: Sequence[str]
    messages_key: str
    is_all: bool = False

    def call(
        self, call: Mapping[str, Any], state: Any, config: Any, sent: Mapping[str, Any]
    ) -> OnceCall | None:
        """A call that is about to run; None if it is of another tool, or is claimed further out.

        Args:
            call: The call, as its message makes it.
            state: The state that the tool node reads: it has the message that makes the call.
            config: The config of the call.
            sent: The call as it runs: a human may have sent it to another tool.

        Raises:
            GraphError: If it cannot be known whether the call has run before.
        """
        if sent["name"] not in self.names:
            return None
        run = Run(config)
        # A `Send` may carry a copy that has lost its calls: the graph has the messages themselves.
        message = self._made_in(state, call)
        message = message or self._made_in(run.value_after(self.messages_key), call)
        found = OnceCall(run, call, message, self)
        return None if found.record.row in _CLAIMED.get() else found

    def made(self, sent: Mapping[str, Any], state: Any) -> Mapping[str, Any]:
        """A call as its message makes it: a wrapper further out may have sent it to another tool.

        In an agent the newest message of a model makes the calls that run.
        """
        message = next(self._models(state), None)
        calls = message.tool_calls if message else ()
        same = [each for each in calls if each["id"] == sent["id"]]
        return same[0] if len(same) == 1 and same[0]["name"] != sent["name"] else sent

    def run_task(self, state: Any, config: Any, request: IORequest) -> IOGenerator[Any]:
        """Run a task, which may have several calls: one call must not take the answer of another.

        LangGraph counts the `interrupt()`s of a task: a call that is not run again does not take
        its own answer, and the next one would. So an answered task of several calls runs in one run
        at a time, and only if all of its calls run again.

        Args:
            state: The state that the tool node reads.
            config: The config of the task.
            request: Runs the task.

        Raises:
            StartedError: If a call of the task was answered and has ended, failed, or still runs;
                or if another run has begun the task.
        """
        message = next(self._models(state), None) if self.names else None
        run = Run(config)
        made = message.tool_calls if message and (run.answers or run.new_answers) else []
        if message is None or len(made) <= 1:
            return (yield request)
        calls = yield from self._begun_or_named(made, state, config)
        starts = False
        for call in calls:
            starts |= yield from call.check_answer()
        if not starts:  # each asks again, and nothing runs
            return (yield request)
        record = calls[0].record
        task = Record(record.reader, record.thread, message, "", -1)
        claim = Claim(uuid.uuid4().hex, "")
        if (yield from task.begin(claim)).run != claim.run:
            raise calls[0].refused("together")
        try:
            for call in calls:
                yield from call.check_answer()
            return (yield request)
        finally:
            yield from task.end(replace(claim, word="paused"))

    def _begun_or_named(
        self, made: Sequence[Mapping[str, Any]], state: Any, config: Any
    ) -> IOGenerator[list[OnceCall]]:
        """The calls of a task: those of a named tool, and those that were sent to one before."""
        calls = []
        for each in made:
            call = self.call(each, state, config, each)
            if call is None and not self.is_all:
                with suppress(GraphError):  # it is raised if the call is sent to such a tool
                    sent = self.call(each, state, config, {"name": self.names[0]})
                    call = sent if sent and (yield from sent.record.read()) else None
            calls += [call] if call else []
        return calls

    def _made_in(self, state: Any, call: Mapping[str, Any]) -> AIMessage | None:
        """The newest message of a state that makes a call; None without one, or without its id.

        Not by the tool that it names: a gate may have put a call of another tool in its place.
        """
        ids = ((m, [each["id"] for each in m.tool_calls]) for m in self._models(state))
        message = next((m for m, own in ids if call["id"] in own), None)
        return message if message and message.id else None

    def _models(self, state: Any) -> Iterator[AIMessage]:
        """The messages of models, the newest first: it makes the calls that run."""
        state = {self.messages_key: state} if isinstance(state, list) else state
        history: Sequence[BaseMessage] = messages_in(state, self.messages_key) or ()
        return (m for m in reversed(history) if isinstance(m, AIMessage))


class OnceCall:
    """One call of a named tool in one run.

    Args:
        run: The run.
        call: The call.
        message: The message that makes it.
        once: The tools whose calls run once.

    Raises:
        GraphError: If it cannot be known whether the call has run before.

    Attributes:
        record: The record of the call.
    """

    def __init__(
        self, run: Run, call: Mapping[str, Any], message: AIMessage | None, once: Once
    ) -> None:
        self._run, self._call = run, call
        saver, thread = run.saver, run.thread
        if saver is None or thread is None:
            raise self._unknown("stateless" if run.is_on_server else "thread")
        if run.writes_at_exit:
            raise self._unknown("exit")
        is_probed = not keeps_first_write(run.inner_saver)
        if is_probed and not run.is_on_server:
            raise self._unknown("unread")
        if message is None:
            raise self._unknown("message")
        same = [each for each in message.tool_calls if each["id"] == call["id"]]
        reader, place = Reader(saver, once.messages_key), self._place(same)
        self._message = message
        index = run.send_index
        sent = None if index is None else sent_call(run.sends[index])
        is_alone = once.is_all and (len(message.tool_calls) == 1 or sent is not None)
        self._asked = Claim.digest("", run.asked_in(run.loaded_writes)) if is_alone else ""
        call_id = call["id"] or ""
        self.record = Record(reader, thread, message, call_id, place, is_probed=is_probed)
        self._is_asynchronous = False
        self._claim: Claim | None = None
        self._what = ""  # the digest of what was started
        self._result: list[Any] = []  # what the tool returned, in a list of one
        self._error: BaseException | None = None  # what it raised
        self._instead: list[Any] | Exception | None = None  # what the call has without being run

    def _place(self, same: Sequence[Mapping[str, Any]]) -> int:
        """Which of the calls of its message with one id it is."""
        places = [place for place, each in enumerate(same) if each is self._call]
        places = places or [place for place, each in enumerate(same) if self._is_own(each)]
        if len(same) == 1 or len(places) == 1:
            return (places or [0])[0]
        index = self._run.send_index
        nth = sum(self._is_own(sent_call(each)) for each in self._run.sends[: index or 0])
        if index is None or nth >= len(places):
            raise self._unknown("double")
        return places[nth]

    def _is_own(self, other: Mapping[str, Any] | None) -> bool:
        """Whether nothing tells another call from this one."""
        names = ("id", "name", "args")
        return other is not None and all(other[name] == self._call[name] for name in names)

    # --- run it ------------------------------------------------------------------------------

    def around(self, running: IOGenerator[Any]) -> IOGenerator[Any]:
        """Run the call, with all wrappers and error handlers of the application."""
        self._is_asynchronous = yield _IS_ASYNCHRONOUS
        if not (yield from self._run.stored()):  # a run that is killed would make the call anew
            raise self._unknown("version")
        token = _CLAIMED.set(_CLAIMED.get() | {self.record.row})
        try:
            result = yield from running
        except (Exception, asyncio.CancelledError, KeyboardInterrupt) as error:
            if self._instead is None or not isinstance(error, Exception):
                yield from self._end_with(error)
                raise
        finally:
            with suppress(ValueError):  # thrown away with its event loop, it is in another context
                _CLAIMED.reset(token)
        # Whatever a wrapper made of a call that was not run.
        if isinstance(self._instead, Exception):
            yield from self._end_with(self._instead)
            raise self._instead
        if self._instead is not None:
            return self._instead[0]
        yield from self._end("ended", result=result)
        return result

    def check_answer(self) -> IOGenerator[bool]:
        """Refuse the call, if it would not take its own answer, which the next call would take.

        Returns:
            Whether its tool would start, and not only ask again.

        Raises:
            StartedError: If it was answered and has ended, failed, or still runs.
        """
        claims = yield from self.record.read()
        is_over = any(claim.value.get("answered") for claim in claims)
        last = claims[-1] if claims else Claim("", "")
        # A call that failed or still runs is refused before it takes its own answer.
        if is_over or (claims and last.word in (None, "failed")):
            yield from self.record.refuse(last, self._answers)
            if last.number > 1 or last.refused in (None, self._answers):  # else it takes no answer
                raise self.refused("together")
        return not last.questions or last.taken != self._answers

    def start(self, call: Mapping[str, Any], running: IOGenerator[Any]) -> IOGenerator[Any]:
        """Run the tool, if no other run has started it.

        Args:
            call: The call as it reaches the tool: a wrapper may have changed its arguments.
            running: Runs the tool.
        """
        what = Claim.digest(call["name"], call["args"])
        if self._is_asynchronous and not (yield _IS_ASYNCHRONOUS) and self._would_wait():
            self._instead = self._unknown("waits")
        elif not self._what:
            self._what = what
            yield from self._begin()
        elif isinstance(self._error, GraphBubbleUp):  # it asks: a second attempt asks the same
            raise self._error
        elif not self._result or what != self._what:
            self._refuse_again()
        if self._instead is not None:
            raise GraphBubbleUp
        if not self._result:
            try:
                self._result = [(yield from running)]
            except BaseException as error:
                self._error = error
                raise
        return self._result[0]

    def run(self, call: Mapping[str, Any], running: IOGenerator[Any]) -> IOGenerator[Any]:
        """Run the call where nothing else is between it and its tool; the arguments of `start`."""
        return (yield from self.around(self.start(call, running)))

    def wrap(self, request: ToolCallRequest, handler: Callable[..., Any]) -> IOGenerator[Any]:
        """Run the call as a `wrap_tool_call` does: what is inside of it may call the tool again."""
        inner = request.override(tool=self._only_once(request.tool)) if request.tool else request

        def handled() -> IOGenerator[Any]:
            return (yield IORequest(lambda: handler(inner), lambda: handler(inner)))

        return (yield from self.run(request.tool_call, handled()))

    def _only_once(self, tool: BaseTool) -> BaseTool:
        """A copy of a tool that does not run a second time."""
        runs = count()

        def run(*args: Any, **kwargs: Any) -> IOGenerator[Any]:
            if next(runs):
                self._refuse_again()
            return (yield method_request(tool, "invoke", *args, **kwargs))

        copied: BaseTool = with_methods(tool, ("invoke", "ainvoke"), run)
        return copied

    def _would_wait(self) -> bool:
        """Whether the checkpointer would be waited for in the event loop, for ever."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return not isinstance(self.record.reader.saver, InMemorySaver)

    def _begin(self) -> IOGenerator[None]:
        """Make the claim, or decide what the call has instead."""
        claim = Claim(
            uuid.uuid4().hex,
            what=Claim.digest(self._call["name"], self._call["args"]),
            got=self._what,
            answers=self._answers,
            place=json.dumps(self._run.place),
            asked=self._asked,
            tool=self._call["name"],
        )
        try:
            last = yield from self.record.begin(claim, self._run)
            if last.run == claim.run:
                self._claim = last
            else:
                self._instead = yield from self._instead_of(last)
        except Exception as error:  # noqa: BLE001 - of any checkpointer: it is raised around the call
            self._instead = error

    @property
    def _answers(self) -> str:
        """The digest of each answer that this run has."""
        return Claim.digests([*self._run.answers, *self._run.new_answers])

    def _instead_of(self, last: Claim) -> IOGenerator[list[Any] | Exception]:
        """What the call has, because another run made a claim."""
        result = last.result(str(self._call["id"]))
        if last.questions:
            return GraphInterrupt(last.questions)  # it waits: the tool is not run to ask again
        if last.word == "overwritten":
            return self._unknown("overwritten")
        if last.word in ("lost", "untold"):
            why: str = last.word
        elif last.got != self._what:
            why = "other"
        elif last.word == "failed":
            return (yield from self._failed(last))
        elif last.word is None:
            why = "open"
        elif not self._answers.startswith(last.taken):  # more answers are of no use
            why = "answers"
        elif result is not None:
            return [result]
        else:
            why = "empty"
        return self.refused(why)

    def _failed(self, last: Claim) -> IOGenerator[list[Any] | Exception]:
        """What a call has that failed: an error, and after that, if an answer comes, a message.

        The application may pass each text of its user as an answer, so that none is a message.
        """
        is_cancelled = last.value.get("cancelled") is True
        error = str(last.value.get("error"))
        if self._answers and last.refused not in (None, self._answers):
            name, call_id, args = (self._call[key] for key in ("name", "id", "args"))
            cause: Literal["cancelled", "failed"] = "cancelled" if is_cancelled else "failed"
            found = DanglingCall(call_id, name, args, cause, error, self._message, 0)
            text = default_text(found)
            return [ToolMessage(text, tool_call_id=call_id, name=name, status="error")]
        yield from self.record.refuse(last, self._answers)
        return self.refused("cancelled" if is_cancelled else "failed", error)

    # --- the errors --------------------------------------------------------------------------

    def _refuse_again(self) -> None:
        """Refuse to start the tool a second time in this run: a wrapper does."""
        self._instead = self.refused("again")
        self._instead.__cause__ = self._error
        raise GraphBubbleUp

    def refused(self, why: str, error: str = "") -> StartedError:
        """The error for a call that is not run again, with a reason of `REFUSALS`."""
        name, call_id = self._call["name"], str(self._call["id"])
        thread_id = self.record.row.thread_id
        return _Started(
            f"Tool call {name!r} {call_id!r} of thread {thread_id!r} "
            f"{REFUSALS[why].format(error)}. It is not run again. "
            f"If it asks a human, answer again; otherwise send a message: the model then reads "
            f"what is recorded of the call, or what your service knows (reconcile).",
            name,
            call_id,
            thread_id,
        )

    def _unknown(self, why: str) -> GraphError:
        reason = REFUSALS[why].format(type(self._run.inner_saver).__name__)
        return GraphError(
            f"once: tool call {self._call['name']!r} {self._call['id']!r} is not run, because it "
            f"cannot be known whether it has run before: {reason}. {self._run.lacks}".rstrip()
        )

    # --- how it ended ------------------------------------------------------------------------

    def _end_with(self, error: BaseException) -> IOGenerator[None]:
        """Record how the call ended, if this run has its claim."""
        is_pause = isinstance(error, GraphBubbleUp) and not isinstance(error, StartedError)
        if isinstance(error, ParentCommand):
            command = error.args[0]
            # It names this graph by the id of a task, which is another one in a replay.
            graph = command.graph if command.graph == Command.PARENT else None
            yield from self._end("ended", result=replace(command, graph=graph))
        elif self._result:  # a wrapper raised or paused behind the tool
            yield from self._end("ended")
        elif is_pause or _is_invalid_answer(error):
            asked = error.args[0] if isinstance(error, GraphInterrupt) and error.args else ()
            # What waits for a question of another call is no answer of this one.
            taken = {"answers": Claim.digests(self._run.answers)}
            yield from self._end("paused", **({"questions": [*asked], **taken} if asked else {}))
        else:
            first = self._error or error
            cancelled = not isinstance(first, Exception)
            yield from self._end("failed", error=repr(first), cancelled=cancelled)

    def _end(self, word: Literal["paused", "ended", "failed"], **value: Any) -> IOGenerator[None]:
        if self._claim is not None:
            if word == "ended":
                # What a graph in the tool has asked is no question of the task.
                asked = self._claim.answers if self._claim.number > 1 else ""
                taken = Claim.digests(self._run.answers) or asked
                value |= {"answered": bool(self._run.answers), "answers": taken}
            claim = replace(self._claim, word=word, value=value)
            yield from self.record.end(claim)


async def _asynchronously() -> bool:
    return True


_IS_ASYNCHRONOUS = IORequest(lambda: False, _asynchronously)
"""Whether what asks runs asynchronously."""


def _is_invalid_answer(error: BaseException) -> bool:
    """Whether `interrupt(response_schema=...)` refused an answer: it can be answered again."""
    check = getattr(langgraph_errors, "is_invalid_resume", None)  # older versions lack it
    return check is not None and bool(check(error))
