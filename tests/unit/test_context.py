"""TaskContext with nothing around it: questions and their answers, progress, and what a handler may know."""

import types
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import mcp_types
import pytest
from django.utils.translation import gettext_lazy

from mcp_tasks import InputRequired, McpError, NobodyAnswered, TaskContext, ToolError
from mcp_tasks.protocol.codec import digest
from mcp_tasks.protocol.inputs import InvalidInputRequest, check_requests
from mcp_tasks.tools.cancellation import CANCELLED
from mcp_tasks.tools.context import RecordedAnswer
from mcp_tasks.tools.results import BecomeTask, Suspend

Make = Callable[..., TaskContext]

SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
QUESTION = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Deploy?", "requestedSchema": SCHEMA},
}
ROOTS = {"method": "roots/list"}
YES = {"action": "accept", "content": {"ok": True}}
NO = {"action": "decline"}
REF = UUID(int=7)


def recorded(answer: dict[str, Any], question: dict[str, Any] = QUESTION) -> RecordedAnswer:
    """An answer as a store gives it back, with the hash of the question it belongs to."""
    [checked] = check_requests({"k": question}).values()
    return RecordedAnswer(answer, digest(checked))


def asked(call: Callable[[], object]) -> dict[str, Any]:
    """The questions that a call ends the run with."""
    with pytest.raises(Suspend) as caught:
        call()
    return caught.value.requests


# -- kinds of questions ---------------------------------------------------------------------------------------------


def test_a_form_is_asked_in_the_shape_of_the_wire(make_context: Make) -> None:
    assert asked(lambda: make_context().elicit("approval", "Deploy?", SCHEMA)) == {"approval": QUESTION}


def test_a_model_is_asked_in_the_shape_of_the_wire(make_context: Make) -> None:
    messages = [{"role": "user", "content": {"type": "text", "text": "Capital of France?"}}]
    assert asked(lambda: make_context().sample("capital", messages, max_tokens=5, systemPrompt="Be short.")) == {
        "capital": {
            "method": "sampling/createMessage",
            "params": {"messages": messages, "maxTokens": 5, "systemPrompt": "Be short."},
        }
    }


def test_roots_are_asked_in_the_shape_of_the_wire(make_context: Make) -> None:
    assert asked(lambda: make_context().roots()) == {"roots": ROOTS}
    assert asked(lambda: make_context().roots("folders")) == {"folders": ROOTS}


def test_several_questions_are_asked_together(make_context: Make) -> None:
    requests = {"b": QUESTION, "a": ROOTS}
    assert asked(lambda: make_context().ask(requests)) == requests
    assert list(asked(lambda: make_context().ask(requests))) == ["b", "a"]


def test_a_question_may_be_a_model_of_the_wire(make_context: Make) -> None:
    assert asked(lambda: make_context().ask({"r": mcp_types.ListRootsRequest()})) == {"r": ROOTS}


def test_a_schema_may_be_any_mapping(make_context: Make) -> None:
    schema = types.MappingProxyType(SCHEMA)
    assert asked(lambda: make_context().elicit("k", "Deploy?", schema)) == {"k": QUESTION}


def test_a_question_ends_the_run_also_past_a_handler_that_catches_everything(make_context: Make) -> None:
    def careless() -> None:
        try:
            make_context().roots()
        except Exception:
            pytest.fail("an ordinary except caught a question")

    assert asked(careless) == {"roots": ROOTS}


