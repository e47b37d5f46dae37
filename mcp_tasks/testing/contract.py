"""
The contract of a task store as a test suite for pytest.

Subclass it in your own tests and supply two fixtures::

    class TestMyStore(TaskStoreContract):
        @pytest.fixture
        def store(self):
            return MyStore()

        @pytest.fixture
        def advance(self):
            return my_function_of_ref_and_seconds

``advance`` makes time pass for one task: ``mcp_tasks.testing.rewind`` for tasks in the database, moving the
clock for a store that was handed one. No test sleeps, and none compares a store's clock with Python's. A store
in a database needs ``@pytest.mark.django_db(transaction=True)`` on the class: what happens after a commit is
part of the contract.
"""

import pytest

_PARTS = (
    "answers",
    "creation",
    "effects",
    "legs",
    "outcomes",
    "payloads",
    "questions",
    "races",
    "reading",
    "recovery",
    "retention",
    "support",
    "ttl",
)
# Before they are imported: a failing assert is to show its values although it is not in a test module.
pytest.register_assert_rewrite(*(f"{__package__}.contract_{part}" for part in _PARTS))

from .contract_answers import AnswersContract  # noqa: E402
from .contract_creation import CreationContract  # noqa: E402
from .contract_effects import EffectsContract  # noqa: E402
from .contract_legs import LegsContract  # noqa: E402
from .contract_outcomes import OutcomesContract  # noqa: E402
from .contract_payloads import PayloadsContract  # noqa: E402
from .contract_questions import QuestionsContract  # noqa: E402
from .contract_races import RacesContract  # noqa: E402
from .contract_reading import ReadingContract  # noqa: E402
from .contract_recovery import RecoveryContract  # noqa: E402
from .contract_retention import RetentionContract  # noqa: E402
from .contract_ttl import TtlContract  # noqa: E402


class TaskStoreContract(
    CreationContract,
    ReadingContract,
    QuestionsContract,
    AnswersContract,
    OutcomesContract,
    TtlContract,
    EffectsContract,
    LegsContract,
    RecoveryContract,
    RetentionContract,
    PayloadsContract,
    RacesContract,
):
    """Every promise of a store, one test each, named by the sentence that it proves."""
