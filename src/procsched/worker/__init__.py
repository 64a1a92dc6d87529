"""The worker's side: claim a run, call it, report. Runs in the child, and imports little."""
