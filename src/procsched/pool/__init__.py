"""The parent's side of the workers: how bytes and deaths move. The only importer of loky."""