@pytest.mark.parametrize(
    "ask",
    [
        lambda ctx: ctx.ask({}),
        lambda ctx: ctx.ask({"k": {"method": "tools/call"}}),
        lambda ctx: ctx.ask([ROOTS]),
        lambda ctx: ctx.elicit("a key", "m", SCHEMA),
        lambda ctx: ctx.elicit("", "m", SCHEMA),
        lambda ctx: ctx.elicit("k", 5, SCHEMA),
        lambda ctx: ctx.elicit("k", "m", {"type": "string"}),
        lambda ctx: ctx.elicit("k", "m", None),
        lambda ctx: ctx.elicit("k", "m", {"type": "object", "properties": {"a": {"$ref": "https://x.example"}}}),
        lambda ctx: ctx.sample("k", [], max_tokens="5"),
        lambda ctx: ctx.sample("k", "hello", max_tokens=5),
        lambda ctx: ctx.sample("k", [], max_tokens=5, includeContext="everything"),
    ],
)
def test_a_malformed_question_is_a_mistake_of_the_tool(
    make_context: Make, ask: Callable[[TaskContext], object]
) -> None:
    with pytest.raises(InvalidInputRequest):
        ask(make_context())


# -- deadlines ------------------------------------------------------------------------------------------------------

MESSAGES: list[Any] = []
#: Each way to ask, with the key of its question, given a deadline.
WAYS: dict[str, Callable[..., object]] = {
    "form": lambda ctx, **deadline: ctx.elicit("form", "Deploy?", SCHEMA, **deadline),
    "model": lambda ctx, **deadline: ctx.sample("model", MESSAGES, max_tokens=5, **deadline),
    "roots": lambda ctx, **deadline: ctx.roots("roots", **deadline),
    "asked": lambda ctx, **deadline: ctx.ask({"asked": QUESTION}, **deadline),
}
NOBODY = {"action": "cancel"}


@pytest.mark.parametrize("way", WAYS)
def test_a_question_may_have_a_deadline(make_context: Make, way: str) -> None:
    for deadline, expected in (({}, {}), ({"deadline_seconds": None}, {}), ({"deadline_seconds": 0.5}, {way: 0.5})):
        with pytest.raises(Suspend) as caught:
            WAYS[way](make_context(), **deadline)
        assert (list(caught.value.requests), caught.value.deadlines) == ([way], expected)


def test_a_deadline_is_for_each_question_that_is_still_open(make_context: Make) -> None:
    ctx = make_context(recorded={"a": recorded(YES)})
    with pytest.raises(Suspend) as caught:
        ctx.ask({"a": QUESTION, "b": QUESTION, "c": ROOTS}, deadline_seconds=60)
    assert caught.value.deadlines == {"b": 60, "c": 60}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), 1e12, "60", True, [1]])
def test_a_wrong_deadline_is_a_mistake_of_the_tool_also_where_the_answer_is_known(
    make_context: Make, way: str, wrong: Any
) -> None:
    for known in ({}, {"form": recorded(YES), "asked": recorded(YES)}):
        with pytest.raises(InvalidInputRequest, match="deadline_seconds"):
            WAYS[way](make_context(recorded=known), deadline_seconds=wrong)


def test_to_a_form_that_nobody_answered_the_answer_is_cancel(make_context: Make) -> None:
    ctx = make_context(recorded={"form": recorded(NOBODY)}, ref=REF)
    assert ctx.elicit("form", "Deploy?", SCHEMA, deadline_seconds=1) == NOBODY


@pytest.mark.parametrize("way", ["model", "roots"])
def test_what_has_no_answer_cancel_raises_where_nobody_answered(make_context: Make, way: str) -> None:
    with pytest.raises(Suspend) as caught:
        WAYS[way](make_context())
    ctx = make_context(recorded={way: recorded(NOBODY, caught.value.requests[way])}, ref=REF)
    with pytest.raises(NobodyAnswered, match=way) as told:
        WAYS[way](ctx, deadline_seconds=1)
    assert told.value.keys == (way,)
    assert isinstance(told.value, ToolError)


def test_of_several_questions_those_without_answer_are_named_and_the_other_answers_stay(make_context: Make) -> None:
    known = {"a": recorded(NOBODY), "b": recorded(NOBODY, ROOTS), "c": recorded({"roots": []}, ROOTS)}
    ctx = make_context(recorded=known, ref=REF)
    with pytest.raises(NobodyAnswered) as told:
        ctx.ask({"a": QUESTION, "b": ROOTS, "c": ROOTS})
    assert told.value.keys == ("b",)
    assert ctx.answers == {"a": NOBODY, "b": NOBODY, "c": {"roots": []}}


