"""Describe path parameters for the OpenAPI document; used by `api.http.openapi`."""

from engine.base.ids import Kind

_ID_BODY = "01k9m2q8f0e4xbn7t5v3w6y9za"
# The start of a path up to a parameter -> the kind of id that stands there.
_KINDS: dict[str, Kind] = {
    "/v1/alerts/rules/{id}": Kind.ALERT_RULE,
    "/v1/api-keys/{id}": Kind.API_KEY,
    "/v1/auth/passkeys/{id}": Kind.PASSKEY,
    "/v1/auth/sessions/{id}": Kind.SESSION,
    "/v1/billing/invoices/{id}": Kind.INVOICE,
    "/v1/broadcasts/{id}": Kind.BROADCAST,
    "/v1/contacts/{id}": Kind.CONTACT,
    "/v1/domains/{id}": Kind.DOMAIN,
    "/v1/emails/{id}": Kind.MESSAGE,
    "/v1/inbound/addresses/{id}": Kind.INBOUND_ADDRESS,
    "/v1/inbound/messages/{id}": Kind.RECEIVED,
    "/v1/inbound/messages/{id}/attachments/{attachmentId}": Kind.ATTACHMENT,
    "/v1/inbound/routes/{id}": Kind.INBOUND_ROUTE,
    "/v1/lists/{id}": Kind.LIST,
    "/v1/lists/{id}/members/{contactId}": Kind.CONTACT,
    "/v1/messages/{id}": Kind.MESSAGE,
    "/v1/messages/{id}/attachments/{attachmentId}": Kind.ATTACHMENT,
    "/v1/segments/{id}": Kind.SEGMENT,
    "/v1/team/invites/{id}": Kind.INVITE,
    "/v1/verifications/{id}": Kind.VERIFICATION,
    "/v1/webhooks/deliveries/{id}": Kind.EVENT,
    "/v1/webhooks/{id}": Kind.WEBHOOK,
    "/v1/webhooks/{id}/deliveries/{event}": Kind.EVENT,
}

# The same for parameters that are no generated ids -> their description and example.
_WORDS: dict[str, tuple[str, str]] = {
    "/v1/auth/idp/identities/{id}": ("The id of the identity", f"{Kind.IDENTITY.value}_{_ID_BODY}"),
    "/v1/bounces/{address}": ("The email address, percent-encoded", "ann@example.com"),
    "/v1/billing/{provider}": ("The payment provider", "stripe"),
    "/v1/erasures/{id}": ("The id of the erasure", f"{Kind.ERASURE.value}_{_ID_BODY}"),
    "/v1/inbound/domains/{id}": ("The id of the domain", f"{Kind.DOMAIN.value}_{_ID_BODY}"),
    "/v1/inbound/mta-sts/{domain}": ("The domain that receives mail", "example.com"),
    "/v1/layouts/{id}": ("The id of the layout", "brand"),
    "/v1/lists/{id}/opt-outs/{address}": ("The email address, percent-encoded", "ann@example.com"),
    "/v1/local/sink/{id}": ("The id in the sink, as the list gives it", "000001"),
    "/v1/operator/accounts/{id}": ("The id of the account", f"{Kind.ACCOUNT.value}_{_ID_BODY}"),
    "/v1/operator/reviews/{id}": ("The id of the broadcast", f"{Kind.BROADCAST.value}_{_ID_BODY}"),
    "/v1/operator/sites/{name}": ("The name of the site: a group of servers that share limits", "google.com"),
    "/v1/streams/{id}": ("The id of the stream", "announcements"),
    "/v1/sub-accounts/{id}": ("The id of the sub-account", f"{Kind.ACCOUNT.value}_{_ID_BODY}"),
    "/v1/suppressions/{address}": ("The email address, percent-encoded", "ann@example.com"),
    "/v1/team/members/{id}": ("The id of the member", f"{Kind.USER.value}_{_ID_BODY}"),
    "/v1/templates/{id}": ("The id of the template", "welcome"),
}


def text_of(path: str, name: str) -> dict[str, object]:
    """Return the description and example of the parameter `name` of `path`; empty for an unknown one."""
    end = path.index(f"{{{name}}}") + len(name) + 2
    words = _WORDS.get(path[:end])
    if words is not None:
        return {"description": words[0], "example": words[1]}
    kind = _KINDS.get(path[:end])
    if kind is None:
        return {}
    return {"description": f"An id of the form `{kind.value}_…`", "example": f"{kind.value}_{_ID_BODY}"}
