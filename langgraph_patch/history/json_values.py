"""Messages, and any other values, as JSON values."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

_MAX_SPLITS = 3
"""How many levels of a value are converted separately if it cannot be converted as a whole.

Three reach one key in the arguments of a call: message, `tool_calls`, call.
"""


def json_value(value: Any, splits: int = _MAX_SPLITS) -> Any:
    """A message, or any other value, as JSON values.

    A value cannot be converted if it contains itself, is nested too deep, contains an integer
    that is too long to write, or has a class that raises. Its parts are then converted
    separately, so that most of a message is kept; the rest becomes the name of its type.
    """
    try:
        dumped = value.model_dump(warnings=False) if isinstance(value, BaseModel) else value
        jsonable = to_jsonable_python(dumped, bytes_mode="base64", serialize_unknown=True)
        return json.loads(json.dumps(jsonable))
    except Exception:  # noqa: BLE001 - the class of an artifact may raise anything
        parts = value.__dict__ if isinstance(value, BaseModel) else value
        if splits and isinstance(parts, dict):
            return {str(key): json_value(part, splits - 1) for key, part in parts.items()}
        if splits and isinstance(parts, list | tuple):
            return [json_value(part, splits - 1) for part in parts]
        return f"<{type(value).__name__}>"
