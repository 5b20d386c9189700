"""Every private detail of LangGraph that this package uses, each with its reason and its guard."""
