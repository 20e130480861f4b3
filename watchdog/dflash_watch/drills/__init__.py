"""Faults on purpose on this machine, and whether the installed watchdog names them.

catalog    what there is: the fault, and the answer that is right
programs   small programs that stand for somebody else's training, and for a link that breaks
fake_nvml  a GPU driver that does as it is told
ground     what a fault needs from the machine: processes, mounts, a memory group
trial      one drill from start to end: run, watcher, fault, answer, clean-up
report     results as lines, as a table and as JSON
"""
