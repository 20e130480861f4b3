"""`--demo`: every state on the screen, without any run and without an engine."""
