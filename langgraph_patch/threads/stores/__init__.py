"""List threads and delete checkpoints in each kind of store."""
