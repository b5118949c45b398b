"""Find what a recipient of incoming mail is: a claimed address, a report address, or nothing of ours.

The MX asks for every RCPT, so that all answers but an account's monthly count come from caches of this process. The
commit of a message decides again (`routes_of`, and the count under the head's lock).
"""

import time
import unicodedata
from datetime import date
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.base.errors import Refusal
from engine.base.plans import CAPS, Plan
from engine.base.settings import Settings
from engine.mail.address import MAX_DOMAIN, MAX_LOCAL, BadAddress, domain_name
from engine.receiving.inbound_addresses import rules, service
from engine.receiving.inbound_addresses import store as addresses
from engine.receiving.inbound_addresses.types import InboundAddressRow, ReceivingLabel
from engine.receiving.types import InboundRecipient, RecipientPurpose, RecipientRefusal
from engine.sending.domains import store as domains
from engine.sending.domains.records import bounce_domain
from engine.store.caches import Cache
from engine.store.database_errors import AccountMoving
from engine.store.queries import Queries

STATE_S: Final = 1.0  # how old the plan, status and count of an account may be
MAX_STATES: Final = 10_000
_RETURN_PATH: Final = "b+"
# Local parts of report addresses, by their beginnings; `fbl` stands alone. Whether a token is genuine is only decided
# when the report is read, so that a forged one gets the same reply.
_REPORTS: Final = {
    "dmarc+": RecipientPurpose.DMARC_REPORT,
    "tls+": RecipientPurpose.TLS_REPORT,
    "u+": RecipientPurpose.UNSUBSCRIBE,
}
FEEDBACK: Final = "fbl"
_POSTMASTER: Final = "postmaster"  # of every domain that takes mail: RFC 5321 4.5.1
_OPERATOR: Final = frozenset({_POSTMASTER, "abuse"})  # of the service's own hosts: RFC 2142 2

_SQL = Queries.beside(__file__, "recipients.sql")


class ReceivingDomain(Struct, frozen=True):
    """The domain that receives mail under a name."""

    id: UUID
    account_id: UUID


class ReceivingAccount(Struct, frozen=True):
    """The facts that decide whether an account receives mail; `received`: messages of this month."""

    plan: str
    status: str
    received: int


class PlatformAccount(Struct, frozen=True):
    """The id of the platform account."""

    account_id: UUID


_DOMAIN = _SQL.rows("receiving_domain", ReceivingDomain)
_STATE = _SQL.rows("account_state", ReceivingAccount)
_PLATFORM_ACCOUNT = _SQL.rows("platform_account", PlatformAccount)


