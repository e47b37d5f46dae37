"""
Tell whoever listens, after commit: streams, waiting threads, running handlers, other processes, the project.

A message says which task changed and to which revision, never what it is: who is told reads the row. So a lost
message costs a delay, a stale one nothing, and nobody is shown what is not his.
"""

from .publisher import list_changed

__all__ = ["list_changed"]
