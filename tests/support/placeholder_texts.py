"""The default texts of placeholders, each with the tool's name and the call id to fill in."""

UNKNOWN = "No result of tool call {} with id {} was recorded; it may or may not have run."
CANCELLED = (
    "Tool call {} with id {} was cancelled - another message came in before it could be completed."
)
"""The call was waiting for human input, and a human message came in."""

WAITED = (
    "Tool call {} with id {} was waiting for human input; no answer came and it did not finish."
)
FAILED = "Tool call {} with id {} failed: {}"
"""Ends with the error."""

MALFORMED = "Tool call {} with id {} was not run: its arguments are not a complete JSON object."

# Texts of deepagents' middleware.

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
