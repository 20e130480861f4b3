"""Our own py-spy on its way to an agent: sent once an agent, where it is needed, and bounded."""

from __future__ import annotations

import hashlib

from dflash_watch.agent.means import NEEDS_TOOL
from dflash_watch.clock import Clock
from dflash_watch.frame import Hello
from dflash_watch.journal import Note
from dflash_watch.rates import Bucket
from dflash_watch.transport import tool
from dflash_watch.transport.agent_link import AgentLink
from dflash_watch.transport.greeting import Reply

SENDS, SEND_EVERY_S = 4, 900.0
"""A way that breaks all the time shall not carry eight megabytes each time."""


class ToolOffer:
    """Says with each stack request whether our py-spy is to be had, and sends it when asked.

    An agent asks where the run has none that answers: most runs spare the way eight megabytes.
    """

    def __init__(self, note: Note, clock: Clock) -> None:
        self._note, self._clock = note, clock
        self._bucket = Bucket(SENDS, SEND_EVERY_S)
        self._is_decided = False
        self._why_not: str | None = None

    def begin(self) -> None:
        """Another agent: it has got nothing yet."""
        self._is_decided = False
        self._why_not = None

    def keys(self) -> dict[str, object]:
        """What a request for stacks says of the tool."""
        if not self._is_decided:
            return {"can_push": True}
        return {} if self._why_not is None else {"no_tool": self._why_not}

    def answer(self, link: AgentLink, hello: Hello | None, reply: Reply) -> bool:
        """Send it where that is what the reply asks for; whether to ask for the stacks again."""
        if reply.error != NEEDS_TOOL or hello is None:
            return False
        if not self._is_decided:
            self._is_decided = True
            self._why_not = self._send(link, hello)
        return True

    def _send(self, link: AgentLink, hello: Hello) -> str | None:
        """Send it; why it was not, else None."""
        offered = tool.read_tool(hello.machine)
        if isinstance(offered, str):
            return offered
        if not self._bucket.take(self._clock.monotonic_s()):
            why = f"not sent: after {SENDS} times one in {SEND_EVERY_S / 60:.0f} minutes"
            self._note("tool", why, name=tool.NAME)
            return why
        link.send_tool(tool.NAME, offered)
        digest = hashlib.sha256(offered).hexdigest()
        self._note("tool", "sent", name=tool.NAME, bytes=len(offered), sha256=digest)
        return None
