"""The default texts of placeholders, each with the tool's name and the call id to fill in."""

UNKNOWN = "No result of tool call {} with id {} is known; it may or may not have run."
WAITED = "Tool call {} with id {} asked for human input; no answer and no result are recorded."
WAITING = (
    "Tool call {} with id {} asked for human input, and its pause is recorded as open; "
    "no answer and no result are recorded."
)
FAILED = "Tool call {} with id {} failed in its last recorded attempt: {}"
TIMED_OUT = (
    "Tool call {} with id {} timed out in its last recorded attempt; it may have gone on: {}"
)
NOT_STARTED = "Tool call {} with id {}: no start and no result are recorded."
NOT_APPROVED = (
    "Tool call {} with id {}: an approval was asked for; no answer, no start and no result "
    "are recorded."
)
CANCELLED = (
    "Tool call {} with id {}: a cancellation is recorded; "
    "it may have taken effect, in whole or in part."
)
MALFORMED = (
    "Tool call {} with id {}: its arguments are not a complete JSON object; "
    "no start and no result are recorded."
)
STOPPED = "Tool call {} with id {} was not run: its arguments are not a complete JSON object."
INCOMPLETE = "Tool call {} with id {} has incomplete arguments; no result is known."
STARTED = (
    "Tool call {} with id {} is recorded as started; no result is recorded; "
    "it may or may not have taken effect."
)
NO_NAME = "Tool call {} with id {} was not run: it names no tool."

ANOTHER = "Another recorded result of the same call:"
LEFT_OUT = "More results of the same call are recorded, and are left out here. A newer one:"


def both(*texts: str) -> str:
    """The text of a message that tells several results of its call."""
    return f"\n{ANOTHER}\n".join(texts)


# Texts of deepagents' middleware, and of langgraph-checkpoint-aws 1.0.5 to 1.1.0.

DEEPAGENTS_CANCELLED = (
    "Tool call {} with id {} was cancelled - another message came in before it could be completed."
)
DEEPAGENTS_MALFORMED = (
    "Tool call {} with id {} could not be executed - arguments were malformed or truncated."
)
DEEPAGENTS_INCOMPLETE = (
    "Tool call {} with id {} did not complete - no result was recorded. "
    "It may have been cancelled or interrupted."
)
AWS = "Tool call '{}' with id '{}' was interrupted before completion."
