"""Describe path parameters for the OpenAPI document; used by `api.http.openapi`."""

from api.http.operation import Operation
from api.http.path_ids import NOUNS
from engine.base import ids, slugs

_ID_BODY = "01k9m2q8f0e4xbn7t5v3w6y9za"
_SLUGGED = {"/v1/layouts/{id}", "/v1/streams/{id}", "/v1/templates/{id}"}
# The start of a path up to a parameter that is no generated id -> its description and example.
_WORDS: dict[str, tuple[str, str]] = {
    "/v1/bounces/{address}": ("The email address, percent-encoded", "ann@example.com"),
    "/v1/billing/{provider}": ("The payment provider", "stripe"),
    "/v1/compat/postmark/bounces/{bounceId}": ("The number of the bounce, as the search gives it", "12"),
    "/v1/compat/postmark/message-streams/{stream}": ("The stream; `outbound` is `transactional`", "outbound"),
    "/v1/inbound/mta-sts/{domain}": ("The domain that receives mail", "example.com"),
    "/v1/layouts/{id}": ("The id of the layout", "brand"),
    "/v1/lists/{id}/opt-outs/{address}": ("The email address, percent-encoded", "ann@example.com"),
    "/v1/local/sink/{id}": ("The id in the sink, as the list gives it", "000001"),
    "/v1/operator/sites/{name}": ("The name of the site: a group of servers that share limits", "google.com"),
    "/v1/streams/{id}": ("The id of the stream", "announcements"),
    "/v1/suppressions/{address}": ("The email address, percent-encoded", "ann@example.com"),
    "/v1/templates/{id}": ("The id of the template", "welcome"),
}


def text_of(operation: Operation, name: str) -> dict[str, object]:
    """Return the description, example and schema of the parameter `name` in the path; no words for an unknown one."""
    for one in operation.path_ids:
        if one.name == name:
            return {
                "description": f"The id of the {one.noun or NOUNS[one.kind]}",
                "example": f"{one.kind.value}_{_ID_BODY}",
                "schema": {"type": "string", "pattern": ids.pattern(one.kind)},
            }
    start = operation.path[: operation.path.index(f"{{{name}}}") + len(name) + 2]
    schema = {"type": "string"} | ({"pattern": slugs.PATTERN} if start in _SLUGGED else {})
    if start not in _WORDS:
        return {"schema": schema}
    description, example = _WORDS[start]
    return {"description": description, "example": example, "schema": schema}