class RecipientLookup:
    """The recipients that one process knows; its caches follow the stamps `inbound` and `domains`."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._pool = pool
        self._mail_host = settings.mail_host.lower()
        self._bounces = bounce_domain(self._mail_host)
        self._own = frozenset({self._mail_host, self._bounces, rules.receiving_zone(self._mail_host)})
        self._domains: Cache[str, ReceivingDomain | None] = Cache("domains", self._load_domain)
        self._return_path_hosts: Cache[str, bool] = Cache("domains", self._load_return_path_host)
        self._labels: Cache[str, ReceivingLabel | None] = Cache(service.STAMP, self._load_label)
        self._claimed: Cache[tuple[UUID, str], InboundAddressRow | None] = Cache(
            service.STAMP, self._load_claimed, by_account=True
        )
        self._platform: Cache[None, UUID | None] = Cache(service.STAMP, self._load_platform)
        self._states: dict[UUID, tuple[float, ReceivingAccount | None]] = {}

    @property
    def caches(self) -> tuple[Cache[Any, Any], ...]:
        """Return the caches to watch with `Stamps`."""
        return (self._domains, self._return_path_hosts, self._labels, self._claimed, self._platform)

    async def find(self, address: str) -> InboundRecipient | RecipientRefusal:
        """Return what the address of a RCPT command is, without its angle brackets; `postmaster` may lack a domain."""
        split = split_address(address, self._mail_host)
        if split is None:
            return RecipientRefusal.UNKNOWN
        local, host = split
        if not host:
            return RecipientRefusal.NOT_OURS
        purpose = await self._report_purpose(local, host)
        if purpose is not None:
            return InboundRecipient(given=address, purpose=purpose, local=local, host=host)
        base = _base(local)
        if base in _OPERATOR and (host in self._own or await self._return_path_hosts.get(host)):
            return await self._for_operator(address, base, host if host in self._own else self._bounces)
        label = rules.managed_label(host, self._mail_host)
        if label is not None:
            return await self._managed(address, local, host, label)
        return await self._under_domain(address, local, host)

    async def _report_purpose(self, local: str, host: str) -> RecipientPurpose | None:
        """Return what kind of report the address is for; None if it is for none."""
        if host == self._mail_host:
            head, plus, _ = local.partition("+")
            return RecipientPurpose.FEEDBACK if local == FEEDBACK else _REPORTS.get(head + plus)
        purpose = _at_return_path(local)
        if purpose is None or host == self._bounces or await self._return_path_hosts.get(host):
            return purpose
        return None

    async def _for_operator(self, address: str, local: str, host: str) -> InboundRecipient | RecipientRefusal:
        """Return the platform account's address; while there is no such account, the mail is kept with the reports."""
        account = await self._platform.get(None)
        if account is None:
            return InboundRecipient(given=address, purpose=RecipientPurpose.OPERATOR, local=local, host=host)
        plain = f"{local}@{host}"
        row = await self._claimed.get((account, plain))
        if row is None or row.canonical != plain:
            row = await service.claim_outside_plan(self._pool, account, plain)
        if not row.enabled:
            return RecipientRefusal.DISABLED
        return _recipient(RecipientPurpose.PLATFORM, account, address, row)

    async def _managed(self, address: str, local: str, host: str, label: str) -> InboundRecipient | RecipientRefusal:
        """Return the recipient at a managed receiving domain; its first mail claims the catch-all address."""
        owner = await self._labels.get(label)
        if owner is None:
            return RecipientRefusal.UNKNOWN
        row = await self._claimed.get((owner.account_id, f"{local}@{host}"))
        if row is None and _is_postmaster(local):
            row = await self._postmaster(owner.account_id, host, None)
        elif row is None and not owner.is_open and not _is_closing(await self._state(owner.account_id)):
            try:
                row = await service.claim_managed(self._pool, owner.account_id, host)
            except Refusal:  # the plan has no room
                return RecipientRefusal.UNKNOWN
        return await self._claimed_by(owner.account_id, address, row)

    async def _under_domain(self, address: str, local: str, host: str) -> InboundRecipient | RecipientRefusal:
        """Return the recipient under the domain that receives mail under this name."""
        domain = await self._domains.get(host)
        if domain is None:
            ours = host in self._own or await self._return_path_hosts.get(host)
            return RecipientRefusal.UNKNOWN if ours else RecipientRefusal.NOT_OURS
        row = await self._claimed.get((domain.account_id, f"{local}@{host}"))
        if row is None and _is_postmaster(local):
            row = await self._postmaster(domain.account_id, host, domain.id)
        return await self._claimed_by(domain.account_id, address, row)

    async def _postmaster(self, account: UUID, host: str, domain: UUID | None) -> InboundAddressRow | None:
        """Claim `postmaster@` of an account's domain for its first mail; None for an account that is being closed."""
        if _is_closing(await self._state(account)):
            return None
        return await service.claim_outside_plan(self._pool, account, f"{_POSTMASTER}@{host}", domain=domain)

    async def _claimed_by(
        self, account: UUID, address: str, row: InboundAddressRow | None
    ) -> InboundRecipient | RecipientRefusal:
        if row is None:
            return RecipientRefusal.UNKNOWN
        if not row.enabled:
            return RecipientRefusal.DISABLED
        refusal = await self._account_refusal(account)
        if not row.in_plan and refusal is not RecipientRefusal.DISABLED:
            return _recipient(RecipientPurpose.POSTMASTER, account, address, row)
        return refusal or _recipient(RecipientPurpose.ADDRESS, account, address, row)

    async def _account_refusal(self, account: UUID) -> RecipientRefusal | None:
        """Return why the account takes no mail now, None if it takes mail; suspended accounts do."""
        state = await self._state(account)
        if state is None or _is_closing(state):
            return RecipientRefusal.DISABLED
        limit = CAPS[Plan(state.plan)].monthly_received
        return RecipientRefusal.MONTH_USED if limit is not None and state.received >= limit else None

    async def _state(self, account: UUID) -> ReceivingAccount | None:
        now = time.monotonic()
        known = self._states.get(account)
        if known is not None and known[0] > now:
            return known[1]
        state = await _STATE.first(self._pool, account, _month())
        if state is not None and state.status == "moving":
            raise AccountMoving("the account of this address is moving to another cell")
        if len(self._states) >= MAX_STATES:
            self._states.clear()
        self._states[account] = (now + STATE_S, state)
        return state

    async def _load_domain(self, host: str) -> ReceivingDomain | None:
        return await _DOMAIN.first(self._pool, host)

    async def _load_return_path_host(self, host: str) -> bool:
        return await domains.is_return_path_host(self._pool, host)

    async def _load_label(self, label: str) -> ReceivingLabel | None:
        return await addresses.LABEL_OWNER.first(self._pool, label)

    async def _load_platform(self, _key: None) -> UUID | None:
        row = await _PLATFORM_ACCOUNT.first(self._pool)
        return None if row is None else row.account_id

    async def _load_claimed(self, key: tuple[UUID, str]) -> InboundAddressRow | None:
        """Return the claimed address that gets the mail: this one, without its plus-tag, or the catch-all."""
        account, address = key
        local, _, host = address.rpartition("@")
        forms = [address, f"{_base(local)}@{host}", rules.catch_all(host)]
        rows = {row.canonical: row for row in await addresses.FIND.fetch(self._pool, account, forms)}
        return next((rows[form] for form in forms if form in rows), None)


