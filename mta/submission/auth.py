"""Who logs in with AUTH: any user name, and an API key that may send as the password.

One answer for every cause, at the same time: made-up, malformed, revoked or expired keys, keys used from outside their
networks, suspended accounts, and keys without the scope can't be told apart.
"""

import asyncio
from typing import Final

import structlog
from msgspec import Struct

from engine.areas.api_keys import keyring, rules
from engine.areas.api_keys.keyring import Caller, Keys
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.store import metrics
from engine.store.rate_limits import RateLimiter
from mta.submission import metrics

SCOPES: Final = ("emails:send",)
# Failures per address and per key id: 20 at once, then one in six seconds. A right password is never held up: nobody
# can lock a key out by failing in its name, and 190 random bits need no lock.
FAILURES_PER_S: Final = 1 / 6
BURST_S: Final = 120.0
SLOWED: Final = 5  # times as long waits who fails too often

_log = structlog.get_logger("relay")


class SubmissionLogin(Struct, frozen=True):
    """A key that was presented and held; kept to be asked about again before each message."""

    key: rules.NewKey
    caller: Caller
    address: str  # of the client: a key may be limited to networks


class LoginRefused(Exception):  # noqa: N818 - an answer, not a fault
    """The password is no key that may send. `too_often`: the client has failed too often to go on."""

    def __init__(self, *, too_often: bool) -> None:
        super().__init__()
        self.too_often = too_often


class SubmissionAuth:
    """Checks passwords for one process."""

    def __init__(self, keys: Keys, limits: RateLimiter, settings: Settings) -> None:
        self._keys = keys
        self._limits = limits
        self._delay_s = settings.relay_login_delay_s

    async def login(self, password: bytes, address: str) -> SubmissionLogin:
        """The key behind a password. Raises Failed, some time after the attempt began and whatever its cause; or
        DatabaseUnavailable when the database can't be asked."""
        began = asyncio.get_running_loop().time()
        key = rules.parse(password.decode("latin-1"))
        try:
            caller = await self._checked(key, address)
        except Refusal:
            too_often = await self._count(key, address)
            waits_s = self._delay_s * (SLOWED if too_often else 1)
            metrics.TALLY.add(metrics.LOGINS, "slowed" if too_often else "refused")
            _log.warning("login refused", peer=address, key=None if key is None else key.key_id, slowed=too_often)
            await asyncio.sleep(max(0.0, began + waits_s - asyncio.get_running_loop().time()))
            raise LoginRefused(too_often=too_often) from None
        assert key is not None
        metrics.TALLY.add(metrics.LOGINS, "ok")
        return SubmissionLogin(key, caller, address)

    async def again(self, login: SubmissionLogin) -> Caller:
        """The caller as of now: revoked keys and suspended accounts end within a second. Raises the uniform 401."""
        return await self._checked(login.key, login.address)

    async def _checked(self, key: rules.NewKey | None, address: str) -> Caller:
        caller = await self._keys.caller(key, address)
        try:
            keyring.check_scope(caller, SCOPES)
        except Refusal:
            raise keyring.unauthorized() from None
        return caller

    async def _count(self, key: rules.NewKey | None, address: str) -> bool:
        """Count a failure; True when there were too many."""
        buckets = [f"login:ip:{address}"]
        if key is not None:
            buckets.append(f"login:key:{key.key_id}")
        found = [await self._limits.check(bucket, FAILURES_PER_S, burst_s=BURST_S) for bucket in buckets]
        return not all(standing.allowed for standing in found)