# -- answers that were recorded -------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [YES, NO, {"action": "cancel"}, {**YES, "extra": [1]}])
@pytest.mark.parametrize("ref", [None, REF])
def test_a_recorded_answer_is_returned_as_the_client_sent_it(
    make_context: Make, answer: dict[str, Any], ref: UUID | None
) -> None:
    ctx = make_context(recorded={"approval": recorded(answer)}, ref=ref)
    assert ctx.elicit("approval", "Deploy?", SCHEMA) == answer
    assert ctx.answers == {"approval": answer}


def test_a_recorded_answer_is_not_judged_again(make_context: Make) -> None:
    odd = {"action": "accept", "content": {"ok": "maybe"}}
    assert make_context(recorded={"k": recorded(odd)}).elicit("k", "Deploy?", SCHEMA) == odd


def test_answers_of_a_model_and_of_roots_are_returned_too(make_context: Make) -> None:
    answer = {"roots": [{"uri": "file:///srv"}]}
    assert make_context(recorded={"roots": recorded(answer, ROOTS)}).roots() == answer
    question = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
    answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"}}
    assert make_context(recorded={"k": recorded(answer, question)}).sample("k", [], max_tokens=5) == answer


def test_only_what_has_no_answer_yet_is_asked(make_context: Make) -> None:
    ctx = make_context(recorded={"a": recorded(YES)})
    assert asked(lambda: ctx.ask({"a": QUESTION, "b": QUESTION, "c": ROOTS})) == {"b": QUESTION, "c": ROOTS}


def test_several_answers_are_returned_by_key(make_context: Make) -> None:
    ctx = make_context(recorded={"a": recorded(YES), "b": recorded(NO), "other": recorded(NO)})
    assert ctx.ask({"b": QUESTION, "a": QUESTION}) == {"b": NO, "a": YES}


@pytest.mark.parametrize(
    "other",
    [
        {**QUESTION, "params": {**QUESTION["params"], "message": "Really deploy?"}},
        {**QUESTION, "params": {**QUESTION["params"], "requestedSchema": {"type": "object"}}},
        ROOTS,
    ],
)
@pytest.mark.parametrize("ref", [None, REF])
def test_another_question_under_a_spent_key_is_asked_and_not_answered_with_the_old(
    make_context: Make, other: dict[str, Any], ref: UUID | None
) -> None:
    ctx = make_context(recorded={"k": recorded(YES)}, ref=ref)
    assert asked(lambda: ctx.ask({"k": other})) == {"k": other}


def test_the_order_of_members_makes_no_other_question(make_context: Make) -> None:
    turned = {name: QUESTION["params"][name] for name in reversed(QUESTION["params"])}
    ctx = make_context(recorded={"k": recorded(YES)})
    assert ctx.ask({"k": {"params": turned, "method": QUESTION["method"]}}) == {"k": YES}


# -- answers that came with the call --------------------------------------------------------------------------------


@pytest.mark.parametrize("ref", [None, REF])
def test_an_answer_given_before_it_was_asked_for_is_taken(make_context: Make, ref: UUID | None) -> None:
    ctx = make_context(given={"k": YES, "unasked": {"any": 1}}, ref=ref)
    assert ctx.answers == {}  # nobody has asked yet, so nothing was checked
    assert ctx.elicit("k", "Deploy?", SCHEMA) == YES
    assert ctx.answers == {"k": YES}


def test_an_answer_that_was_taken_belongs_to_its_question(make_context: Make) -> None:
    ctx = make_context(given={"k": YES})
    assert ctx.ask({"k": QUESTION}) == {"k": YES}
    assert ctx.recorded["k"] == recorded(YES)
    assert asked(lambda: ctx.ask({"k": ROOTS})) == {"k": ROOTS}