def _base(local: str) -> str:
    """Return a local part without its plus-tag."""
    return local.partition("+")[0]


def _is_postmaster(local: str) -> bool:
    return _base(local) == _POSTMASTER


def _is_closing(state: ReceivingAccount | None) -> bool:
    """Return True for an account that is being erased, or is erased."""
    return state is None or state.status == "closing"


def _at_return_path(local: str) -> RecipientPurpose | None:
    """Return what a local part is for at a host of return paths."""
    if local == FEEDBACK:
        return RecipientPurpose.FEEDBACK
    return RecipientPurpose.BOUNCE if local.startswith(_RETURN_PATH) else None


def _recipient(purpose: RecipientPurpose, account: UUID, given: str, row: InboundAddressRow) -> InboundRecipient:
    return InboundRecipient(
        given=given,
        purpose=purpose,
        account_id=account,
        address_id=row.id,
        address=row.address,
        domain=row.domain,
        tag=_tag(given, row.canonical),
    )


def _tag(given: str, canonical: str) -> str | None:
    """Return the part after `+`, as given; None without one, and where the address with the tag is itself claimed."""
    local = given.rpartition("@")[0] or given
    base, plus, tag = local.strip('"').partition("+")
    if not base or not plus or "+" in canonical.rpartition("@")[0]:
        return None
    return tag or None


def split_address(address: str, mail_host: str) -> tuple[str, str] | None:
    """Return local part and domain in the forms in which they are compared; None if no address has them.

    RFC 5321 4.5.1: `postmaster` without a domain means the server's own. Quotes that an address does not need change
    nothing (4.1.2).
    """
    local, at, host = address.rpartition("@")
    if not at:
        return (host.lower(), mail_host) if host.lower() == "postmaster" else None
    if local[:1] == '"' and local[-1:] == '"' and "\\" not in local:
        local = local[1:-1]
    if not local or not local.isprintable() or len(local) > MAX_LOCAL or len(host) > MAX_DOMAIN:
        return None
    return _lowered(local), _a_labels(host)


@lru_cache(maxsize=4_096)  # a domain with A-labels takes 0.1 ms to check
def _a_labels(host: str) -> str:
    """Return a domain in lower-case A-labels; "" for an invalid one, such as an address literal."""
    try:
        return domain_name(host)
    except BadAddress:
        return ""


def _lowered(local: str) -> str:
    if local.isascii():
        return local.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", local).lower())


def _month() -> date:
    return clock.first_of_month(clock.now().date())
