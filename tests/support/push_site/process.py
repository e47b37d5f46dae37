"""A process without a server that does what its standard input says, a command as JSON in each line."""

import json
import sys
import threading
import time

import django

_writing = threading.Lock()


def _say(value: object) -> None:
    with _writing:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Until the input ends."""
    django.setup()
    from tests.support.push_site.acts import act

    _say("ready")
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "wait":
            _say(time.time())  # a test changes the task only once it is waited for
        _say(act(command))


if __name__ == "__main__":
    main()
