"""The run directory: what a trainer promises to whoever looks at it from outside.

Standard library only, Python 3.8 or newer: the reading half travels to the watched machine.
"""

__version__ = "0.1.0"
