"""What the tests of the HTTP layer share."""

from collections.abc import Callable

import pytest


@pytest.fixture
def open_to_all(configure: Callable[..., None]) -> None:
    """Anonymous callers may come in: such requests touch no database."""
    configure(ALLOW_ANONYMOUS=True)
