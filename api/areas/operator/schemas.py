"""Requests and replies of the operator's part; replies that `ops` prints too stand beside the code behind both."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from api.http.readiness import ReadinessReport
from engine.audience.broadcasts.review_admin import MAX_NOTE
from engine.base.plans import MAX_AGREED, MAX_AGREED_DAYS, Plan
from engine.cells.overview import CellFigures
from engine.delivery.holds import MAX_REASON, HoldKind
from engine.delivery.queue_depths import QueueView
from engine.delivery.sites import Family
from engine.store.process_list import ProcessList
from shards.admin import MAX_PARTS, MAX_WHY

MAX_SHARDS = 65_536
MAX_TARGET = 255
MAX_HOLD_S = 365 * 86_400

CellStateName = Literal["open", "closed"]
Why = Annotated[str, Meta(max_length=MAX_WHY, description="Reason, in a few words; shown with the shards")]
Cursor = Annotated[str, Meta(max_length=400, description="`nextCursor` of the previous page")]
Target = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_TARGET,
        description="A recipient domain, an account (acc_…), a message (msg_…), or a site as the queue names it; `*` "
        "with the kind site is the whole queue",
    ),
]
Reason = Annotated[str, Meta(min_length=1, max_length=MAX_REASON, description="Reason, in a few words")]
Note = Annotated[str, Meta(max_length=MAX_REASON, description="Note, in a few words; each waybill shows it")]
MemberName = Annotated[
    str, Meta(min_length=1, max_length=255, description="An mta process (member) or host (node), as the shards name it")
]
DomainName = Annotated[str, Meta(min_length=1, max_length=255, description="A recipient domain")]


class NodesReply(ProcessList, frozen=True):
    """The processes of all hosts, and the readiness of the API process that answers.

    The registry forgets processes that are gone after ten minutes.
    """

    readiness: ReadinessReport


class ShardsQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/operator/shards`: how many of the busiest shards to list."""

    limit: Annotated[int, Meta(ge=1, le=MAX_SHARDS)] = 50


