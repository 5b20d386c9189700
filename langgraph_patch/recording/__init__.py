"""Recording of tool calls: a finished call keeps its result through a pause, a retry or a crash."""
