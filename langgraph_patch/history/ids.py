"""Valid call ids and tool names, and ids that are derived from the history itself.

An id or a name is valid if every provider accepts it. Derived ids use no clock and no
randomness: the same history always gives the same ids.
"""

from __future__ import annotations

import hashlib
import json
import re

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
        call_id: The stored id. The new id starts like it, so that `possible_stem` can find it.
        message_id: The id of the message that made the call.
        ordinal: The position of the call in its message.
        salt: Another number gives another id, in case the first is already in use.
    """
    digest = digest_of("call", call_id, message_id, ordinal, salt)[:_DIGEST]
    return f"{stem_of(call_id)}_{digest}"


def stem_of(call_id: str) -> str:
    """The part of an id that all ids derived from it start with."""
    return re.sub(r"[^a-zA-Z0-9_.:-]", "_", call_id[: MAX_ID - _DIGEST - 1]) or "call"


def possible_stem(call_id: str) -> str | None:
    """The stem of `call_id` if it looks like a derived id, else None."""
    stem, _, digest = call_id.rpartition("_")
    return stem if stem and re.fullmatch(r"[0-9a-f]{8}", digest) else None


def digest_of(*parts: object) -> str:
    """The SHA-256 digest of `parts`; different parts never give the same input to it."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()
