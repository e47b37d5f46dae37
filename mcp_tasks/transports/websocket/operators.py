"""
The socket of an open list in the admin: it says that a task changed, and never what it is now.

The page then asks for its rows as it does every few seconds anyway, so one place decides what an operator may see.
Who may not look at all is not told when to. Without this socket pages are a few seconds late, and nothing else.
"""

import asyncio
import logging
from functools import partial
from typing import Any
from uuid import UUID

from django.db import Error as DatabaseError
from django.urls import get_script_prefix

from ...access.authentication import provide_session
from ...execution.threads import Busy
from ...notifications.hub import hub
from ...notifications.listeners import State
from ...notifications.places import Place, places
from ...operators.policy import may_view, visible
from ...protocol.codec import JsonError, dumps, loads
from ...protocol.errors import McpError
from ...store import get_store
from ...store.locking import database, rows
from ..lanes import lanes, on_thread
from ..listening import RECHECK_SECONDS
from .authentication import read
from .socket import Socket

logger = logging.getLogger("mcp_tasks.operator")

#: Close codes, as on the clients' socket; 4400 for a message that no page sends.
BAD_MESSAGE, FORBIDDEN, TOO_MANY, INTERNAL, UNAVAILABLE = 4400, 4403, 4429, 4500, 4503
#: The rows of a page, and the length of the message that names them.
MOST_ROWS, LONGEST = 100, 8 * 1024

_mounted: list[str] = []


def mounted_at(path: str) -> None:
    """This process serves the socket on this path, below the root of the site."""
    _mounted[:] = [path.lstrip("/")]


def address() -> str | None:
    """The path of the socket for a page of this process; None where it serves none, as under WSGI."""
    return f"{get_script_prefix()}{_mounted[0]}" if _mounted else None


class Operator:
    """Who opened a socket, known by the session of the admin, and looked at anew each time."""

    def __init__(self, scope: Any) -> None:
        self._scope = scope

    def key(self) -> str | None:
        """By what its sockets are counted; None where nobody is signed in who may view tasks. Queries."""
        request = self._request()
        if "\x00" in request.headers.get("Cookie", ""):
            return None  # PostgreSQL would fail on it instead of finding nobody
        user: Any = request.user
        return f"operator:{user.pk}" if may_view(user) else None

    def visible_of(self, refs: set[UUID]) -> set[UUID] | None:
        """
        The unfinished ones of these tasks that exist for this operator; None where it may view none any more, or the
        policy cannot say. Queries.

        A finished task does not change, and to watch it would be to read its result.
        """
        request = self._request()
        if not may_view(request.user):
            return None
        try:
            found = visible(request, rows(database()).live()).filter(pk__in=refs)
            return set(found.values_list("pk", flat=True))
        except DatabaseError:
            raise
        except Exception:  # a policy that needs what a middleware sets fails each time: the page stops to come back
            logger.exception("the policy cannot be asked for a socket", extra={"event": "internal_error"})
            return None

    def _request(self) -> Any:
        request = read(self._scope).request
        provide_session(request)
        return request


class OperatorConsumer(Socket):
    """``{"refs": [...]}`` names the rows of a page; ``{"ref": …, "revision": …}`` says that one of them changed."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the socket; whatever ends it, nothing is watched for it any more."""
        self._tasks: list[asyncio.Task[None]] = []
        self._refs: set[UUID] = set()
        self._pokes: dict[UUID, int | None] = {}
        self._woken = asyncio.Event()
        self._looking = asyncio.Lock()
        self._place: Place | None = None
        self._is_open = False
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()

    async def connect(self) -> None:
        """A browser of this very site, in which somebody is signed in who may view tasks."""
        if await self.handshake() is None:
            return
        self._operator = Operator(self.scope)
        code = await self._admit()
        if code is not None:
            await self.refuse(code)
            return
        await self.accept()
        self._is_open = True
        self._tasks = [asyncio.create_task(self._tell()), asyncio.create_task(self._look_again())]

    async def _admit(self) -> int | None:
        try:
            key = await on_thread(lanes, self._operator.key)
            if key is None:
                return FORBIDDEN
            self._place = places.take(key)
        except Busy:
            return UNAVAILABLE
        except McpError:
            return TOO_MANY
        except Exception:
            logger.exception("a socket could not be opened", extra={"event": "internal_error"})
            return INTERNAL
        return None

    async def disconnect(self, code: int) -> None:
        """The page is gone."""
        self._leave()

    def _leave(self) -> None:
        self._is_open = False
        for task in self._tasks:
            if task is not asyncio.current_task():  # which may be about to say why
                task.cancel()
        self._watch(set())
        if self._place is not None:
            self._place.release()

    async def _end(self, code: int) -> None:
        if self._is_open:
            self._leave()
            await self.close(code=code)

    # -- what is watched ------------------------------------------------------------------------------------------

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """The rows of the page, in the place of those before."""
        refs = _refs_in(text_data)
        if refs is None:
            await self._end(BAD_MESSAGE)
        elif self._is_open:
            async with self._looking:  # or a look at older rows could end after this one
                await self._look(refs)

    async def _look_again(self) -> None:
        while self._is_open:
            await asyncio.sleep(RECHECK_SECONDS)
            async with self._looking:
                before = self._refs
                await self._look(before)
                # Ended or taken away, and perhaps before anybody could tell: the page asks what they are.
                self._poke(dict.fromkeys(before - self._refs))

    async def _look(self, refs: set[UUID]) -> None:
        """Watch those of these tasks that this operator may see now."""
        try:
            found = await on_thread(lanes, partial(self._operator.visible_of, refs))
        except Busy:
            return  # the page goes on to ask, and this socket looks again
        except Exception:
            logger.exception("rights of an operator cannot be looked at", extra={"event": "internal_error"})
            await self._end(INTERNAL)
            return
        if found is None:
            await self._end(FORBIDDEN)
        elif self._is_open:
            self._watch(found)

    def _watch(self, refs: set[UUID]) -> None:
        before, self._refs = self._refs, refs
        if before == refs:
            return
        loop = asyncio.get_running_loop()
        hub.unwatch_all([(ref, self) for ref in before - refs], loop)
        for ref in refs - before:
            hub.watch(get_store(), ref, self, loop)

    # -- what is said ---------------------------------------------------------------------------------------------

    def changed(self, ref: UUID, state: State | None) -> bool:
        """A task has another state, or is gone; of one that has its outcome nothing more is to be heard."""
        if ref not in self._refs:
            return True
        self._poke({ref: None if state is None else state.revision})
        return state is None or state.is_terminal

    def _poke(self, pokes: dict[UUID, int | None]) -> None:
        self._pokes.update(pokes)
        self._woken.set()

    async def _tell(self) -> None:
        """One message for each task, however often it changed while the browser did not read."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            pokes, self._pokes = self._pokes, {}
            for ref, revision in pokes.items():
                try:
                    await self.send(text_data=dumps({"ref": str(ref), "revision": revision}))
                except Exception:  # every server has its own error for a socket that was closed meanwhile
                    logger.debug("a message reached nobody", exc_info=True)
                    return


def _refs_in(text: str | None) -> set[UUID] | None:
    if text is None or len(text) > LONGEST:
        return None
    try:
        body = loads(text)
    except JsonError:
        return None
    refs = body.get("refs") if isinstance(body, dict) else None
    if not isinstance(refs, list) or len(refs) > MOST_ROWS:
        return None
    try:
        return {UUID(ref) for ref in refs}
    except (ValueError, AttributeError, TypeError):
        return None
