"""Every way that a thread can go: all sequences of a few events, on small graphs.

A way is a word, with a letter for each event (`graphs.EVENTS`). It is played in a patched graph and
in its reference, the bare graph whose models refuse nothing; a last message shows what the model
reads then. `laws` compares both with each other, and what was read with a ledger outside of the
graph. Ways with the same beginning share it: the thread is copied.
"""
