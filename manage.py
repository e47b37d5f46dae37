#!/usr/bin/env python
"""Management entry point of the demo site."""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - said in a sentence instead of a traceback
    sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}.")


def main() -> None:
    """Run a management command with the demo site's settings unless others are named."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
