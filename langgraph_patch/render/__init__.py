"""Patches and reports as HTML pages and terminal tables."""
