"""The metrics: each counts what it is named after, and nobody can make more of them than there are."""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from mcp_tasks import McpError, TaskContext, ToolError, observing
from mcp_tasks.access import refusals
from mcp_tasks.contrib.prometheus import apps, collector, counting, labels
from mcp_tasks.contrib.prometheus.counting import Counting
from mcp_tasks.models import Process, Task
from mcp_tasks.operators.acting import Order, act
from mcp_tasks.operators.bulk import cancel_all
from mcp_tasks.rpc.caller import Caller
from mcp_tasks.rpc.dispatch import serve_message
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.store.processes import JANITOR, WORKER, janitor_name, report
from mcp_tasks.store.sweep import sweep
from mcp_tasks.store.types import Owner
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.testing.client import McpClient

store = DatabaseTaskStore()
YES = {"approval": {"action": "accept", "content": {"approve": True}}}

Read = Callable[..., float]


def samples(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """What a Prometheus server reads of it: name and label values, sorted, to number."""
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                found[(sample.name, *sorted(sample.labels.values()))] = sample.value
    return found


@pytest.fixture
def registry(observe: Callable[..., None]) -> CollectorRegistry:
    """A registry that counts from now on."""
    registry = CollectorRegistry()
    observe(Counting(registry))
    return registry


@pytest.fixture
def value(registry: CollectorRegistry) -> Read:
    """A number by the name and the label values: ``value("created_total", "approve", "http")``."""

    def read(name: str, *values: str) -> float:
        return samples(registry).get((f"mcp_tasks_{name}", *sorted(values)), 0.0)

    return read


def approve(client: McpClient, **meta: Any) -> str:
    task_id: str = client.request("tools/call", {"name": "approve", "arguments": {"service": "web"}}, **meta)["taskId"]
    return task_id


# -- what is counted ------------------------------------------------------------------------------------------------


def test_a_task_from_its_call_to_its_outcome(mcp: McpClient, value: Read) -> None:
    task_id = approve(mcp)
    assert value("created_total", "approve", "http") == 1
    run_until_idle()
    assert value("legs_total", "approve", "parked") == 1
    mcp.update_task(task_id, YES)
    run_until_idle()
    assert value("legs_total", "approve", "settled") == 1
    assert value("settled_total", "approve", "completed") == 1
    for name in ("queue_seconds_count", "run_seconds_count", "input_wait_seconds_count"):
        assert value(name, "approve") == 1
    assert value("rpc_seconds_count", "tools/call", "ok") == 1
    assert value("rpc_seconds_count", "tasks/update", "ok") == 1
    assert value("payload_bytes_count", "arguments") == 1
    assert value("payload_bytes_count", "result") == 1


def test_a_call_with_a_key_that_was_used_creates_nothing(mcp: McpClient, value: Read) -> None:
    for _ in range(2):
        approve(mcp, **{"django-mcp-tasks/idempotencyKey": "k"})
    assert value("created_total", "approve", "http") == 1


def test_a_task_that_asked_nothing_did_not_wait(mcp: McpClient, value: Read) -> None:
    mcp.call_tool("echo", {"text": "hi"})
    run_until_idle()
    assert value("run_seconds_count", "echo") == 1
    assert value("input_wait_seconds_count", "echo") == 0


def test_the_times_are_those_of_the_row(transactional_db: None, value: Read) -> None:
    ref = store.create_task("echo", {}, ttl_ms=86_400_000).ref
    rewind(ref, 7200)
    store.claim(ref)
    store.complete_task(ref, {"content": []}, leg=1)
    assert 7200 <= value("queue_seconds_sum", "echo") < 7260
    assert value("queue_seconds_bucket", "echo", "1800.0") == 0
    assert value("queue_seconds_bucket", "echo", "+Inf") == 1


def test_each_outcome_is_counted_once(transactional_db: None, value: Read) -> None:
    def claimed(**options: Any) -> Any:
        ref = store.create_task("echo", {}, **options).ref
        store.claim(ref)
        return ref

    completed, ref = claimed(ttl_ms=60_000), claimed()
    store.complete_task(completed, {"content": []}, leg=1)
    store.complete_task(completed, {"content": []}, leg=1)
    store.complete_task(ref, {"content": [], "isError": True}, leg=1)
    store.fail_task(claimed(), McpError(-32603, "x"), leg=1)
    store.cancel_task(claimed())
    rewind(claimed(ttl_ms=60_000), 61)
    rewind(completed, 61)
    store.expire()
    for outcome in ("completed", "tool_error", "failed", "cancelled", "expired"):
        assert value("settled_total", "echo", outcome) == 1, outcome


def test_a_change_that_is_rolled_back_is_not_counted(transactional_db: None, value: Read) -> None:
    from django.db import transaction

    ref = store.create_task("echo", {}).ref
    with pytest.raises(PermissionDenied), transaction.atomic():
        assert store.complete_task(ref, {"content": []}, durable=False)
        raise PermissionDenied
    assert value("settled_total", "echo", "completed") == 0


def test_what_the_janitor_brings_back(transactional_db: None, value: Read) -> None:
    for attempts in (1, 2):
        ref = store.create_task("echo", {}, max_attempts=attempts, ttl_ms=86_400_000).ref
        store.claim(ref)
        rewind(ref, 600)
    sweep(store)
    assert value("leases_lapsed_total", "echo", "requeued") == 1
    assert value("leases_lapsed_total", "echo", "failed") == 1
    assert value("settled_total", "echo", "failed") == 1
    assert value("janitor_rows_total", "recover") == 1
    assert value("janitor_rows_total", "fail") == 1
    assert value("janitor_seconds_count") == 1


def test_a_result_that_comes_too_late(mcp: McpClient, value: Read, mcp_tools: Any) -> None:
    @mcp_tools
    def slow(ctx: TaskContext) -> str:
        store.cancel_task(ctx.ref)
        return "done"

    mcp.call_tool("slow")
    run_until_idle()
    assert value("late_results_total", "slow") == 1
    assert value("legs_total", "slow", "refused") == 1
    assert value("cancels_total", "server", "settled") == 1
    assert value("cancel_release_seconds_count") == 1


def test_cancellations_by_who_and_what_they_did(mcp: McpClient, value: Read) -> None:
    task_id = approve(mcp)
    for _ in range(3):
        mcp.cancel_task(task_id)
    assert value("cancels_total", "client", "settled") == 1
    assert value("cancels_total", "client", "none") == 2


def test_polls_by_their_pace(mcp: McpClient, value: Read) -> None:
    task_id = approve(mcp)
    mcp.get_task(task_id)
    assert value("polls_total", "normal") == 1
    mcp.get_task(task_id)
    assert value("polls_total", "early") == 1


def test_a_throttled_poll(mcp: McpClient, value: Read, configure: Any, settings: Any) -> None:
    from django.core.cache import cache

    cache.clear()
    configure(THROTTLE_CLASSES=["mcp_tasks.access.throttles.ScopeThrottle"])
    settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {"mcp_poll": "1/min"}}
    task_id = approve(mcp)
    mcp.get_task(task_id)
    with pytest.raises(McpError):
        mcp.get_task(task_id)
    assert (value("polls_total", "normal"), value("polls_total", "throttled")) == (1, 1)