@pytest.mark.parametrize(
    "wrong", [{"action": "accept", "content": {"ok": "yes"}}, {"action": "maybe"}, {}, 5, None, "yes"]
)
def test_a_wrong_answer_is_told_to_the_client_that_waits(make_context: Make, wrong: Any) -> None:
    ctx = make_context(given={"approval": wrong})
    with pytest.raises(McpError, match="'approval'") as caught:
        ctx.elicit("approval", "Deploy?", SCHEMA)
    assert caught.value.code == -32602
    assert ctx.answers == {}


@pytest.mark.parametrize(
    "wrong", [{"action": "accept", "content": {"ok": "yes"}}, {"action": "maybe"}, {}, 5, None, "yes"]
)
def test_a_wrong_answer_from_before_the_task_is_asked_for_again(make_context: Make, wrong: Any) -> None:
    ctx = make_context(given={"approval": wrong}, ref=REF)
    assert asked(lambda: ctx.elicit("approval", "Deploy?", SCHEMA)) == {"approval": QUESTION}


def test_a_lenient_tool_takes_a_form_that_violates_its_schema(make_context: Make) -> None:
    odd = {"action": "accept", "content": {"ok": "yes"}}
    ctx = make_context({"strict_answers": False}, given={"k": odd})
    assert ctx.elicit("k", "Deploy?", SCHEMA) == odd
    with pytest.raises(McpError):
        make_context({"strict_answers": False}, given={"k": {}}).elicit("k", "Deploy?", SCHEMA)


def test_what_the_store_keeps_comes_before_what_came_with_the_call(make_context: Make) -> None:
    ctx = make_context(recorded={"k": recorded(YES)}, given={"k": NO})
    assert ctx.elicit("k", "Deploy?", SCHEMA) == YES


# -- what the client declared ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "required"),
    [
        (lambda ctx: ctx.elicit("k", "m", SCHEMA), {"elicitation": {"form": {}}}),
        (lambda ctx: ctx.sample("k", [], max_tokens=5), {"sampling": {}}),
        (lambda ctx: ctx.sample("k", [], max_tokens=5, tools=[]), {"sampling": {"tools": {}}}),
        (lambda ctx: ctx.roots(), {"roots": {}}),
        (lambda ctx: ctx.ask({"a": QUESTION, "b": ROOTS}), {"elicitation": {"form": {}}, "roots": {}}),
    ],
)
def test_a_kind_that_the_client_did_not_declare_is_refused(
    make_context: Make, ask: Callable[[TaskContext], object], required: dict[str, Any]
) -> None:
    with pytest.raises(McpError) as caught:
        ask(make_context(capabilities={}))
    assert caught.value.code == -32021
    assert caught.value.data == {"requiredCapabilities": required}


def test_one_undeclared_kind_keeps_the_others_from_being_asked(make_context: Make) -> None:
    with pytest.raises(McpError) as caught:
        make_context(capabilities={"elicitation": {}}).ask({"a": QUESTION, "b": ROOTS})
    assert caught.value.data == {"requiredCapabilities": {"roots": {}}}


def test_an_answer_that_is_there_needs_no_capability(make_context: Make) -> None:
    ctx = make_context(capabilities={}, recorded={"k": recorded(YES)})
    assert ctx.elicit("k", "Deploy?", SCHEMA) == YES


