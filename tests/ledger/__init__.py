"""A simulation of random agents and mishaps; a log of what tools did judges what models read.

`world`: the log. `actors`: tools and models that write it. `agents`: graphs. `session`: a thread.
`events`: what happens to it. `judge`: what must be true. `check`: scenarios, and healthy runs.
Nothing here reads a checkpoint, and of the package only its public names are used.
"""
