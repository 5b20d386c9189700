"""Nodes that ask a model of their own about calls that are alive, and what becomes of the calls.

`places` has the graphs in which such a node is, `world` what its provider refuses, how it asks and
what it adds to the history. `laws` plays three turns: a payment that a human agrees to, thanks,
and a payment that is declined. The oracle is a ledger outside of the graph, and two bare graphs:
the one that is patched, and one whose providers refuse nothing.
"""
