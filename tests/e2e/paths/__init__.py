"""Faults of the way between watcher and run, each made on purpose and undone again."""
