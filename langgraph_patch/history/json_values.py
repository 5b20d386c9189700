"""Messages, and any other values, as JSON values."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

_MAX_SPLITS = 3
"""How many levels of a value are converted separately if it cannot be converted as a whole.

Three reach one key in the arguments of a call: message, `tool_calls`, call.
"""


def json_value(value: Any, splits: int = _MAX_SPLITS) -> Any:
    """A message, or any other value, as JSON values. Never raises.

    A value cannot be converted if it contains itself, is nested too deep, contains an integer
    that is too long to write, or has a class that raises. Its parts are then converted
    separately, so that most of a message is kept; the rest becomes the name of its type.
    """
    with suppress(Exception):  # the class of an artifact may raise anything
        return _whole_value(value)
    with suppress(Exception):
        if splits:
            return _parts_of_value(value, splits - 1)
    return f"<{type(value).__name__}>"


def _whole_value(value: Any) -> Any:
    dumped = value.model_dump(warnings=False) if isinstance(value, BaseModel) else value
    jsonable = to_jsonable_python(dumped, bytes_mode="base64", serialize_unknown=True)
    return json.loads(json.dumps(jsonable))


def _parts_of_value(value: Any, splits: int) -> Any:
    if isinstance(value, BaseModel):
        value = {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(json_value(key, 0)): json_value(item, splits)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [json_value(item, splits) for item in value]
    return json_value(value, 0)
