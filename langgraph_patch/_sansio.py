"""Write I/O code once, and run it synchronously or asynchronously.

A function that needs I/O is a generator: it yields an `IORequest` for each call and receives
the result. `run_sync` makes the calls, `run_async` awaits their asynchronous counterparts, so
no function has to be written twice. A `GeneratorRunnable` is a runnable made of such a function.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.utils import Input, Output

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class IORequest:
    """One call that does I/O, in its synchronous and its asynchronous form.

    Attributes:
        sync: Makes the call.
        asynchronous: Makes the same call through its asynchronous counterpart.
    """

    sync: Callable[[], Any]
    asynchronous: Callable[[], Awaitable[Any]]


IOGenerator: TypeAlias = Generator[IORequest, Any, _T]
"""A function that requests I/O and returns a value."""


def method_request(target: Any, method: str, *args: Any, **kwargs: Any) -> IORequest:
    """The call of a method whose asynchronous counterpart has the same name after an `a`.

    Checkpointers, graphs and runnables name their methods so: `get_tuple` and `aget_tuple`.
    """
    return IORequest(
        lambda: getattr(target, method)(*args, **kwargs),
        lambda: getattr(target, f"a{method}")(*args, **kwargs),
    )


def opened_stream(target: Any, *args: Any, **kwargs: Any) -> IORequest:
    """The stream of a runnable: a list of its first part, empty if there is none, and the others.

    An error before the first part is raised here.
    """

    def opened() -> tuple[list[Any], Iterator[Any]]:
        parts = iter(target.stream(*args, **kwargs))
        return list(islice(parts, 1)), parts

    async def aopened() -> tuple[list[Any], AsyncIterator[Any]]:
        parts = aiter(target.astream(*args, **kwargs))
        return await next_part(parts), parts

    return IORequest(opened, aopened)


async def next_part(parts: AsyncIterator[Any]) -> list[Any]:
    """A list of the next part of a stream; empty if there is none."""
    async for part in parts:
        return [part]
    return []


@asynccontextmanager
async def closed_after(parts: AsyncIterator[_T]) -> AsyncIterator[AsyncIterator[_T]]:
    """Close a stream in the end, also if its reader leaves it."""
    try:
        yield parts
    finally:
        if (close := getattr(parts, "aclose", None)) is not None:
            await close()


def run_sync(generator: IOGenerator[_T]) -> _T:
    """Run `generator` to its end, making each requested call synchronously.

    An exception of a call is raised inside the generator, where the call was requested.

    Examples:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph_patch._sansio import method_request, run_sync
        >>> def is_known(saver, thread):
        ...     return (yield method_request(saver, "get_tuple", thread)) is not None
        >>> run_sync(is_known(InMemorySaver(), {"configurable": {"thread_id": "1"}}))
        False
    """
    try:
        request = next(generator)
        while True:
            failure = None
            try:
                result = request.sync()
            except BaseException as error:  # noqa: BLE001 - raised where the call was requested
                failure = error
            # Outside of `except`: it is no context of what the generator raises.
            request = generator.send(result) if failure is None else generator.throw(failure)
    except StopIteration as stop:
        value: _T = stop.value
        return value


async def run_async(generator: IOGenerator[_T]) -> _T:
    """Run `generator` to its end, awaiting the asynchronous form of each requested call.

    An exception of a call is raised inside the generator, where the call was requested.
    """
    try:
        request = next(generator)
        while True:
            failure = None
            try:
                result = await request.asynchronous()
            except BaseException as error:  # noqa: BLE001 - raised where the call was requested
                failure = error
            # Outside of `except`: it is no context of what the generator raises.
            request = generator.send(result) if failure is None else generator.throw(failure)
    except StopIteration as stop:
        value: _T = stop.value
        return value


def with_methods(
    target: Any, methods: tuple[str, str], run: Callable[..., IOGenerator[Any]]
) -> Any:
    """A copy of an object with another method, which does I/O, in both forms.

    Args:
        target: The object.
        methods: The names of the synchronous and of the asynchronous form.
        run: The method, without `self`.
    """

    def sync(*args: Any, **kwargs: Any) -> Any:
        return run_sync(run(*args, **kwargs))

    async def asynchronous(*args: Any, **kwargs: Any) -> Any:
        return await run_async(run(*args, **kwargs))

    copied = copy.copy(target)
    for name, method in zip(methods, (sync, asynchronous), strict=True):
        object.__setattr__(copied, name, method)  # it may be a pydantic model
    return copied


class GeneratorRunnable(Runnable[Input, Output]):
    """A runnable of LangChain that is written once, as the generator `run`.

    It adds no run to traces, events and streams.
    """

    @abstractmethod
    def run(self, input: Any, config: RunnableConfig, **kwargs: Any) -> IOGenerator[Output]:
        """Run it, and request the I/O."""

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Output:
        return run_sync(self.run(input, config or {}, **kwargs))

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Output:
        return await run_async(self.run(input, config or {}, **kwargs))
