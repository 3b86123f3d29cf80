"""Basic authentication against bcrypt hashes, off the event loop, and without telling who exists."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kvexporter.web.config_values import Users

MAX_REMEMBERED = 100
"""Passed checks that are remembered: a scrape must not cost a bcrypt computation each time."""
_BCRYPT_BYTES = 72
"""bcrypt uses no more of a password, and all tools cut it here; the library refuses longer ones."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client claims."""

    user: bytes
    password: bytes = field(repr=False)


def read_credentials(values: Sequence[bytes]) -> Credentials | None:
    """Read the values of a request's Authorization headers; None if they are not one user and password."""
    if len(values) != 1:
        return None
    scheme, _, encoded = values[0].partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return Credentials(user, password) if colon else None


class Authenticator:
    """Checks credentials, one at a time in a thread, and remembers those that passed."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._passed: OrderedDict[bytes, None] = OrderedDict()
        # One at a time: a flood of wrong passwords may keep one core busy, and no more.
        self._turn = asyncio.Lock()
        self._thread: ThreadPoolExecutor | None = None

    async def admits(self, users: Users, credentials: Credentials) -> bool:
        """Whether it is one of these users with the right password."""
        known = users.hashes.get(credentials.user)
        # An unknown user's password is compared all the same, with a hash that is the same each time, so that the
        # answer takes as long as for a known one: whatever the costs of the hashes are.
        hashed = known if known is not None else self._decoy(users, credentials.user)
        mark = self._digest(credentials.user, hashed, credentials.password)
        if known is not None and mark in self._passed:
            self._passed.move_to_end(mark)
            return True
        async with self._turn:
            # Several first requests of one client wait here together.
            right = mark in self._passed or await self._compare(credentials.password, hashed)
        if known is None or not right:
            return False
        self._passed[mark] = None
        while len(self._passed) > MAX_REMEMBERED:
            self._passed.popitem(last=False)
        return True

    def _decoy(self, users: Users, user: bytes) -> bytes:
        hashes = list(users.hashes.values())
        return hashes[int.from_bytes(self._digest(user)[:8], "big") % len(hashes)]

    def _digest(self, *parts: bytes) -> bytes:
        # Keyed, and of a fixed length: no password is held, and none can be guessed from what is.
        joined = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, joined, "sha256")

    async def _compare(self, password: bytes, hashed: bytes) -> bool:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "bcrypt")
        return await asyncio.get_running_loop().run_in_executor(self._thread, _matches, password, hashed)


def _matches(password: bytes, hashed: bytes) -> bool:
    # Loaded when first needed: most installations have no users.
    import bcrypt

    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed)
    except ValueError:
        return False  # versions of the library that take no NUL in a password
