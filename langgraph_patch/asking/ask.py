"""Ask a model; ask again if its provider refuses the history, or if its message is unusable.

Three places call a model: the node wrapper, the middleware and `patch_model`. Each makes a
`Request`, and `answered` sends it: one loop for all three. What a provider refused is repaired and
sent again; `attempts` says in which forms.

May a request be sent again? Only where that does what a retry of the model would do:

| | it is sent again only if |
|---|---|
| 1 | what failed is the refusal itself |
| 2 | nobody nearer to the model has asked |
| 3 | nothing else was begun |
| 4 | it is another request: a form of `attempts` |

1. The error is the object that a model run below raised, or one that only carries it (a group, a
   `RetryError`: `refusal.carried_by`). An error that the application made is the application's: it
   is raised, with a note, and nothing is run again.
2. `patch_model` comes first: it repeats one request, and nothing of a node. Then the middleware,
   last the node.
3. No tool, graph or `@task`, no answered `interrupt()`, nothing that has not ended
   (`TruncationGuard.began_more`).
4. A form that integrations send as the one before is none. An attempt of a retry around a request
   whose forms were all refused sends it once. A retry inside of it sends each form in each attempt.
5. What the refused run of a node wrote is dropped, as LangGraph does before it runs a node again.
   What the answered one writes beside the repair stays (`writing`).
6. The error that is raised stays the application's own. A note speaks of this run only (`refusal`).
   What the application raises when its code runs again is no reason to raise anything else than the
   bare node: the refusal, with a note; behind an unusable message, nothing.

`may_be_sent_again` has the points 1 to 3, `attempts` the others. An unusable message is asked for
again under the points 2 and 3: `TruncationGuard.asks_again`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.errors import GraphBubbleUp

from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.asking.attempts import Attempts
from langgraph_patch.asking.guard import TruncationGuard, in_charge
from langgraph_patch.asking.refusal import carried_by, is_refusal, text_of
from langgraph_patch.errors import PatchError, logger, note, without_notes


def ask(
    attempts: Attempts, first: tuple[Any, TruncationGuard | None] | None = None
) -> IOGenerator[Any]:
    """The output of a request, which is made once more if the message of the model is unusable.

    The second request has the message and a placeholder for each of its calls, as if its tools had
    answered; a message without any call is left out. `TruncationGuard.asks_again` has the
    conditions.

    Args:
        attempts: Those of the request; afterwards, what can be stored of a refused history.
        first: The output of the first request and its guard, if it was made. Default: it is made.
    """
    output, guard = first or (yield from answered(attempts))
    if guard is None:
        return output
    output, guard = yield from _with_retried(attempts, output, guard)
    sent = attempts.request
    output = sent.corrected(output, guard)
    message = sent.message(output) if guard.unfinished else None
    if guard.asks_again(message):
        closed = sent.closed(output, message) if message.invalid_tool_calls else {}
        again = Attempts(sent.with_histories(closed))
        try:
            second_output, second = yield from answered(again)
        except Exception as error:
            if again.own_error is not error:
                raise
            logger.warning(_NOT_AGAIN, sent.run.thread_id, exc_info=error)
            return output
        output, guard = second_output, second or guard
        guard.finish()
        output = again.request.corrected(output, guard)
        guard.asks_again(again.request.message(output), asked=True)
        output = sent.with_turns(output, {key: _last_turn(each) for key, each in closed.items()})
    if (around := in_charge()) is not None:
        around.follow(guard)
    return output


_NOT_AGAIN = (
    "the turn of thread %r may end here: its message has no complete tool call and no answer, and "
    "when the model was asked again, the application raised an error"
)


def answered(attempts: Attempts) -> IOGenerator[tuple[Any, TruncationGuard | None]]:
    """The output of a request that was not refused, and its guard: the loop of all three places."""
    while True:
        guard, sent = attempts.request.guard(), attempts.request.send()
        if guard is not None:
            guard.has_closed = bool(attempts.closed_in)
        try:
            output = yield sent if guard is None else guard.around(sent)
        except Exception as error:  # noqa: BLE001 - raised below, if it stays
            failed = yield from _next_form(attempts, error, guard)
        else:
            attempts.answers = guard.answers if guard is not None else ()
            if (failed := attempts.misled(guard, output)) is None:
                attempts.report()
                return output, guard
        if failed is not None:
            raise failed


def _next_form(
    attempts: Attempts, error: BaseException, guard: TruncationGuard | None
) -> IOGenerator[BaseException | None]:
    """Choose what is sent after an error; return the error to raise if nothing is.

    An error that is no refusal is returned as it is.

    Args:
        attempts: Those of the request.
        error: What the request raised.
        guard: The guard of what was sent; None if it had none.
    """
    failed: BaseException | None = error
    carried = carried_by(error)
    is_own = guard is None or _are_among(carried, guard.own_errors)
    if is_own:
        for each in (error, *carried):
            without_notes(each)
    if is_own and may_be_sent_again(error, carried, guard):
        failed = yield from attempts.after(error, guard)
    elif guard is not None and not isinstance(error, PatchError):
        is_of_application = not _are_among(carried, guard.errors)
        if is_of_application:
            failed = attempts.misled(guard, error=error)
        is_failure = failed is error and not isinstance(error, GraphBubbleUp)
        if is_failure and not guard.drops:
            _note_own_error(error, guard, attempts.first.run, is_of_application=is_of_application)
    if failed is not None and (around := in_charge()) is not None:
        around.passed_on += carried if failed is error else carried_by(failed)
    return failed


def _last_turn(history: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The last message of a model, and what follows it."""
    place = max(i for i, message in enumerate(history) if isinstance(message, AIMessage))
    return list(history[place:])


