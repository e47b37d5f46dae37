"""The contract of what follows a change: told once it is visible to everybody, and never in the change's way."""

import threading
from typing import Any
from uuid import UUID

import pytest
from django.db import connections

from ..store import effects
from ..store.base import TaskStore
from .contract_support import (
    ACCEPT,
    RESULT,
    ContractBase,
    Heard,
    claimed,
    create,
    parked,
    question,
    snapshot,
    view,
)


class EffectsContract(ContractBase):
    """Tokens, doorbell and listeners come after the commit; a lost one is repaired by somebody else."""

    def test_who_is_told_of_a_change_finds_it_from_every_thread(
        self, store: TaskStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[tuple[int, ...]] = []

        def look(ref: UUID, revision: int) -> None:
            found: list[int] = []

            def read() -> None:
                found.append(view(store, ref).revision)
                connections.close_all()

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            reader.join(10)
            seen.append((revision, *found))

        monkeypatch.setattr(effects, "publish_hooks", [look])
        ref = create(store).ref
        store.set_status(ref, "Reading")
        store.set_task_meta(ref, {"k": "v"})
        store.require_input(ref, {"approval": question()})
        store.apply_input_responses(ref, {"approval": ACCEPT})
        store.set_ttl(ref, 7_200_000)
        store.complete_task(ref, RESULT)
        assert seen == [(revision, revision) for revision in range(2, 8)]

    def test_the_doorbell_rings_for_a_task_that_can_be_claimed(
        self, store: TaskStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        claims: list[Any] = []
        monkeypatch.setattr(effects, "enqueue_hooks", [lambda ref: claims.append(store.claim(ref))])
        ref = create(store, max_attempts=2).ref
        store.release(ref, 1)
        store.require_input(ref, {"approval": question()}, leg=2)
        store.apply_input_responses(ref, {"approval": ACCEPT})
        assert [claim.leg for claim in claims] == [1, 2, 3]

    def test_a_listener_that_fails_changes_nothing_and_silences_nobody(
        self, store: TaskStore, heard: Heard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise ConnectionError("the broker is down")

        for name in ("token_hooks", "enqueue_hooks", "publish_hooks"):
            monkeypatch.setattr(effects, name, [fail, *getattr(effects, name)])
        ref = create(store).ref
        assert store.set_status(ref, "Reading")
        assert store.cancel_task(ref) is not None
        assert view(store, ref).status == "cancelled"
        assert heard.rung == [ref]
        assert heard.tokens == [(ref, "cancelled")]
        assert heard.published == [(ref, 2), (ref, 3)]

    def test_a_token_goes_up_before_the_listeners_are_told(
        self, store: TaskStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        order: list[str] = []
        monkeypatch.setattr(effects, "token_hooks", [lambda *_: order.append("token")])
        monkeypatch.setattr(effects, "publish_hooks", [lambda *_: order.append("publish")])
        store.cancel_task(create(store).ref)
        assert order == ["token", "publish"]

    def test_what_is_not_applied_tells_nobody(self, store: TaskStore, heard: Heard) -> None:
        leg, waiting = claimed(store), parked(store)
        before = snapshot(store, leg.ref), snapshot(store, waiting)
        heard.forget()
        store.set_status(leg.ref, None, leg=leg.leg)
        store.set_status(leg.ref, "Zombie", leg=leg.leg + 1)
        store.complete_task(waiting, RESULT, leg=1)
        store.apply_input_responses(waiting, {"ghost": ACCEPT})
        assert heard.nothing
        assert (snapshot(store, leg.ref), snapshot(store, waiting)) == before