def test_refusals_by_their_reason(mcp: McpClient, value: Read) -> None:
    foreign = store.create_task("echo", {}, owner=Owner(("somebody",))).task_id
    mine = approve(mcp)
    Task.objects.exclude(owner_label="somebody").filter(tool="approve").update(ttl_ms=60_000)
    rewind(Task.objects.get(tool="approve").pk, 7 * 86_400)
    for task_id in (foreign, mine, "A" * 43, "short"):
        with pytest.raises(McpError):
            mcp.get_task(task_id)
    with pytest.raises(McpError):
        mcp.declaring({}).get_task(mine)
    assert value("access_refused_total", "owner") == 1
    assert value("access_refused_total", "expired") == 1
    assert value("access_refused_total", "unknown") == 2
    assert value("access_refused_total", "capability") == 1
    refusals.settle(5)


def test_errors_by_method_and_code(mcp: McpClient, value: Read) -> None:
    for method in ("tasks/get", "no/such", "another/one"):
        with pytest.raises(McpError):
            mcp.request(method)
    assert value("rpc_seconds_count", "tasks/get", "-32602") == 1
    assert value("rpc_seconds_count", "other", "-32601") == 2


def test_an_inline_call_is_timed_to_its_end(mcp: McpClient, value: Read) -> None:
    mcp.call_tool("add", {"a": 1, "b": 2})
    assert value("rpc_seconds_count", "tools/call", "ok") == 1


def test_on_every_way_in_requests_are_counted_once(alice: McpClient, value: Read) -> None:
    alice.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, progressToken="t")
    with pytest.raises(McpError):
        alice.get_task("x")
    approve(alice)
    assert value("rpc_seconds_count", "tools/call", "ok") == 2
    assert value("rpc_seconds_count", "tasks/get", "-32602") == 1
    assert value("created_total", "approve", "http") == 1


