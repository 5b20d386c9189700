"""Run a tool: each call as a task of its own, and once."""