class ShardMove(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Shards to pin to a member or node; with `to` null their pins are removed."""

    shards: Annotated[list[Annotated[int, Meta(ge=0, lt=MAX_SHARDS)]], Meta(min_length=1, max_length=4_096)]
    to: MemberName | None
    reason: Why = ""
    dry_run: bool = False


class MemberDrain(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A member or node that is to own no shards, or with `undo` to own some again."""

    name: MemberName
    undo: bool = False
    reason: Why = ""
    dry_run: bool = False


class MemberWeight(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The relative share of load of a member, or of each member of a node; the default is 1."""

    name: MemberName
    weight: Annotated[float, Meta(ge=0.01, le=100)]
    reason: Why = ""
    dry_run: bool = False


class ShardBalance(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Whether to distribute shards by the load of the last minute, or by their number."""

    by: Literal["load", "count"]
    dry_run: bool = False


class DomainSplit(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A recipient domain to spread over `parts` shards."""

    domain: DomainName
    parts: Annotated[int, Meta(ge=2, le=MAX_PARTS)]
    reason: Why = ""
    dry_run: bool = False


class DomainMerge(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A split domain to merge; unless `byRule`, the automatic rule does not split it again."""

    domain: DomainName
    by_rule: bool = False
    reason: Why = ""
    dry_run: bool = False


class ShardChange(Struct, rename="camel", kw_only=True):
    """The plan of a change, and each step: the shards with their owners before and after.

    The mta processes carry it out while mail flows; the list of shards shows how far they are.
    """

    plan: dict[str, Any]
    steps: list[dict[str, Any]]
    dry_run: bool


class QueueQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/operator/queue`: how to group pending deliveries, and how many groups to list."""

    by: QueueView = QueueView.DOMAIN
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 20


class HeldDeliveriesQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of a page of deliveries under holds."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    after: Cursor | None = None


class QueueHold(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Deliveries to hold; without `forSeconds` until they are resumed. Each waybill shows the reason."""

    kind: HoldKind
    target: Target
    reason: Reason
    for_seconds: Annotated[int, Meta(ge=6, le=MAX_HOLD_S)] | None = None


class QueueRelease(Struct, forbid_unknown_fields=True, kw_only=True):
    """Deliveries to release from a hold, or to attempt now."""

    kind: HoldKind
    target: Target
    note: Note | None = None


class QueueBounce(Struct, forbid_unknown_fields=True, kw_only=True):
    """Deliveries to fail, with the reason that each waybill shows."""

    kind: HoldKind
    target: Target
    reason: Reason


class SiteRuleChange(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The limits to set: an omitted field stays, null removes it from the rule.

    Rates and connections hold over all processes. `ladderS` is the retry schedule, in seconds between attempts;
    `backOff` lists words of a reply that ask for less mail; `together`: all servers under the name share one limit.
    """

    connections: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType | None = UNSET
    messages_per_connection: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType | None = UNSET
    per_second: Annotated[float, Meta(gt=0, le=1_000_000)] | UnsetType | None = UNSET
    per_minute: Annotated[float, Meta(gt=0, le=1_000_000)] | UnsetType | None = UNSET
    per_hour: Annotated[float, Meta(gt=0, le=1_000_000)] | UnsetType | None = UNSET
    recipients: Annotated[int, Meta(ge=1, le=1_000)] | UnsetType | None = UNSET
    family: Family | UnsetType | None = UNSET
    ladder_s: (
        Annotated[list[Annotated[float, Meta(ge=1, le=7 * 86_400)]], Meta(min_length=1, max_length=40)]
        | UnsetType
        | None
    ) = UNSET
    back_off: (
        Annotated[list[Annotated[str, Meta(min_length=3, max_length=200)]], Meta(max_length=50)] | UnsetType | None
    ) = UNSET
    together: bool | UnsetType | None = UNSET
    why: Annotated[str, Meta(max_length=MAX_WHY, description="Reason, shown beside the rule")] | UnsetType = UNSET


class SiteRuleRecord(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The fields that a rule sets."""

    connections: int | None = None
    messages_per_connection: int | None = None
    per_second: float | None = None
    per_minute: float | None = None
    per_hour: float | None = None
    recipients: int | None = None
    family: Family | None = None
    ladder_s: list[float] | None = None
    back_off: list[str] | None = None
    together: bool | None = None


class SiteRuleReply(Struct, kw_only=True):
    """A rule after a change. For a mail domain, `name` is its site unless its servers have names below the domain."""

    name: str
    rule: SiteRuleRecord


class AccountsQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/operator/accounts`: newest first; `status` has no effect beside `search`."""

    search: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=254,
                description="An id, the address of a member, a domain, or the beginning of a name",
            ),
        ]
        | None
    ) = None
    status: Literal["active", "suspended", "closing"] | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    before: Cursor | None = None


class AccountSuspension(Struct, forbid_unknown_fields=True, kw_only=True):
    """The reason of a suspension; members of the account read it."""

    reason: Reason


class AccountPlan(Struct, forbid_unknown_fields=True, kw_only=True):
    """The new plan of an account that has no subscription."""

    plan: Plan


AgreedCount = Annotated[int, Meta(ge=1, le=MAX_AGREED)] | UnsetType | None
AgreedDays = Annotated[int, Meta(ge=1, le=MAX_AGREED_DAYS)] | UnsetType | None


class AgreedCapsChange(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The limits to raise above the plan's: an omitted one stays as agreed, null returns to the plan's."""

    monthly_emails: AgreedCount = UNSET
    retention_days: AgreedDays = UNSET
    schedule_days: AgreedDays = UNSET
    inbound_addresses: AgreedCount = UNSET
    monthly_verifications: AgreedCount = UNSET
    monthly_address_checks: AgreedCount = UNSET
    analytics_days: AgreedDays = UNSET
    requests_per_second: AgreedCount = UNSET


class AccountAgreement(Struct, forbid_unknown_fields=True, kw_only=True):
    """A plan that is billed outside of Waybill, in place of any subscription; null ends the agreement.

    `caps` raises limits above the plan's, which end with the agreement.
    """

    plan: Plan | None
    caps: AgreedCapsChange | UnsetType = UNSET


class ReviewsQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of a page of broadcasts that wait for review, the oldest first."""

    limit: Annotated[int, Meta(ge=1, le=50)] = 20
    after: Cursor | None = None


class ReviewRejection(Struct, forbid_unknown_fields=True, kw_only=True):
    """The note of a rejected broadcast; its author reads it."""

    note: Annotated[str, Meta(min_length=1, max_length=MAX_NOTE)]


class CellRecord(Struct, rename="camel", kw_only=True):
    """A cell. `figures` is null while the cell does not answer."""

    name: str
    state: CellStateName
    weight: int
    placed: int
    own: bool
    figures: CellFigures | None


class CellList(Struct):
    """The cells by name; none in an installation without a directory."""

    data: list[CellRecord]
