"""Write I/O code once, and run it synchronously or asynchronously.

A function that needs I/O is a generator: it yields an `IORequest` for each call and receives
the result. `run_sync` makes the calls, `run_async` awaits their asynchronous counterparts, so
no function has to be written twice. A `GeneratorRunnable` is a runnable made of such a function.

`synchronous` and `asynchronous` make the two forms of a public function, `synchronous_iterator` and
`asynchronous_iterator` those of a function that yields values. Both have the parameters, their
types and the docstring of the generator.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig

_T = TypeVar("_T")
_P = ParamSpec("_P")


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

IOIterator: TypeAlias = Iterator[IOGenerator[_T | None]]
"""The steps of a function that requests I/O; each makes one value, or None if there is none."""


def method_request(target: Any, method: str, *args: Any, **kwargs: Any) -> IORequest:
    """The call of a method whose asynchronous counterpart has the same name after an `a`.

    Checkpointers, graphs and runnables name their methods so: `get_tuple` and `aget_tuple`.
    """
    return IORequest(
        lambda: getattr(target, method)(*args, **kwargs),
        lambda: getattr(target, f"a{method}")(*args, **kwargs),
    )


def call_method(target: Any, method: str, *args: Any, **kwargs: Any) -> IOGenerator[Any]:
    """Request what `method_request` returns, and return its result."""
    return (yield method_request(target, method, *args, **kwargs))


def run_sync(generator: IOGenerator[_T]) -> _T:
    """Run `generator` to its end, making each requested call synchronously.

    An exception of a call is raised inside the generator, where the call was requested.

    Examples:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph_patch._sansio import call_method, run_sync
        >>> thread = {"configurable": {"thread_id": "1"}}
        >>> run_sync(call_method(InMemorySaver(), "get_tuple", thread)) is None
        True
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


# --- the two forms of a public function ---------------------------------------------------


def synchronous(function: Callable[_P, IOGenerator[_T]]) -> Callable[_P, _T]:
    """Decorate a function that requests I/O, so that it is called like any other.

    Examples:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph_patch._sansio import asynchronous, call_method, synchronous
        >>> @synchronous
        ... def exists(saver, thread_id):
        ...     config = {"configurable": {"thread_id": thread_id}}
        ...     return (yield from call_method(saver, "get_tuple", config)) is not None
        >>> exists(InMemorySaver(), "1")
        False
        >>> import asyncio
        >>> aexists = asynchronous(exists)
        >>> asyncio.run(aexists(InMemorySaver(), thread_id="1"))
        False
    """

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return run_sync(function(*args, **kwargs))

    return _described(run, function, "")


def asynchronous(function: Callable[_P, _T]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """The asynchronous form of a function that was decorated with `synchronous`."""
    generator: Callable[_P, IOGenerator[_T]] = inspect.unwrap(function)

    @wraps(generator)
    async def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await run_async(generator(*args, **kwargs))

    return _described(run, generator, "a")


def synchronous_iterator(function: Callable[_P, IOIterator[_T]]) -> Callable[_P, Iterator[_T]]:
    """Decorate a function that returns an `IOIterator`, so that it is an iterator of the values.

    The function itself is called at once, so it may check its arguments.
    """

    def values(steps: IOIterator[_T]) -> Iterator[_T]:
        for step in steps:
            if (value := run_sync(step)) is not None:
                yield value

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
        return values(function(*args, **kwargs))

    return _described(run, function, "", "Iterator[{}]")


def asynchronous_iterator(
    function: Callable[_P, Iterator[_T]],
) -> Callable[_P, AsyncIterator[_T]]:
    """The asynchronous form of a function that was decorated with `synchronous_iterator`."""
    inner: Callable[_P, IOIterator[_T]] = inspect.unwrap(function)

    async def values(steps: IOIterator[_T]) -> AsyncIterator[_T]:
        for step in steps:
            if (value := await run_async(step)) is not None:
                yield value

    @wraps(inner)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> AsyncIterator[_T]:
        return values(inner(*args, **kwargs))

    return _described(run, inner, "a", "AsyncIterator[{}]")


_F = TypeVar("_F", bound=Callable[..., Any])


def _described(run: _F, generator: Callable[..., Any], prefix: str, returned: str = "{}") -> _F:
    """Give a function its name, and the signature of a generator with what it returns instead."""
    run.__name__ = run.__qualname__ = prefix + generator.__name__
    signature = inspect.signature(generator)
    value = str(signature.return_annotation).partition("[")[2].removesuffix("]")
    described: Any = run
    described.__signature__ = signature.replace(return_annotation=returned.format(value))
    return run


class GeneratorRunnable(Runnable[Any, Any]):
    """A runnable of LangChain that is written once, as the generator `run`.

    It adds no run to traces, events and streams.
    """

    def run(self, input: Any, config: RunnableConfig, **kwargs: Any) -> IOGenerator[Any]:
        """Run it, and request the I/O."""
        raise NotImplementedError

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run it synchronously."""
        return run_sync(self.run(input, config or {}, **kwargs))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Do the same as `invoke`, asynchronously."""
        return await run_async(self.run(input, config or {}, **kwargs))
