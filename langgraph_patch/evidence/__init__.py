"""What the checkpoints of a thread recorded about a tool call."""