def test_a_url_needs_a_client_that_opens_urls(make_context: Make) -> None:
    question = {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://x.example"}}
    with pytest.raises(McpError) as caught:
        make_context(capabilities={"elicitation": {}}).ask({"k": question})
    assert caught.value.data == {"requiredCapabilities": {"elicitation": {"url": {}}}}
    ctx = make_context(capabilities={"elicitation": {"url": {}}})
    assert asked(lambda: ctx.ask({"k": question})) == {"k": question}


# -- progress -------------------------------------------------------------------------------------------------------


@pytest.fixture
def reports() -> list[tuple[Any, Any, Any]]:
    """What was reported, in order."""
    return []


@pytest.fixture
def reporting(make_context: Make, reports: list[tuple[Any, Any, Any]]) -> TaskContext:
    return make_context({"report": lambda *report: reports.append(report)})


def test_progress_is_handed_on(reporting: TaskContext, reports: list[tuple[Any, Any, Any]]) -> None:
    reporting.progress("Reading rows", done=3, total=9)
    reporting.progress("Nearly there")
    reporting.progress(done=0.5)
    reporting.progress()
    assert reports == [("Reading rows", 3, 9), ("Nearly there", None, None), (None, 0.5, None), (None, None, None)]


def test_a_message_for_another_moment_is_said_now(reporting: TaskContext, reports: list[tuple[Any, Any, Any]]) -> None:
    reporting.progress(gettext_lazy("Reading rows"))
    assert reports == [("Reading rows", None, None)]
    assert type(reports[0][0]) is str


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["done", "total"])
def test_a_number_that_no_json_can_carry_is_refused_by_name(reporting: TaskContext, name: str, number: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a finite number"):
        reporting.progress("m", **{name: number})


# -- becoming a task ------------------------------------------------------------------------------------------------


def test_a_run_that_may_becomes_a_task(make_context: Make) -> None:
    ctx = make_context({"may_become_task": True})

    def careless() -> None:
        try:
            ctx.become_task()
        except Exception:
            pytest.fail("an ordinary except caught it")

    with pytest.raises(BecomeTask):
        careless()


def test_a_run_that_may_not_goes_on(make_context: Make) -> None:
    make_context({"may_become_task": False}).become_task()
    make_context(ref=REF, leg=1).become_task()


# -- keys for other systems -----------------------------------------------------------------------------------------


def test_a_key_is_the_same_in_every_leg_of_a_task(make_context: Make) -> None:
    first = make_context(ref=REF, leg=1).idempotency_key("charge")
    assert make_context(ref=REF, leg=2).idempotency_key("charge") == first
    assert UUID(first)


def test_a_key_differs_by_name_and_by_task(make_context: Make) -> None:
    contexts = [make_context(ref=REF), make_context(ref=uuid4())]
    keys = {ctx.idempotency_key(name) for ctx in contexts for name in ("charge", "mail")}
    assert len(keys) == 4


def test_a_key_is_new_with_each_inline_call(make_context: Make) -> None:
    ctx = make_context()
    assert ctx.idempotency_key("charge") != ctx.idempotency_key("charge")


# -- what a handler may know ----------------------------------------------------------------------------------------


def test_a_context_sees_its_token(make_context: Make) -> None:
    ctx = make_context()
    assert not ctx.cancelled
    ctx.token.raise_(CANCELLED)
    assert ctx.cancelled
    assert ctx.token.observed


def test_the_user_is_read_at_each_access(make_context: Make) -> None:
    users = iter(["before", None])
    ctx = make_context({"load_user": lambda: next(users)})
    assert ctx.user == "before"
    assert ctx.user is None


@pytest.mark.parametrize("granted", [True, False])
def test_a_longer_life_is_asked_of_the_surroundings(make_context: Make, granted: bool) -> None:
    wanted: list[int] = []

    def set_ttl(ttl_ms: int) -> bool:
        wanted.append(ttl_ms)
        return granted

    assert make_context({"set_ttl": set_ttl}).set_ttl(5000) is granted
    assert wanted == [5000]


def test_an_inline_run_has_no_task(make_context: Make) -> None:
    ctx = make_context()
    assert (ctx.ref, ctx.leg, ctx.owner, ctx.scopes, ctx.meta, ctx.answers) == (None, 0, None, frozenset(), {}, {})


def test_contexts_share_nothing(make_context: Make) -> None:
    one, other = make_context(), make_context()
    one.recorded["k"] = recorded(YES)
    one.meta["a"] = 1
    assert (other.recorded, other.meta) == ({}, {})


def test_questions_can_be_returned_instead() -> None:
    assert InputRequired({"k": ROOTS}).requests == {"k": ROOTS}
