"""Ways to a run: streams of a program on this machine, over SSH, inside a container."""
