"""A flow spans areas; what works on one area alone is that area's service."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLOWS = sorted(path for path in (ROOT / "engine/flows").rglob("*.py") if path.name != "__init__.py")

# The area that each table belongs to; tables of accounts' heads, stamps and shards belong to no area.
OWNERS = {
    "account": {"accounts", "account_records", "suspensions"},
    "account_deletion": {"deletions", "erased_accounts"},
    "address_checks": {"address_check_reservations"},
    "alerts": {"alert_rules", "alert_events"},
    "analytics": {
        "dmarc_reports",
        "dmarc_rows",
        "received_tls_reports",
        "received_tls_rows",
        "delivery_groups",
        "delivery_weeks",
    },
    "api_keys": {"api_keys"},
    "audit": {"events"},
    "blocklists": {"blocklist_zones", "blocklist_addresses", "blocklist_listings"},
    "broadcasts": {
        "broadcasts",
        "broadcast_work",
        "broadcast_recipients",
        "broadcast_progress",
        "broadcast_outcomes",
        "broadcast_watches",
        "broadcast_reviews",
    },
    "contacts": {
        "contacts",
        "contact_totals",
        "contact_lists",
        "contact_list_members",
        "contact_segments",
        "contact_confirmations",
    },
    "delivery": {"queue", "holds"},
    "domains": {"domains", "domain_keys", "cloudflare_tokens"},
    "emails": {"idempotency", "schedules"},
    "erasures": {"erasures", "erasure_keys", "erased_suppressions"},
    "identity": {"identities", "identity_steps"},
    "billing": {"subscriptions", "checkouts", "renewal_charges", "invoices", "billing_profiles", "kept_retentions"},
    "certificates": {"tls_certificates", "acme_accounts", "acme_challenges"},
    "inbound_addresses": {"inbound_addresses", "receiving_labels"},
    "inbound_messages": {
        "inbound_messages",
        "inbound_bytes",
        "inbound_counts",
        "inbound_day_counts",
        "inbound_recent",
        "inbound_forwards",
    },
    "inbound_routes": {"inbound_routes"},
    "leads": {"leads"},
    "mta_sts": {"hosted_sts_policies"},
    "messages": {"messages", "message_bodies", "recipients"},
    "passkeys": {"passkeys", "passkey_challenges"},
    "people": {"users"},
    "reports": {"report_mails"},
    "request_log": {"api_requests"},
    "second_factor": {"recovery_codes"},
    "sessions": {"sessions"},
    "statistics": {
        "account_days",
        "accepted_days",
        "simulated_days",
        "message_quarters",
        "message_tag_quarters",
        "outcome_days",
        "complaint_sources",
        "outcome_quarters",
    },
    "streams": {"streams"},
    "suppressions": {"suppressions"},
    "system_mail": {"system_mail", "platform"},
    "team": {"members", "invites"},
    "templates": {"templates", "template_versions", "layouts", "layout_versions"},
    "tokens": {"single_use_tokens"},
    "unsubscribes": {"unsubscribe_links", "topic_opt_outs"},
    "verifications": {"verifications", "verification_destinations", "verification_settings"},
    "webhooks": {"webhooks", "webhook_queue", "webhook_attempts"},
}


def imported(path: Path) -> set[str]:
    """The modules that a file imports from, `from a import b` as both `a` and `a.b`."""
    found = [one for one in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(one, ast.ImportFrom)]
    return {name for one in found for alias in one.names for name in (f"{one.module}", f"{one.module}.{alias.name}")}


def works_on(path: Path) -> set[str]:
    """The areas, the queue and the account log that a flow uses, by import or in its SQL."""
    modules = [name.split(".") for name in imported(path)]
    areas = {parts[2] for parts in modules if parts[:2] == ["engine", "areas"] and len(parts) > 2}
    areas |= {"delivery" for parts in modules if parts[:2] == ["engine", "delivery"]}
    sql = path.with_suffix(".sql")
    words = set(re.findall(r"[a-z_]+", sql.read_text("utf-8"))) if sql.exists() else set()
    areas |= {area for area, tables in OWNERS.items() if tables & words}
    if areas == {"delivery"}:  # the queue and the account log are one floor: neither may import the other
        areas |= {"ledger" for parts in modules if parts[:2] == ["engine", "ledger"]}
    return areas


def calls_another_flow(path: Path) -> bool:
    """An area may not import a flow, so a file that does has to be one."""
    me = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    others = {".".join(one.relative_to(ROOT).with_suffix("").parts) for one in FLOWS} - {me}
    return bool(imported(path) & others)


def defines_work(path: Path) -> bool:
    """False for a file of types alone."""
    body = ast.parse(path.read_text("utf-8")).body
    return any(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in body)


def test_a_flow_works_on_two_areas_at_least() -> None:
    """A flow that works on one area alone belongs to that area."""
    work = {
        str(path.relative_to(ROOT)): works_on(path)
        for path in FLOWS
        if defines_work(path) and not calls_another_flow(path)
    }

    assert {name: areas for name, areas in work.items() if len(areas) < 2} == {}


def test_every_area_with_tables_exists() -> None:
    areas = {path.parent.name for path in (ROOT / "engine/areas").glob("*/__init__.py")}

    assert set(OWNERS) - {"delivery"} <= areas
