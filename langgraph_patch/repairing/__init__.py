"""What is written to the state: a repaired history, and what goes with it."""
