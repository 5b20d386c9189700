"""A simulation: random agents, random mishaps, and an external ledger that knows what tools did.

After each model call, what the model reads about tool calls is compared with the ledger (what
happened) and with the checkpoints (what was recorded). `python tests/ledger --help` runs it.

- `world`: the ledger, and everything else that is logged during a scenario.
- `tools`, `model`, `kit`, `agents`: what runs. `driver`: runs it. `events`: what happens to it.
- `scenario`: what a seed decides. `run`: one scenario. `transcript`: all that happened in it.
- `healthy`: healthy runs beside those of the bare graph. `report`: the table.
- `checkpoints`: what the checkpointer has recorded, read raw.
- `texts`: what a tool message states. `facts` and `judge`: whether that is true.
"""
