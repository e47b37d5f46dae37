"""What changes is seen as it happens, over the socket and without asking again and again."""

from .console import Console

#: Notes each value that the progress bar of the first card takes.
WATCH = """
    const bar = document.querySelector('#calls progress');
    window.values = [];
    new MutationObserver(() => window.values.push(bar.value)).observe(bar, { attributes: true });
"""


def test_progress_is_seen_live_without_polling(alice: Console) -> None:
    card = alice.start("countdown", n="15")
    card.locator("progress").wait_for()
    alice.page.evaluate(WATCH)
    assert card.get_by_role("progressbar", name="Progress of countdown").is_visible()
    alice.wait_for_state(card, "Completed")
    values = alice.page.evaluate("window.values")
    assert values == sorted(values)
    assert len(set(values)) >= 5, values
    assert "tasks/get" not in alice.sent_methods()
    task_ids = {m["result"]["taskId"] for m in alice.received if m.get("result", {}).get("resultType") == "task"}
    told = [m["params"] for m in alice.received if m.get("method") == "notifications/tasks"]
    assert {task["taskId"] for task in told} == task_ids
    assert len(told) >= 7


def test_a_message_and_numbers_stand_beside_the_bar(alice: Console) -> None:
    card = alice.start("build_report", rows="60")
    card.locator(".message", has_text="Reading rows").wait_for()
    card.locator(".progress", has_text=" of 60").wait_for()
    alice.wait_for_state(card, "Completed")


def test_changes_of_state_are_announced_and_progress_is_not(alice: Console) -> None:
    card = alice.start("countdown", n="10")
    alice.wait_for_state(card, "Completed")
    said = [text for text in alice.announcements if "countdown" in text]
    assert said == ["countdown: Working", "countdown: Completed. liftoff"]
    assert alice.page.locator("#announcements").get_attribute("aria-live") == "polite"


def test_a_listen_ends_when_its_task_has_ended(alice: Console) -> None:
    card = alice.start("countdown", n="2")
    alice.wait_for_state(card, "Completed")
    alice.page.wait_for_timeout(300)
    listens = [message["id"] for message in alice.sent if message.get("method") == "subscriptions/listen"]
    ended = [m["params"]["requestId"] for m in alice.sent if m.get("method") == "notifications/cancelled"]
    ended += [message["id"] for message in alice.received if "result" in message]
    assert set(listens) <= set(ended)


def test_several_tasks_are_watched_at_once(alice: Console) -> None:
    long, short = alice.start("countdown", n="12"), alice.start("build_report", rows="15")
    echo = alice.start("slow_echo", text="between", seconds="0.2")
    for card in (echo, short, long):
        alice.wait_for_state(card, "Completed")
