"""A simulation: random agents and mishaps, and a log of what tools did that judges what models read.

`python tests/ledger --help` runs it. A seed decides a scenario.

- `world`: the log. `actors`: the tools and the models that write it. `agents`: the graphs.
- `driver`: savers that can fail, and runs of a graph. `session`: one scenario while it runs.
- `events`: what happens to its thread. `judge`: what must be true of the log afterwards.
- `healthy`: healthy runs beside those of the bare graph. `__main__`: many scenarios, and a table.

Nothing here reads a checkpoint, and of the package only its public names are used.
"""
