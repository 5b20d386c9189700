"""Repair while a graph runs."""
