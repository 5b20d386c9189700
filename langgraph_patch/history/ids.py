"""Valid call ids and tool names, and ids that are derived from the history itself.

An id or a name is valid if every provider accepts it. Derived ids use no clock and no
randomness: the same history always gives the same ids.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

PLACEHOLDER_KEY: Final = "langgraph_patch"
"""The key in `additional_kwargs` of what this package wrote. Its value is a dict.

Of a message with renamed calls:

- `earlier_ids`: for the id of each renamed call the ids that it had before, the oldest first.

Of a placeholder:

- `cause`: one of the causes (`DanglingCall.cause`).
- `arguments`: for a malformed call the text of its incomplete arguments.
- `look_again`: The checkpoint from which the next turn searches once more, if it does: a task may
  still have been running. True for the newest one.
- `inner`: how many results of calls inside the call it lists, if any.

Of a recovered result, which is no placeholder:

- `not_kept`: the names of effects of its call that were not restored.
- `cause`: `"reconciled"` if the application's own lookup settled the call.
"""

MAX_ID = 40
VALID_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,40}\Z")
"""Call ids that every provider accepts: Bedrock's characters and Chat Completions' length."""

MAX_NAME = 64
VALID_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
UNKNOWN_TOOL = "unknown_tool"
"""The name of a call that is stored without one."""

_DIGEST = 8
"""How many characters of a digest a derived id ends with."""


def valid_name(name: str) -> str:
    """`name` with invalid characters replaced; the same string if it is valid already."""
    if VALID_NAME.match(name):
        return name
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name[:MAX_NAME]) or UNKNOWN_TOOL


def derived_id(call_id: str, message_id: str | None, ordinal: int, salt: int = 0) -> str:
    """A new id for a call that has an invalid id, or one that is already in use.

    Args:
        call_id: The stored id. The new id starts like it, for readers.
        message_id: The id of the message that made the call.
        ordinal: The position of the call in its message.
        salt: Another number gives another id, in case the first is already in use.
    """
    start = re.sub(r"[^a-zA-Z0-9_.:-]", "_", call_id[: MAX_ID - _DIGEST - 1]) or "call"
    return f"{start}_{digest_of('call', call_id, message_id, ordinal, salt)[:_DIGEST]}"


def digest_of(*parts: object) -> str:
    """The SHA-256 digest of `parts`; different parts never give the same input to it."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()