def test_a_call_over_a_socket(transactional_db: None, value: Read) -> None:
    client = McpClient(lambda body, headers: pytest.fail("nothing is sent"))
    body = client.envelope("tools/call", {"name": "approve", "arguments": {"service": "web"}})
    assert serve_message(body, Caller(), pushes=True).status == 200  # type: ignore[union-attr]
    assert value("created_total", "approve", "websocket") == 1


def test_what_is_too_large(transactional_db: None, value: Read, configure: Any) -> None:
    configure(LIMITS={"PAYLOAD_BYTES": 1024})
    with pytest.raises(Exception, match="arguments has"):
        store.create_task("echo", {"text": "x" * 2000})
    assert value("payload_refused_total", "arguments") == 1


class Asked:
    """The request of an operator."""

    def __init__(self, user: Any) -> None:
        self.user = user


def test_acts_of_operators(transactional_db: None, value: Read) -> None:
    admin, nobody = User.objects.create_superuser("admin"), User.objects.create_user("nobody")
    task = Task.objects.get(pk=store.create_task("echo", {}).ref)
    order = Order(verb="cancel", reason="runaway")
    with pytest.raises(PermissionError):
        act(Asked(nobody), task, order)
    with pytest.raises(ValueError, match="reason"):
        act(Asked(admin), task, Order(verb="cancel", reason=""))
    act(Asked(admin), task, order)
    act(Asked(admin), task, order)
    cancel_all([store.create_task("echo", {}).ref], actor="operator:1", reason="runaway")
    for action, result in [
        ("cancel", "permission_denied"),
        ("cancel", "wrong_request"),
        ("cancel", "ok"),
        ("cancel", "already_finished"),
        ("bulk_cancel", "ok"),
    ]:
        assert value("operator_actions_total", action, result) == 1, (action, result)
    assert value("cancels_total", "operator", "settled") == 2


def test_streams_and_what_they_are_told(value: Read) -> None:
    for change in (1, 1, -1):
        observing.happened("listening", transport="sse", change=change)
    observing.happened("notification", result="sent", number=3)
    observing.happened("notification", result="reconciled", number=0)
    assert value("listeners", "sse") == 1
    assert value("notifications_total", "sent") == 3
    assert value("notifications_total", "reconciled") == 0


# -- what cannot grow -----------------------------------------------------------------------------------------------

SECRET = "SECRET-OF-A-STRANGER"


def test_no_stranger_can_add_a_label(mcp: McpClient, registry: CollectorRegistry) -> None:
    """Everything that a caller can choose, a few hundred times."""
    for number in range(100):
        name = f"{SECRET}-{number}"
        for method, params in (
            (name, {}),
            ("tools/call", {"name": name}),
            ("tasks/get", {"taskId": name}),
            ("tasks/get", {"taskId": (name + "x" * 43)[:43]}),
            ("tools/call", {"name": "echo", "arguments": {name: 1}}),
        ):
            mcp.post(mcp.envelope(method, params, traceparent=name, **{"io.modelcontextprotocol/logLevel": name}))
    text = generate_latest(registry).decode()
    assert SECRET not in text
    assert len(text.splitlines()) < 300


def test_no_tool_can_add_a_label_but_its_name(mcp: McpClient, registry: CollectorRegistry, mcp_tools: Any) -> None:
    @mcp_tools(task="never")
    def fails(code: int) -> str:
        raise McpError(code, SECRET, {"secret": SECRET})

    @mcp_tools
    def refuses(ctx: TaskContext) -> str:
        raise ToolError(SECRET)

    for code in range(200):
        with pytest.raises(McpError):
            mcp.call_tool("fails", {"code": code})
    for _ in range(3):
        mcp.call_tool("refuses")
    run_until_idle()
    codes = {key[1:] for key in samples(registry) if key[0] == "mcp_tasks_rpc_seconds_count"}
    assert codes == {("ok", "tools/call"), ("other", "tools/call")}
    assert SECRET not in generate_latest(registry).decode()


def test_at_most_fifty_tools_have_a_label(registry: CollectorRegistry, mcp_tools: Any) -> None:
    for number in range(80):
        mcp_tools(name=f"tool_{number}")(lambda: "x")
    for number in range(500):
        observing.happened("late_result", ref=uuid4(), tool=f"tool_{number}")
    counted = {key[1]: count for key, count in samples(registry).items() if key[0] == "mcp_tasks_late_results_total"}
    assert len(counted) == 51
    assert counted.pop("other") == 450
    assert set(counted.values()) == {1}


