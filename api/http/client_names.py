"""Name the methods of the clients after the operations: `POST /v1/emails` is `client.emails.send`.

The generator of the Python client and the samples of the documentation use the same names.
"""

import keyword
import re
from typing import Final, NamedTuple

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Paths of several words that name one kind of object; all others are named by their first word.
_GROUPS: Final = {
    "alerts/events": "alert_events",
    "alerts/rules": "alert_rules",
    "audit/events": "audit_events",
    "billing/invoices": "invoices",
    "inbound/addresses": "inbound_addresses",
    "inbound/domains": "inbound_domains",
    "inbound/messages": "inbound_messages",
    "inbound/mta-sts": "mta_sts",
    "inbound/routes": "inbound_routes",
    "local/accounts": "local_accounts",
    "local/clock": "local_clock",
    "local/sink": "local_sink",
    "verifications/settings": "verification_settings",
}
# Names that the rules below would make misleading, or the same as another.
_NAMES: Final = {
    "DELETE /v1/emails/{id}/schedule": ("emails", "cancel"),
    "DELETE /v1/lists/{id}/members/{contactId}": ("lists", "remove_member"),
    "DELETE /v1/lists/{id}/opt-outs/{address}": ("lists", "take_back_opt_out"),
    "DELETE /v1/local/sink": ("local_sink", "empty"),
    "GET /v1/account/verify": ("account", "verify_log"),
    "GET /v1/agent-access": ("agent_sends", "access"),
    "GET /v1/billing": ("billing", "get"),
    "GET /v1/instance": ("instance", "get"),
    "GET /v1/lists/{id}/opt-outs/export": ("lists", "export_opt_outs"),
    "GET /v1/local/clock": ("local_clock", "get"),
    "GET /v1/me": ("account", "get"),
    "GET /v1/messages/{id}/attachments/{attachmentId}": ("messages", "attachment"),
    "GET /v1/inbound/messages/{id}/attachments/{attachmentId}": ("inbound_messages", "attachment"),
    "GET /v1/requests": ("requests", "list"),
    "GET /v1/stats/messages": ("stats", "messages"),
    "GET /v1/team": ("team", "get"),
    "GET /v1/usage": ("account", "usage"),
    "GET /v1/verifications/settings": ("verification_settings", "get"),
    "GET /v1/webhooks/{id}/deliveries/{event}": ("webhooks", "delivery"),
    "PATCH /v1/account": ("account", "update"),
    "PATCH /v1/emails/{id}/schedule": ("emails", "reschedule"),
    "POST /v1/address-checks": ("address_checks", "check"),
    "POST /v1/contacts/import": ("contacts", "import_many"),
    "POST /v1/contacts/import/file": ("contacts", "import_file"),
    "POST /v1/contacts/{id}/confirmation": ("contacts", "send_confirmation"),
    "POST /v1/domains/{id}/cloudflare": ("domains", "publish_to_cloudflare"),
    "POST /v1/emails": ("emails", "send"),
    "POST /v1/emails/batch": ("emails", "send_batch"),
    "POST /v1/emails/raw": ("emails", "send_raw"),
    "POST /v1/inbound/messages/{id}/read": ("inbound_messages", "mark_read"),
    "POST /v1/inbound/messages/{id}/spam": ("inbound_messages", "mark_spam"),
    "POST /v1/layouts/preview": ("layouts", "preview_content"),
    "POST /v1/lists/{id}/members": ("lists", "add_members"),
    "POST /v1/lists/{id}/opt-outs": ("lists", "add_opt_outs"),
    "POST /v1/lists/{id}/opt-outs/import/file": ("lists", "import_opt_outs"),
    "POST /v1/local/clock": ("local_clock", "move"),
    "POST /v1/local/settle": ("local_clock", "settle"),
    "POST /v1/messages/resend": ("messages", "resend_many"),
    "POST /v1/suppressions/import": ("suppressions", "import_many"),
    "POST /v1/suppressions/import/file": ("suppressions", "import_file"),
    "POST /v1/templates/preview": ("templates", "preview_content"),
    "POST /v1/verifications": ("verifications", "start"),
    "POST /v1/webhooks/deliveries/{id}/replay": ("webhooks", "replay_delivery"),
}
_OF_ONE: Final = {"GET": "get", "PATCH": "update", "DELETE": "delete", "PUT": "set", "POST": "create"}
_OF_ALL: Final = {"GET": "list", "POST": "create", "PUT": "set", "PATCH": "update", "DELETE": "delete"}
_PREFIXES: Final = {"DELETE": "delete_", "PATCH": "update_", "PUT": "set_"}


class ClientMethod(NamedTuple):
    """The name of one operation in the clients: `client.<group>.<method>`."""

    group: str
    method: str


def client_method(method: str, path: str) -> ClientMethod:
    """Return the name for an HTTP method and a path such as `/v1/domains/{id}/verify`."""
    known = _NAMES.get(f"{method} {path}")
    if known is not None:
        return ClientMethod(*known)
    parts = path.removeprefix("/v1/").split("/")
    prefix = "/".join(parts[:2]) if "/".join(parts[:2]) in _GROUPS else parts[0]
    group = _GROUPS.get(prefix, python_name(prefix))
    rest = parts[len(prefix.split("/")) :]
    words = [python_name(part) for part in rest if not part.startswith("{")]
    if words:
        return ClientMethod(group, python_name(_PREFIXES.get(method, "") + "_".join(words)))
    return ClientMethod(group, (_OF_ONE if rest else _OF_ALL)[method])


def class_name(name: str) -> str:
    """Return `alert_rules` as `AlertRules`."""
    return "".join(part.capitalize() for part in name.split("_"))


def python_name(name: str) -> str:
    """Return `name` as Python writes it: `scheduledAt` becomes `scheduled_at`, and the keyword `from` `from_`."""
    plain = _CAMEL.sub("_", name).replace("-", "_").replace(".", "_").lower()
    return plain + "_" if keyword.iskeyword(plain) else plain
