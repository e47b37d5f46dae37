"""The page as a person uses it: what can be done, and what can be seen."""

import json
import re
from typing import Any
from urllib.parse import urlsplit

from .demo import Demo

#: A Content-Security-Policy that holds back something reports it here, beside the message in the console.
REPORT = (
    "document.addEventListener('securitypolicyviolation', (event) => console.error('CSP', event.violatedDirective))"
)
PATIENCE_MS = 10_000


class Console:
    """One page in a browser profile of its own."""

    def __init__(self, context: Any, site: Demo) -> None:
        self.site = site
        self.sent: list[dict[str, Any]] = []
        self.received: list[dict[str, Any]] = []
        self.sockets = 0
        self.complaints: list[str] = []
        self.requested: list[str] = []
        #: Parts of complaints that a test brings about on purpose.
        self.expected: tuple[str, ...] = ()
        self._context = context
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(REPORT)
        self.page = context.new_page()
        self.page.on("console", lambda message: self._complain(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda problem: self._complain(str(problem)))
        self.page.on("request", lambda request: self._note_request(request.url))
        self.page.on("websocket", self._note_socket)

    def visit(self) -> None:
        """Open the page."""
        self.page.goto(self.site.url)

    def close(self) -> None:
        """Leave."""
        self._context.close()

    def sign_in_as(self, name: str) -> None:
        """Sign in and wait until the tools are there."""
        self.sign_in(self.site.tokens[name])
        self.page.locator("#tools details").first.wait_for()

    def sign_in(self, token: str) -> None:
        """Fill in the form and send it."""
        self.token_field.fill(token)
        self.button("Sign in").click()

    @property
    def token_field(self) -> Any:
        """Where the token goes."""
        return self.page.get_by_role("textbox", name="Token", exact=True)

    def button(self, name: str) -> Any:
        """A button by the whole of its name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def tool(self, name: str) -> Any:
        """A tool of the list, opened."""
        tool = self.page.locator("#tools details", has=self.page.locator(f"summary code:text-is('{name}')"))
        if tool.get_attribute("open") is None:
            tool.locator("summary").click()
        return tool

    def start(self, name: str, **values: str) -> Any:
        """Fill in a tool's form and start it; returns its card."""
        tool = self.tool(name)
        for field, value in values.items():
            labelled(tool, field).fill(value)
        tool.get_by_role("button").click()
        return self.card(name)

    def card(self, name: str) -> Any:
        """The newest card of a tool."""
        return self.page.get_by_role("listitem", name=name).first

    def wait_for_words(self, words: str, patience_ms: float = PATIENCE_MS) -> None:
        """Wait until the connection's state reads like this."""
        self.page.locator("#connection", has_text=re.compile(words)).wait_for(timeout=patience_ms)

    def wait_for_state(self, card: Any, words: str) -> None:
        """Wait until a card's state reads exactly like this."""
        card.locator(".chip", has_text=re.compile(f"^{re.escape(words)}$")).wait_for()

    @property
    def announcements(self) -> list[str]:
        """What a screen reader was told, in order."""
        said: list[str] = self.page.locator("#announcements p").all_text_contents()
        return said

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        pixels: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return pixels

    def sent_methods(self) -> list[str]:
        """The methods of all messages that the page sent over its sockets."""
        return [message["method"] for message in self.sent]

    def _complain(self, text: str) -> None:
        if not any(part in text for part in self.expected):
            self.complaints.append(text)

    def _note_request(self, url: str) -> None:
        self.requested.append(url)
        if urlsplit(url).netloc != urlsplit(self.site.url).netloc:
            self._complain(f"a request to another host: {url}")

    def _note_socket(self, socket: Any) -> None:
        self.sockets += 1
        self._note_request(socket.url)
        socket.on("framesent", lambda payload: self.sent.append(json.loads(payload)))
        socket.on("framereceived", lambda payload: self.received.append(json.loads(payload)))


def labelled(part: Any, label: str) -> Any:
    """A field by the name of its property: the label also says whether it is required."""
    return part.get_by_label(re.compile(rf"^{re.escape(label)} (required|optional)$"))
