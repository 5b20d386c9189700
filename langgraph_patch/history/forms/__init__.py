"""The forms in which a refused history is sent again: pure functions."""
