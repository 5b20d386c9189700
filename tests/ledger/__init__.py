"""A simulation of random agents and mishaps; a log of what tools did judges what models read.

`agents`: the log, tools, models and graphs. `session`: a thread, and what happens to it.
`judge`: what must be true. `check`: many scenarios, and comparisons of healthy runs.
"""
