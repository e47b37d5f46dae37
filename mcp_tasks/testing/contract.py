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

from .contract_answers import AnswersContract
from .contract_claims import ClaimsContract
from .contract_creation import CreationContract
from .contract_effects import EffectsContract
from .contract_legs import LegsContract
from .contract_many import ManyContract
from .contract_operating import OperatingContract
from .contract_outcomes import OutcomesContract
from .contract_payloads import PayloadsContract
from .contract_questions import QuestionsContract
from .contract_races import RacesContract
from .contract_reading import ReadingContract
from .contract_recovery import RecoveryContract
from .contract_retention import RetentionContract
from .contract_signals import SignalsContract
from .contract_steps import StepsContract
from .contract_ttl import TtlContract


class TaskStoreContract(
    CreationContract,
    ReadingContract,
    ManyContract,
    QuestionsContract,
    AnswersContract,
    OutcomesContract,
    TtlContract,
    EffectsContract,
    SignalsContract,
    LegsContract,
    ClaimsContract,
    StepsContract,
    RecoveryContract,
    RetentionContract,
    OperatingContract,
    PayloadsContract,
    RacesContract,
):
    """Every promise of a store, one test each, named by the sentence that it proves."""
