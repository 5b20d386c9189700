"""Safe serializers, and what older versions of LangGraph lack for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_patch.errors import PatchError

_EVENT_HOOKS = "langgraph.checkpoint.serde.event_hooks"
"""Reports which classes a serializer did not load. The allowlist came with it, in
langgraph-checkpoint 4.0.1."""


def needs(feature: str, package: str, oldest: str) -> str:
    """The text of an error for a feature that the installed version of a package lacks.

    Examples:
        >>> from langgraph_patch.threads.stores.versions import needs
        >>> needs("SqliteSaver", "langgraph", "99").partition(";")[0]
        'SqliteSaver needs langgraph 99 or newer'
    """
    return f"{feature} needs {package} {oldest} or newer; {version(package)} is installed"


def safe_serializer(
    trust: Iterable[tuple[str, str]], error: type[PatchError]
) -> SerializerProtocol:
    """A serializer that loads only LangChain's, LangGraph's and trusted classes.

    Args:
        trust: The trusted classes, as (module, class).
        error: What to raise before langgraph-checkpoint 4.0.1. Its serializer imports and calls
            whatever a row names.
    """
    if _module(_EVENT_HOOKS) is None:
        raise error(
            needs("Opening a database of unknown content", "langgraph-checkpoint", "4.0.1")
            + ": older versions import and call whatever a row names. "
            "Upgrade it, or pass the serializer of your application (`serde=`), if you trust the "
            "database."
        )
    return JsonPlusSerializer(allowed_msgpack_modules=list(trust) or None)


def recording_blocked_classes(
    record: Callable[[str], object],
) -> AbstractContextManager[None]:
    """Call `record` with each class (`module:Class`) that a serializer does not load.

    Before langgraph-checkpoint 4.0.1 it is not called: no serializer blocked a class.
    """
    return _recording(record, getattr(_module(_EVENT_HOOKS), "register_serde_event_listener", None))


@contextmanager
def _recording(record: Callable[[str], object], register: Callable[..., Any] | None) -> Any:
    def listen(event: Any) -> None:
        if event["kind"] == "msgpack_blocked":
            record(f"{event['module']}:{event['name']}")

    unregister = None if register is None else register(listen)
    try:
        yield
    finally:
        if unregister is not None:
            unregister()


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return None
