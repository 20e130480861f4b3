"""The parts of the screen: pure functions from a view and a size to rows of spans."""
