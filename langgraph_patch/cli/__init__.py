"""The command line `langgraph-patch`."""
