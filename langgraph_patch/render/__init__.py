"""Show patches and reports as HTML pages and terminal tables.

Both renderers take `to_dict()` values only, so that they know nothing of the objects behind
them. `comparison` says what to show, `text` escapes it, `html` and `terminal` draw it.
"""