def test_a_tool_that_is_retired_keeps_its_label_and_an_unknown_one_gets_none(mcp_tools: Any) -> None:
    from mcp_tasks.tools.registry import registry as tools

    mcp_tools(name="retired")(lambda: "x")
    named = labels.Tools()
    assert named.label("retired") == "retired"
    tools.remove("retired")
    assert named.label("retired") == "retired"
    assert labels.Tools().label("retired") == "other"
    assert named.label(None) == "other"


def test_every_moment_takes_only_words_that_are_known(registry: CollectorRegistry) -> None:
    for number in range(100):
        word = f"{SECRET}-{number}"
        moments: dict[str, dict[str, Any]] = {
            "created": {"tool": word, "transport": word},
            "settled": {"tool": word, "outcome": word, "queue_ms": 1, "run_ms": 1, "wait_ms": 1},
            "lapsed": {"tool": word, "action": word},
            "late_result": {"tool": word},
            "cancel": {"actor": word, "effect": word},
            "refused": {"reason": word},
            "payload": {"kind": word, "size": 1},
            "payload_refused": {"kind": word},
            "notification": {"result": word, "number": 1},
            "listening": {"transport": word, "change": 1},
            "operator": {"action": word, "result": word},
        }
        for moment, facts in moments.items():
            observing.happened(moment, ref=uuid4(), **facts)
        observing.begin("rpc", method=word, tool=word).note(code=number)
        for activity, facts in (("rpc", {"method": word, "code": 7}), ("leg", {"tool": word, "end": word})):
            with observing.begin(activity, **facts):
                pass
    values: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for name, *chosen in samples(registry):
        values[name].add(tuple(word for word in chosen if not word[0].isdigit() and word != "+Inf"))
    assert all(len(chosen) <= 1 or name.endswith(("_bucket",)) for name, chosen in values.items()), values
    assert SECRET not in generate_latest(registry).decode()


def test_an_observer_that_fails_changes_nothing(mcp: McpClient, observe: Callable[..., None]) -> None:
    class Broken(observing.Observer):
        def happened(self, moment: str, facts: Any) -> None:
            raise RuntimeError("broken")

        def begun(self, activity: str, facts: Any) -> Any:
            raise RuntimeError("broken")

        carry = trace = lambda self: 1 / 0

    observe(Broken())
    task_id = approve(mcp)
    run_until_idle()
    assert mcp.get_task(task_id)["status"] == "input_required"


# -- the gauges of the database -------------------------------------------------------------------------------------


@pytest.fixture
def gauges() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector.DatabaseGauges())
    return registry


def test_the_gauges_say_what_is_in_the_database(transactional_db: None, gauges: CollectorRegistry) -> None:
    rewind(store.create_task("echo", {}, ttl_ms=86_400_000).ref, 7200)
    lapsed = store.create_task("echo", {}, ttl_ms=86_400_000).ref
    store.claim(lapsed)
    rewind(lapsed, 600)
    rewind(store.create_task("echo", {}, ttl_ms=60_000).ref, 61)
    parked = store.create_task("echo", {}).ref
    store.require_input(parked, {"k": {"method": "elicitation/create", "params": {"message": "?"}}})
    report("web:1", WORKER, slots=4, busy=3)
    report(janitor_name(), JANITOR)
    found = samples(gauges)
    assert 7200 <= found.pop(("mcp_tasks_queue_oldest_age_seconds",)) < 7260
    assert found.pop(("mcp_tasks_input_oldest_age_seconds",)) < 60
    seen_at = Process.objects.get(kind=JANITOR).seen_at
    assert found.pop(("mcp_tasks_janitor_last_success_timestamp_seconds",)) == pytest.approx(seen_at.timestamp())
    assert found == {
        ("mcp_tasks_live", "queued"): 1,
        ("mcp_tasks_live", "running"): 0,
        ("mcp_tasks_live", "needs_input"): 1,
        ("mcp_tasks_live", "stalled"): 1,
        ("mcp_tasks_stalled",): 1,
        ("mcp_tasks_overdue",): 1,
        ("mcp_tasks_workers",): 1,
        ("mcp_tasks_worker_slots", "busy"): 3,
        ("mcp_tasks_worker_slots", "free"): 1,
    }


def test_the_database_is_asked_once_in_a_while(transactional_db: None, gauges: CollectorRegistry) -> None:
    with CaptureQueriesContext(connection) as captured:
        for _ in range(5):
            generate_latest(gauges)
    assert len(captured) == 4


