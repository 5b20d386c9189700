"""`recover_messages`: the history of runs of an `@entrypoint` that did not finish.

An `@entrypoint` stores what it returns when it finishes. If a run pauses, fails or is killed, and
another input comes in, nothing of it is in `previous`. What its tasks returned is still among the
pending writes of the checkpoint of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._langgraph import can_start_tasks, current_checkpoint_id, graph_namespace
from langgraph_patch._langgraph_checkpoints import accepted_input, previous_value
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.errors import EvidenceError, OptionError
from langgraph_patch.evidence.entrypoint_runs import EntrypointRun, messages_in
from langgraph_patch.evidence.queries import read_until
from langgraph_patch.history.patcher import patch_messages
from langgraph_patch.history.placeholders import Language, Placeholder

ReadInput: TypeAlias = Callable[[Any], Sequence[BaseMessage]]
"""Turns the input of a run into messages."""

MAX_RUNS: Final = 50
"""How many consecutive runs that did not finish are read."""


def recover_messages(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    *,
    read_input: ReadInput | None = None,
    placeholder: Placeholder | None = None,
    language: Language | None = None,
) -> list[BaseMessage]:
    """Read the history of the runs of an `@entrypoint` that did not finish, from its checkpoints.

    If a run of an `@entrypoint` pauses and another message comes in, LangGraph keeps nothing of
    it: `previous` is what the last finished run saved. Call this at the beginning of the
    `@entrypoint`, and start with `[*(previous or []), *recover_messages(saver, config)]`. It reads
    the runs after the last finished run of the thread, oldest first (at most `MAX_RUNS`), without
    the run that calls it. Mostly that is one run, or none.

    **What is recovered of a run**, as a valid history:

    - Its input, if it is a message or a list of messages.
    - The results of its finished tasks that are an `AIMessage`, a `ToolMessage`, or a list of
      messages with one of these. Every such task counts: a task that asks a model for something
      that does not belong to the history must return a text. A message is recovered once, and not
      at all if `previous` has it.
    - The results of its recorded tool calls (`recorded_tool`, `record_tool_calls`).
    - For each other call a placeholder, with the cause that the records show: waiting, failed,
      cancelled, not started, or unknown. The call of a tool that is not recorded is unknown.

    A task that did not finish left no message, nor did a model that was called outside of a task.
    The results of calls that no recovered message makes are dropped, also those of calls that
    `previous` has.

    **Order.** Checkpointers do not store the order of tasks. The messages are ordered by the time
    in their ids, if these are UUIDs of version 7 as the newest langchain-core gives, or else by the
    start marks of their calls. Without both they come in the order in which the checkpointer
    returns them, those with open calls last.

    Args:
        saver: The checkpointer of the `@entrypoint`. It is only read.
        config: The config of the run, if it is called in the `@entrypoint` or in a `@task`. Outside
            of a run: any config with the `thread_id`, and `checkpoint_ns` if the `@entrypoint` runs
            in another graph. The last run counts then too, even if it still waits.
        read_input: Turns the input of a run into messages, for example
            `lambda question: [HumanMessage(question)]`. Default: an input that is no message and
            no list of messages is left out.
        placeholder: The text for a call without a result, as for `patch_messages`. Default: a text
            per cause.
        language: `"en"` or `"zh"`, as for `patch_messages`. Default: the language of the process.

    Returns:
        The messages; an empty list if the last run finished, or if there is none.

    Raises:
        EvidenceError: If the checkpointer raises.
        OptionError: If `saver` is no checkpointer, `config` names no thread, or an option has an
            invalid value.
        Exception: Any exception that `read_input` raises.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langchain_core.tools import tool
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.func import entrypoint, task
        >>> from langgraph.types import interrupt
        >>> from langgraph_patch import recover_messages, recorded_tool
        >>> saver = InMemorySaver()
        >>> @recorded_tool
        ... @tool
        ... def wire_money(amount: int) -> str:
        ...     "Wire money."
        ...     return interrupt(f"Wire {amount}?")
        >>> @task
        ... def model(history):
        ...     if len(history) > 1:
        ...         return AIMessage("As you wish.", id="ai2")
        ...     call = {"name": "wire_money", "args": {"amount": 7}, "id": "c1"}
        ...     return AIMessage("", id="ai1", tool_calls=[call])
        >>> @entrypoint(checkpointer=saver)
        ... def agent(messages, *, previous=None, config=None):
        ...     history = [*(previous or []), *recover_messages(saver, config), *messages]
        ...     history.append(model(history).result())
        ...     for call in history[-1].tool_calls:
        ...         history.append(wire_money.invoke(call))
        ...     return entrypoint.final(value=history, save=history)
        >>> config = {"configurable": {"thread_id": "1"}}
        >>> _ = agent.invoke([HumanMessage("Wire 7.")], config)
        >>> history = agent.invoke([HumanMessage("Never mind.")], config)
        >>> [message.type for message in history]
        ['human', 'ai', 'tool', 'human', 'ai']
        >>> print(history[2].content)  # doctest: +NORMALIZE_WHITESPACE
        Tool call wire_money with id c1 was waiting for human input when another message came in;
        no answer and no result were recorded.
    """
    options = _Options(read_input, placeholder, language)
    return run_sync(_recover(saver, config, options))


async def arecover_messages(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    *,
    read_input: ReadInput | None = None,
    placeholder: Placeholder | None = None,
    language: Language | None = None,
) -> list[BaseMessage]:
    """Read the history of the runs of an `@entrypoint` that did not finish; see `recover_messages`.

    Args:
        saver: The checkpointer of the `@entrypoint`. It is only read.
        config: The config of the run, or a config with the `thread_id`.
        read_input: Turns the input of a run into messages. Default: an input that is no message
            and no list of messages is left out.
        placeholder: The text for a call without a result. Default: a text per cause.
        language: `"en"` or `"zh"`. Default: the language of the process.

    Returns:
        The messages; an empty list if the last run finished, or if there is none.

    Raises:
        EvidenceError: If the checkpointer raises.
        OptionError: If `saver` is no checkpointer, `config` names no thread, or an option has an
            invalid value.
        Exception: Any exception that `read_input` raises.

    Examples:
        >>> import asyncio
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph_patch import arecover_messages
        >>> config = {"configurable": {"thread_id": "1"}}
        >>> asyncio.run(arecover_messages(InMemorySaver(), config))
        []
    """
    options = _Options(read_input, placeholder, language)
    return await run_async(_recover(saver, config, options))


@dataclass(frozen=True, slots=True)
class _Options:
    read_input: ReadInput | None
    placeholder: Placeholder | None
    language: Language | None


def _recover(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, options: _Options
) -> IOGenerator[list[BaseMessage]]:
    _check(saver, config)
    is_in_run = can_start_tasks(config)
    runs = yield from _unfinished_runs(saver, config, is_in_run=is_in_run)
    messages: list[BaseMessage] = []
    evidence: dict[Any, Any] = {}
    for saved in runs:
        run = EntrypointRun(saved)
        messages += _input_of(saved, options.read_input)
        made = _new(run.messages(), messages, saved)
        messages += made
        evidence |= run.endings([message for message in made if isinstance(message, AIMessage)])
    # The run that calls this was started by another message: the texts depend on that.
    follows = [HumanMessage("next")] if is_in_run else []
    patch = patch_messages(
        [*messages, *follows],
        placeholder=options.placeholder,
        language=options.language,
        evidence=evidence,
    )
    return patch.messages[: -1 if is_in_run else None]


# --- the runs -----------------------------------------------------------------------------------


def _check(saver: object, config: RunnableConfig) -> None:
    if not isinstance(saver, BaseCheckpointSaver):
        raise OptionError(
            f"{saver!r:.200} is a {type(saver).__name__}: expected the checkpointer of the "
            f"@entrypoint."
        )
    if (config or {}).get("configurable", {}).get("thread_id") is None:
        raise OptionError(
            f"{config!r:.200} names no thread: expected a config with a thread_id, such as "
            f"{{'configurable': {{'thread_id': '1'}}}}. In an @entrypoint, add the parameter "
            f"`config: RunnableConfig` and pass it on."
        )


def _unfinished_runs(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, *, is_in_run: bool
) -> IOGenerator[list[CheckpointTuple]]:
    """The checkpoints of the inputs since the last run that finished, oldest first."""
    configurable = config["configurable"]
    namespace = graph_namespace(config) if is_in_run else configurable.get("checkpoint_ns", "")
    names = {"thread_id": str(configurable["thread_id"]), "checkpoint_ns": str(namespace)}
    thread = RunnableConfig(configurable=names)
    current_id = current_checkpoint_id(config) if is_in_run else None
    current = {"configurable": {**names, "checkpoint_id": current_id}} if current_id else None
    found: list[CheckpointTuple] = []

    def is_last(saved: CheckpointTuple) -> bool:
        if saved.metadata.get("source") == "input":
            found.append(saved)
            return False
        return True

    arguments: dict[str, Any] = {"before": current, "limit": MAX_RUNS}
    try:
        yield from read_until(is_last, saver, thread, arguments)
    except Exception as error:  # a checkpointer may raise anything
        raise EvidenceError(
            f"Thread {names['thread_id']!r}: the checkpointer raised {error!r} while it listed the "
            f"runs of namespace {names['checkpoint_ns']!r}. Fix the checkpointer, or start without "
            f"the messages of runs that did not finish."
        ) from error
    return found[::-1]


def _input_of(saved: CheckpointTuple, read_input: ReadInput | None) -> list[BaseMessage]:
    value = accepted_input(saved)
    return list(read_input(value)) if read_input is not None else messages_in(value)


def _new(
    messages: Sequence[BaseMessage], earlier: Sequence[BaseMessage], saved: CheckpointTuple
) -> list[BaseMessage]:
    """The messages that are not among earlier ones: a task may return the whole history."""
    known = [*earlier, *messages_in(previous_value(saved))]
    ids = {message.id for message in known}
    found: list[BaseMessage] = []
    for message in messages:
        without_id = message.id is None and message not in known and message not in found
        if without_id or (message.id is not None and message.id not in ids):
            found.append(message)
            ids |= {message.id}
    return found