# --- a refusal that is no error any more -----------------------------------------------------


def _with_retried(
    attempts: Attempts, output: Any, guard: TruncationGuard
) -> IOGenerator[tuple[Any, TruncationGuard]]:
    """An output and its guard; if LangChain made it of a refusal, those of the next forms.

    Any other refusal that the application caught is logged: nobody else would see it.
    """
    guard.finish()
    refusal = None
    if guard.errors and attempts.request.returns_all:
        refusal = _refusal_in(attempts.request.message(output), guard)
    if refusal is not None and (yield from _next_form(attempts, refusal, guard)) is None:
        try:
            repaired, second = yield from answered(attempts)
        except Exception as error:
            if error is not refusal:
                raise
        else:
            return repaired, second or guard
    elif _has_refusal(guard.own_errors, guard):
        run = attempts.request.run
        if guard.answered_last:
            logger.info(_ANSWERED, run.node, run.thread_id)
        else:
            logger.warning(_CAUGHT, run.node, run.thread_id)
    return output, guard


_ANSWERED = (
    "a model of the node %r refused the history of thread %r, and another attempt or another model "
    "answered: the history is not repaired"
)
_CAUGHT = (
    "the provider of a model of the node %r refused the history of thread %r, and the node went on "
    "without an answer: the history is not repaired, and each next turn may be refused. Raise the "
    "refusal, or call the model through patch_model"
)


def _refusal_in(message: BaseMessage | None, guard: TruncationGuard) -> BaseException | None:
    """The refusal that LangChain's `ModelRetryMiddleware` has made this message of."""
    last = guard.errors[-1]
    if guard.answered or not isinstance(message, AIMessage) or message.tool_calls:
        return None
    content, end = message.content, f" with {type(last).__name__}: {text_of(last)}"
    is_made = isinstance(content, str) and content.startswith("Model call failed after ")
    return last if is_made and str(content).endswith(end) else None


# --- whether it may be sent again ----------------------------------------------------------------


def may_be_sent_again(
    error: BaseException, carried: Sequence[BaseException], guard: TruncationGuard | None
) -> bool:
    """Whether a request may be sent again after an error; the points 1 to 3 of the table.

    With fallbacks the first error is raised, and the refusal may be one that came later.

    Args:
        error: What left the node, the middleware or the model.
        carried: The errors that it carries; nobody nearer to the model has looked at one of them.
        guard: The guard of what was sent. None if it had none: no code of the application ran.
    """
    if guard is None:
        return is_refusal(error)
    places = (i for i, own in enumerate(guard.errors) if any(own is each for each in carried))
    later = guard.errors[min(places, default=len(guard.errors)) :]
    return _has_refusal(later, guard) and guard.only_failed


def _has_refusal(errors: Iterable[BaseException], guard: TruncationGuard) -> bool:
    return any(is_refusal(error, guard.errors) for error in errors)


def _are_among(some: Iterable[object], others: Sequence[object]) -> bool:
    """Whether each of some objects is one of the others."""
    return all(any(each is other for other in others) for each in some)


def _note_own_error(
    error: BaseException, guard: TruncationGuard, run: Run, *, is_of_application: bool
) -> None:
    """Say on an error why a refusal is not repaired: it came before the error, or is too late."""
    if guard.answered_last or not _has_refusal(guard.own_errors, guard):
        return
    refused = (
        f"the provider of a model of the node {run.node!r} refused the history of thread "
        f"{run.thread_id!r}"
    )
    if is_of_application:
        note(
            error,
            f"{refused}, and this error came in its place, so the history is not repaired. "
            f"Raise the refusal itself, or call the model through patch_model.",
        )
    elif guard.answered:
        note(
            error,
            f"{refused}, and a model of the node had answered before, so the node is not run "
            f"again. Call the model through patch_model; or if no tool runs the calls with which "
            f"the history ends, name the node with model_node: they are closed before it asks.",
        )
