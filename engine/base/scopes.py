"""List the scopes of API keys: what a key may be allowed to do."""

SCOPES: frozenset[str] = frozenset({
    "account:read",
    "alerts:read", "alerts:write",
    "analytics:read",
    "broadcasts:read", "broadcasts:write",
    "contacts:read", "contacts:write",
    "domains:read", "domains:write",
    "emails:send",
    "inbound:read", "inbound:write",
    "messages:read",
    "streams:read", "streams:write",
    "suppressions:read", "suppressions:write",
    "team:read",
    "templates:read", "templates:write",
    "verifications:read", "verifications:write",
    "webhooks:read", "webhooks:write",
})  # fmt: skip
