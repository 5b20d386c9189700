"""The pure core: messages in, a `Patch` out. It imports langchain_core only."""
