"""Declare which rows belong to an account: by this a move copies, compares and removes.

A contract test compares it with the schema: each table is declared here, or among the tables of no account
(tests/retention/test_erase.py). Foreign keys give the order of copying (ops/backup/tables.py).
"""

import re
from typing import Final

from msgspec import Struct

_READ: Final = re.compile(r"FROM (\w+)")


class AccountTable(Struct, frozen=True):
    """A table with rows of accounts.

    `mine` is the condition on a row `t`, in terms of $1 (accounts), $2 (people) and $3 (targets of holds: public ids of
    the accounts and of their messages). Rows of a table with a `key` may be many: they are copied while the account
    works on, and only what changed since is copied in the pause. `summed` are the columns that comparisons read; empty:
    all of them. `shared_if`: the condition under which another account has the row too; it then stays.
    """

    name: str
    mine: str
    key: tuple[str, ...] = ()
    summed: tuple[str, ...] = ()
    shared_if: str = ""

    @property
    def through(self) -> set[str]:
        """Return the tables that the condition reads: their rows come before, and go after, those of this one."""
        return set(_READ.findall(self.mine))


_OWN: Final = "t.account_id = ANY ($1::uuid[])"
_OF_PERSON: Final = "t.user_id = ANY ($2::uuid[])"
_OF_DOMAIN: Final = "t.domain_id IN (SELECT d.id FROM domains d WHERE d.account_id = ANY ($1::uuid[]))"
_OF_BROADCAST: Final = "t.broadcast_id IN (SELECT b.id FROM broadcasts b WHERE b.account_id = ANY ($1::uuid[]))"
_OF_WEBHOOK: Final = "t.webhook_id IN (SELECT w.id FROM webhooks w WHERE w.account_id = ANY ($1::uuid[]))"
_OF_MESSAGE: Final = "t.message_id IN (SELECT m.id FROM messages m WHERE m.account_id = ANY ($1::uuid[]))"

# Beside each, only what is not plain: everything else is found by its account.
_BY_ACCOUNT: Final = (
    "accepted_days", "account_days", "account_records", "account_standings", "address_check_reservations",
    "agent_sends", "alert_events", "alert_rules", "api_keys", "billing_events", "billing_heads", "billing_profiles",
    "broadcast_reviews", "broadcast_watches", "broadcast_work", "checkouts", "cloudflare_tokens",
    "complaint_sources", "contact_confirmations", "contact_lists", "contact_segments", "contact_totals", "content_keys",
    "deletions", "delivery_counts", "dmarc_reports", "dmarc_rows", "domains", "erased_suppressions", "erasure_keys",
    "erasures", "hosted_sts_policies", "inbound_addresses", "inbound_counts", "inbound_day_counts", "inbound_forgets",
    "inbound_forwards", "inbound_recent", "inbound_routes", "invites", "invoices", "kept_retentions",
    "layout_versions", "layouts", "leads", "limit_mails", "members", "notice_marks", "outcome_days",
    "outcome_quarters", "plan_usage", "provider_events", "queue", "received_tls_reports", "received_tls_rows",
    "receiving_labels", "renewal_charges", "report_mails", "saved_views", "schedules", "simulated_days", "streams",
    "subscriptions", "suspensions", "template_versions", "templates", "topic_opt_outs", "verification_destinations",
    "verification_settings", "verifications", "webhook_queue",
)  # fmt: skip
_BY_PERSON: Final = (
    "code_tries", "identities", "identity_steps", "passkeys", "recovery_codes", "sessions", "single_use_tokens",
)  # fmt: skip

ACCOUNTS: Final = AccountTable("accounts", "t.id = ANY ($1::uuid[])")
HEADS: Final = AccountTable("account_heads", _OWN)
# Differ between the cells on purpose, or come from the cell: not compared.
UNCOMPARED: Final = frozenset({"status", "status_before_move", "closed_at_seq"})

