"""The pure core: messages in, `Patch` out. It imports LangChain and pydantic, not LangGraph."""
