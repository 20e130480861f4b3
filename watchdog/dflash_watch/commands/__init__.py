"""One file a command; each takes a parsed command line and returns an exit code."""