def test_a_janitor_that_never_ran_has_no_time_of_its_last_run(
    transactional_db: None, gauges: CollectorRegistry
) -> None:
    assert ("mcp_tasks_janitor_last_success_timestamp_seconds",) not in samples(gauges)


def test_a_worker_that_was_not_seen_for_a_minute_is_none(transactional_db: None, gauges: CollectorRegistry) -> None:
    report("web:1", WORKER, slots=4)
    Process.objects.update(seen_at=Process.objects.get().seen_at - timedelta(seconds=61))
    assert samples(gauges)[("mcp_tasks_workers",)] == 0


def test_without_a_database_there_are_no_such_gauges(
    gauges: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OperationalError("away")

    monkeypatch.setattr(collector, "vitals", fail)
    assert samples(gauges) == {}


# -- the views ------------------------------------------------------------------------------------------------------


@pytest.fixture
def mounted(settings: Any, transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """The app installed, both views mounted."""
    monkeypatch.setattr(collector, "database_gauges", collector.DatabaseGauges(0))
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "mcp_tasks.contrib.prometheus"]
    settings.ROOT_URLCONF = "tests.contrib.metrics_urls"
    yield Client()
    observing.remove(counting.get_counting())


def families(answer: Any) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(answer.content.decode())}


def test_the_view_has_the_counters_of_the_process_and_the_gauges(mounted: Client, token: Any) -> None:
    from tests.support.adapters import make_client

    approve(make_client("view-wsgi", token=token("alice")))
    answer = mounted.get("/open-metrics")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain")
    assert answer["Cache-Control"] == "no-store"
    found = families(answer)
    assert {"mcp_tasks_created", "mcp_tasks_live", "mcp_tasks_rpc_seconds", "python_info"} <= set(found)
    assert {family.documentation != "" for family in found.values()} == {True}


def test_the_guarded_view_wants_who_may_view_tasks(mounted: Client, token: Any, grant: Any) -> None:
    def ask(name: str | None) -> int:
        headers = {} if name is None else {"Authorization": f"Bearer {token(name)}"}
        return mounted.get("/metrics", headers=headers).status_code

    assert ask(None) == 401
    assert ask("alice") == 403
    grant(User.objects.get(username="alice"), "view_task")
    assert ask("alice") == 200
    assert mounted.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert mounted.post("/metrics").status_code == 405


def test_gauges_that_a_project_registered_itself_come_once(mounted: Client) -> None:
    from prometheus_client import REGISTRY

    collector.serve_database_gauges()
    try:
        text = mounted.get("/open-metrics").content.decode()
    finally:
        REGISTRY.unregister(collector.database_gauges)
    assert text.count("# TYPE mcp_tasks_stalled gauge") == 1


def test_processes_share_their_counters_where_they_are_told_to(tmp_path: Any, settings: Any) -> None:
    """Two processes count, a third reads both."""
    script = (
        "import django; django.setup()\n"
        "from mcp_tasks import observing\n"
        "from mcp_tasks.tools.registry import registry\n"
        "observing.happened('late_result', ref=None, tool='echo')\n"
        "observing.happened('listening', transport='sse', change=1)\n"
    )
    reader = (
        "import django; django.setup()\n"
        "from django.db import connections\n"
        "from django.test import RequestFactory\n"
        "from mcp_tasks.contrib.prometheus import collector, views\n"
        "collector.database_gauges.collect = lambda: []\n"
        "print(views.open_metrics(RequestFactory().get('/')).content.decode())\n"
    )
    printed = [run_python(code, tmp_path) for code in (script, script, reader)][-1]
    assert 'mcp_tasks_late_results_total{tool="echo"} 2.0' in printed


def run_python(code: str, folder: Any) -> str:
    import os

    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.contrib.metrics_settings",
        "PROMETHEUS_MULTIPROC_DIR": str(folder),
    }
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


# -- where it is not installed --------------------------------------------------------------------------------------


def test_nothing_is_imported_or_counted_unless_it_is_installed() -> None:
    code = (
        "import sys, django; django.setup()\n"
        "import mcp_tasks.rpc.dispatch, mcp_tasks.transports.http.view\n"
        "from mcp_tasks import observing\n"
        "assert not observing.is_observed()\n"
        "loaded = {'prometheus_client', 'opentelemetry', 'mcp_tasks.contrib'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    environment = {"DJANGO_SETTINGS_MODULE": "tests.settings", "PATH": ""}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_without_prometheus_client_the_app_does_nothing(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "find_spec", lambda name: None)
    before = observing._observers
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "mcp_tasks.contrib.prometheus"]
    assert observing._observers == before
