"""How much memory this process has."""

import sys
from importlib import import_module
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_megabytes() -> float | None:
    """What it occupies now; where the system does not tell, the most that it ever did; None where it tells neither."""
    try:
        resource = import_module("resource")
    except ImportError:  # on Windows
        return None
    try:
        return float(int(_STATM.read_text().split()[1]) * resource.getpagesize() / 1024**2)
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(most / 1024**2 if sys.platform == "darwin" else most / 1024)
