"""The details of LangGraph in `threads/stores/versions.py`: what LangGraph gained after 1.0.

Each test compares details with the LangGraph that is installed, and fails if one has changed.
"""

from __future__ import annotations

from importlib.metadata import version

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.stores import versions
from langgraph_patch.threads.stores.versions import (
    needs,
    recording_blocked_classes,
    safe_serializer,
)

_ABSENT = "langgraph.a_module_that_no_version_has"


def test_needs():
    """The text has the version that is needed and the version that is installed."""
    text = needs("The feature", "langgraph", "99")
    assert text == f"The feature needs langgraph 99 or newer; {version('langgraph')} is installed"


class Unknown(BaseModel):
    """A class that a stored row may name."""

    name: str


def test_safe_serializer_and_recording_blocked_classes():
    """A class that is not trusted is read as a dict and recorded; a trusted one is loaded."""
    name = (Unknown.__module__, Unknown.__qualname__)
    stored = JsonPlusSerializer().dumps_typed(Unknown(name="a"))
    blocked: list[str] = []
    with recording_blocked_classes(blocked.append):
        read = safe_serializer([], ThreadError).loads_typed(stored)
        assert (read, blocked) == ({"name": "a"}, [":".join(name)])
        assert safe_serializer([name], ThreadError).loads_typed(stored) == Unknown(name="a")
    safe_serializer([], ThreadError).loads_typed(stored)
    assert len(blocked) == 1, "nothing is recorded after the block"


def test_a_langgraph_whose_serializer_loads_every_class(monkeypatch: pytest.MonkeyPatch):
    """Before langgraph-checkpoint 4.0.1: no safe serializer, and nothing that is recorded."""
    monkeypatch.setattr(versions, "_EVENT_HOOKS", _ABSENT)
    with pytest.raises(ThreadError, match=r"needs langgraph-checkpoint 4\.0\.1 or newer"):
        safe_serializer([], ThreadError)
    blocked: list[str] = []
    serializer = JsonPlusSerializer(allowed_msgpack_modules=None)
    stored = serializer.dumps_typed(Unknown(name="a"))
    with recording_blocked_classes(blocked.append):
        assert serializer.loads_typed(stored) == {"name": "a"}
    assert blocked == []