TABLES: Final[dict[str, AccountTable]] = {
    table.name: table
    for table in (
        ACCOUNTS,
        HEADS,
        *(AccountTable(name, _OWN) for name in _BY_ACCOUNT),
        *(AccountTable(name, _OF_PERSON) for name in _BY_PERSON),
        AccountTable("users", "t.id = ANY ($2::uuid[])"),
        AccountTable("domain_keys", _OF_DOMAIN),
        AccountTable("tls_certificates", _OF_DOMAIN),
        AccountTable("broadcast_outcomes", _OF_BROADCAST),
        AccountTable("broadcast_progress", _OF_BROADCAST),
        AccountTable("webhook_hours", _OF_WEBHOOK),
        AccountTable("holds", "t.kind IN ('account', 'message') AND t.target = ANY ($3::text[])"),
        AccountTable(
            "system_mail",
            "t.address IN (SELECT u.email FROM users u WHERE u.id = ANY ($2::uuid[])) OR t.kind = 'invite' AND"
            " t.address IN (SELECT i.email FROM invites i WHERE i.account_id = ANY ($1::uuid[]))",
        ),
        AccountTable(
            "blocklist_listings",
            "t.kind = 'domain' AND t.target IN (SELECT d.name FROM domains d WHERE d.account_id = ANY ($1::uuid[]))",
            shared_if="EXISTS (SELECT FROM domains d WHERE d.name = t.target AND d.account_id <> ALL ($1::uuid[]))",
        ),
        AccountTable("api_requests", _OWN, key=("id",), summed=("id",)),
        AccountTable("broadcasts", _OWN, key=("id",)),  # their recipients are found by them
        AccountTable("webhooks", _OWN, key=("id",)),  # likewise their attempts
        AccountTable("broadcast_recipients", _OF_BROADCAST, key=("broadcast_id", "contact_id")),
        AccountTable("contact_list_members", _OWN, key=("list_id", "contact_id")),
        AccountTable("contacts", _OWN, key=("id",)),
        AccountTable("delivery_groups", _OWN, key=("account_id", "tag", "day", "domain", "stream", "from_domain")),
        AccountTable("delivery_providers", _OWN, key=("account_id", "day", "provider", "stream", "from_domain")),
        AccountTable("delivery_waits", _OWN, key=("account_id", "hour", "provider", "stream", "from_domain")),
        AccountTable("delivery_weeks", _OWN, key=("account_id", "tag", "day", "domain", "stream", "from_domain")),
        # The hash stands for the whole event; the log is verified besides.
        AccountTable("events", _OWN, key=("account_id", "seq", "id"), summed=("account_id", "seq", "id", "hash")),
        AccountTable("idempotency", _OWN, key=("account_id", "key")),
        AccountTable("images", _OWN, key=("account_id", "id"), summed=("account_id", "id", "sha256")),
        AccountTable(
            "inbound_bytes",
            "t.id IN (SELECT m.raw_id FROM inbound_messages m WHERE m.account_id = ANY ($1::uuid[]))",
            key=("id",),
            summed=("id",),
            shared_if="EXISTS (SELECT FROM inbound_messages o WHERE o.raw_id = t.id AND o.account_id <> ALL ($1))",
        ),
        AccountTable("inbound_messages", _OWN, key=("id",)),
        AccountTable("message_bodies", _OF_MESSAGE, key=("message_id",), summed=("message_id",)),
        AccountTable("message_quarters", _OWN, key=("account_id", "quarter", "from_domain", "stream")),
        AccountTable("message_tag_quarters", _OWN, key=("account_id", "tag", "quarter", "from_domain", "stream")),
        AccountTable("messages", _OWN, key=("id",)),
        AccountTable("recipients", _OWN, key=("message_id", "n")),
        AccountTable("suppressions", _OWN, key=("account_id", "address")),
        AccountTable("unsubscribe_links", _OWN, key=("id",)),
        AccountTable("webhook_attempts", _OF_WEBHOOK, key=("id",), summed=("id",)),
    )
}

# Tables with rows about accounts that stay in their cell, each with the reason.
STAY: Final = {
    "account_moves": "the move itself",
    "account_move_drains": "what processes of the cell have in memory",
    "cache_changes": "which caches of the cell's processes changed",
    "source_assignments": "names pools of the cell's own addresses; the operator assigns one in the new cell",
    "tail_slots": "open connections of the cell's processes",
    "tls_reports": "reports about recipients' domains, sent by the platform account",
}
