"""Check the credentials of AUTH: any user name, with an API key that may send as the password.

Every refusal looks the same and takes the same time, so that a client can't tell apart made-up, malformed, revoked or
expired keys, keys used from outside their networks, suspended accounts, and keys without the scope.
"""

import asyncio
from typing import Final

import structlog
from msgspec import Struct

from engine.base.errors import Refusal
from engine.base.netaddr import SHARES, network_of, wider_networks
from engine.base.settings import Settings
from engine.people.api_keys import key_auth, rules
from engine.people.api_keys.key_auth import Caller, Keys
from engine.store import metrics
from engine.store.rate_limits import RateLimiter
from mta.submission import counters, local_login

SCOPES: Final = ("emails:send",)
# Failures per network (an IPv4 address or /64) and per key id: 20 at once, then one in six seconds. A valid key is
# never delayed, so that failing with its id can't lock it out; 190 random bits need no lock.
FAILURES_PER_S: Final = 1 / 6
BURST_S: Final = 120.0
SLOWED: Final = 5  # a client that fails too often waits this many times as long

_log = structlog.get_logger("relay")


class SubmissionLogin(Struct, frozen=True):
    """A key that was valid at AUTH; the session checks it again before each message."""

    key: rules.FreshApiKey
    caller: Caller
    address: str  # of the client: a key may be limited to networks


class LoginRefused(Exception):  # noqa: N818 - an answer, not a fault
    """The password is not a key that may send. `too_often`: the client failed too often and must disconnect."""

    def __init__(self, *, too_often: bool) -> None:
        super().__init__()
        self.too_often = too_often


class SubmissionAuth:
    """The check of passwords in one process; it delays clients that guess."""

    def __init__(self, keys: Keys, limits: RateLimiter, settings: Settings) -> None:
        self._keys = keys
        self._limits = limits
        self._delay_s = settings.relay_login_delay_s
        self._state = settings.state

    async def log_in(self, password: bytes, address: str) -> SubmissionLogin:
        """Return the key behind a password.

        Raises LoginRefused, a fixed time after the attempt began whatever the cause, or DatabaseUnavailable when the
        database can't be asked.
        """
        began = asyncio.get_running_loop().time()
        key = rules.parse(password.decode("latin-1"))
        try:
            caller = await self._checked(key, address)
        except Refusal:
            too_often = await self._count(key, address)
            waits_s = self._delay_s * (SLOWED if too_often else 1)
            metrics.TALLY.add(counters.LOGINS, "slowed" if too_often else "refused")
            _log.warning("login refused", peer=address, key=None if key is None else key.key_id, slowed=too_often)
            await asyncio.sleep(max(0.0, began + waits_s - asyncio.get_running_loop().time()))
            raise LoginRefused(too_often=too_often) from None
        assert key is not None
        metrics.TALLY.add(counters.LOGINS, "ok")
        return SubmissionLogin(key, caller, address)

    async def log_in_locally(self, address: str) -> SubmissionLogin:
        """Return the key of the first run, for a program on this machine that gives no password.

        Raises LoginRefused if there is none or it may not send, and DatabaseUnavailable as `log_in` does.
        """
        key = await asyncio.to_thread(local_login.first_key, self._state)
        try:
            caller = await self._checked(key, address)
        except Refusal:
            raise LoginRefused(too_often=False) from None
        assert key is not None
        metrics.TALLY.add(counters.LOGINS, "local")
        return SubmissionLogin(key, caller, address)

    async def check_again(self, login: SubmissionLogin) -> Caller:
        """Return the caller as of now; raises the uniform 401 within a second of a revocation or suspension."""
        return await self._checked(login.key, login.address)

    async def _checked(self, key: rules.FreshApiKey | None, address: str) -> Caller:
        caller = await self._keys.caller(key, address)
        try:
            key_auth.check_scope(caller, SCOPES)
        except Refusal:
            raise key_auth.unauthorized() from None
        return caller

    async def _count(self, key: rules.FreshApiKey | None, address: str) -> bool:
        """Count a failed login; True when there were too many."""
        buckets = [f"login:ip:{network_of(address)}"]
        if key is not None:
            buckets.append(f"login:key:{key.key_id}")
        found = [await self._limits.check(bucket, FAILURES_PER_S, burst_s=BURST_S) for bucket in buckets]
        for network, length in wider_networks(address):
            found.append(
                await self._limits.check(f"login:ip:{network}", SHARES[length] * FAILURES_PER_S, burst_s=BURST_S)
            )
        return not all(limit.allowed for limit in found)
