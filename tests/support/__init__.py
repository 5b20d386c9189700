"""What the tests share: agents, breaks, strict models, broken databases, wires."""
