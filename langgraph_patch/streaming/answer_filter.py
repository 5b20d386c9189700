"""Find the final answers among the messages of a graph's stream.

A message is no answer if it calls a tool, if it is a failed attempt of a model that was called
again, if a model wrote it inside a tool, or if a middleware asked for it. Much of this is known
only after the first tokens. What was shown by then is retracted: the pair of a `RemoveMessage`
with the message's id and the metadata of the message, with the reason under `RETRACTED_KEY`.

What a stream shows of it:

- A failed attempt never gets a chunk that is marked as the last one, and another message begins
  in the same task. If another chunk of it arrives, it was no failed attempt but one of several
  models that run side by side in one task: its tokens are shown again.
- A model runs inside a tool if its node, or a graph around it, is a tool node: it is called
  `tools`, or it answers calls of other nodes and makes none.
- LangChain's middleware marks its own model calls with `lc_source` in the metadata.
- Tool messages are the answer of a run that ends with them: those of a `return_direct` tool, and
  the one with which `ToolStrategy` confirms a structured answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage

from langgraph_patch.streaming.checkers import Checker, Turn
from langgraph_patch.streaming.chunk_facts import model_key
from langgraph_patch.streaming.tool_results import Token, ToolResults, task_of

RETRACTED_KEY: Final = "langgraph_patch_retracted"
"""Key in the metadata of a retraction; the value is the reason.

`"tool_call"`: the message calls a tool. `"failed_attempt"`: the model failed, and was called
again. `"inside_tool"`: a model wrote it inside a tool.
"""

_Reason: TypeAlias = Literal["tool_call", "failed_attempt", "inside_tool"]


@dataclass(slots=True, eq=False)
class _Message:
    """A message of a model, as far as it has arrived.

    Attributes:
        turn: Decides whether it is an answer.
        task: The task that called the model; `""` if it is unknown.
        tokens: The tokens that are shown if it is an answer.
        has_begun: Whether anything of it arrived that is not empty.
        is_shown: Whether its tokens were shown, and not retracted.
        has_failed: Whether it looks like a failed attempt.
        is_internal: Whether a tool or a middleware called the model.
        calls: The ids of its tool calls that have no tool message yet.
    """

    turn: Turn
    task: str
    tokens: list[Token] = field(default_factory=list)
    has_begun: bool = False
    is_shown: bool = False
    has_failed: bool = False
    is_internal: bool = False
    calls: set[str] = field(default_factory=set)


class AnswerFilter:
    """Takes the messages of one run and returns the tokens of its final answers.

    Attributes:
        is_interrupted: Whether the run has paused for a human. Its tool messages are no answer
            then. Whoever reads the stream sets it.
    """

    def __init__(self, checker: Checker, *, internal: bool = False) -> None:
        """Create the filter of one run.

        Args:
            checker: Decides whether a message calls tools.
            internal: Whether what models write inside tools and for middleware counts too.
                Default: False.
        """
        self.is_interrupted = False
        self._checker = checker
        self._internal = internal
        self._results = ToolResults()
        self._open: dict[tuple[str, str | None], _Message] = {}
        self._shown: dict[str, list[Token]] = {}
        """The last token of each shown message that has ended, by task."""

    def add(self, token: Token) -> Sequence[Token]:
        """Read the next message, or chunk of one; return the tokens that can be shown now."""
        message = token[0]
        if isinstance(message, AIMessage):
            return self._add_chunk(message, token)
        if isinstance(message, ToolMessage):
            return self._add_result(message, token)
        return ()

    def finish(self, *, failed: bool = False) -> Iterator[Token]:
        """At the end of the stream, yield what is still held.

        Args:
            failed: Whether the stream ended with an error. Then all held text is yielded: it is
                what the model had written. Default: False.
        """
        for message in self._open.values():
            turn = message.turn
            is_held = turn.answer is None and turn.wrote
            # The Responses API starts each message with an empty chunk under another id. Such
            # a chunk stays undecided and contains nothing, so it is not shown.
            if is_held and not message.has_failed and not message.is_internal:
                if not failed:
                    turn.end()
                if not turn.answer:
                    yield from message.tokens
        self._open.clear()
        if not failed and not self.is_interrupted:
            yield from self._results.answers()

    # --- messages of models ------------------------------------------------------------

    def _add_chunk(self, chunk: AIMessage, token: Token) -> Sequence[Token]:
        metadata = token[1]
        key = task_of(metadata), chunk.id
        message = self._open.get(key)
        if message is None:
            message = self._open[key] = self._new_message(key[0], metadata)
        turn = message.turn
        if message.is_internal:
            return ()
        turn.take(chunk)
        if chunk.tool_calls:
            self._results.note_calls(chunk, metadata, message.calls)
        retracted = [] if message.has_begun else self._begin(message)
        message.has_failed = False
        message.tokens.append(token)
        tokens = self._decided(message)
        if retracted:
            tokens = [*retracted, *tokens]
        if turn.ended:
            del self._open[key]
            if message.is_shown and message.task:
                self._shown.setdefault(message.task, []).append(token)
        return tokens

    def _new_message(self, task: str, metadata: dict[str, Any]) -> _Message:
        model = model_key(metadata.get("ls_provider"), metadata.get("ls_model_name"))
        is_internal = not self._internal and (
            bool(metadata.get("lc_source")) or self._results.is_in_tool(metadata)
        )
        return _Message(Turn(self._checker, model), task, is_internal=is_internal)

    def _begin(self, message: _Message) -> list[Token]:
        """Once a message is not empty: it follows the tool messages and failed attempts."""
        if not (message.turn.wrote or message.turn.called):
            return []
        message.has_begun = True
        self._results.clear()
        retracted: list[Token] = []
        for other in self._open.values():
            if message.task and other.task == message.task and other is not message:
                other.has_failed = other.has_begun
                retracted += _retract(other, "failed_attempt")
        return retracted

    def _decided(self, message: _Message) -> Sequence[Token]:
        """The tokens of a message that can be shown, or its retraction."""
        turn = message.turn
        if turn.answer is None:
            return ()
        if turn.answer or turn.late_call:
            retracted = _retract(message, "tool_call")
            message.tokens.clear()
            return retracted
        tokens = message.tokens[-1:] if message.is_shown else message.tokens.copy()
        message.is_shown = True
        if not message.task:
            message.tokens.clear()  # in an unknown task, it is never taken for a failed attempt
        return tokens

    # --- tool messages -----------------------------------------------------------------

    def _add_result(self, message: ToolMessage, token: Token) -> list[Token]:
        ran_tool = self._results.add(message, token)
        if not ran_tool or self._internal:
            return []
        task = task_of(token[1])
        retracted = [_retraction(shown, "inside_tool") for shown in self._shown.pop(task, ())]
        for other in self._open.values():
            if other.task == task:
                retracted += _retract(other, "inside_tool")
                other.is_internal = True
        return retracted


def _retract(message: _Message, reason: _Reason) -> list[Token]:
    """The retraction of a message, if it was shown."""
    if not message.is_shown:
        return []
    message.is_shown = False
    return [_retraction(message.tokens[-1], reason)]


def _retraction(token: Token, reason: _Reason) -> Token:
    message, metadata = token
    return RemoveMessage(id=str(message.id)), {**metadata, RETRACTED_KEY: reason}
