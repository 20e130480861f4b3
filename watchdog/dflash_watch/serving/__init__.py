"""A watcher that others attach to: where its socket lies, who may come, what is said there."""
