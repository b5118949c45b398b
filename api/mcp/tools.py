"""The tools that agents get: the one definition for `waybill mcp` and for `/mcp`. Each calls operations of the API."""

from collections.abc import Awaitable, Callable, Collection
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct

from api.mcp import arguments as given
from api.mcp.arguments import Arguments
from api.mcp.calls import Api, CallRefused, path_of
from api.mcp.docs_search import DocsSearch, error_text, page
from api.mcp.results import preview_of, shortened, untrusted

Run = Callable[[Api, Any], Awaitable[Any]]
_SENDS: Final = ("emails:send",)
_MESSAGES: Final = ("messages:read",)
_RECEIVED: Final = ("inbound:read", "messages:read")
_TEMPLATES: Final = ("templates:read",)
_WEBHOOKS: Final = ("webhooks:read",)
_ANALYTICS: Final = ("analytics:read",)


class Tool(Struct, frozen=True, dict=True):
    """A tool: `run` gets its decoded arguments and returns its result, or raises CallRefused."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    run: Run
    scopes: tuple[str, ...] = ()  # the key has one of them; none: any key
    changes: bool = False  # what cannot be undone

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        _, parts = msgspec.json.schema_components([self.arguments], ref_template="#/$defs/{name}")
        found: dict[str, Any] = parts.pop(self.arguments.__name__)
        found.pop("title", None)
        found.pop("description", None)
        return found | ({"$defs": parts} if parts else {})


def tools_for(scopes: Collection[str]) -> list[Tool]:
    """Return the tools that a key with these scopes can use."""
    return [one for one in TOOLS.values() if not one.scopes or not set(one.scopes).isdisjoint(scopes)]


def sending_note(access: dict[str, Any]) -> str:
    """Return what `send_email` does with this key, for its description."""
    recipients = access["recipients"]
    only = "" if recipients is None else f" This key sends only to: {', '.join(recipients)}."
    match access["sending"]:
        case "at_once":
            return f"The email is sent at once.{only}"
        case "approval":
            return (
                "A person approves each email in the console before it is sent; `get_approval` tells their decision."
                f"{only}"
            )
    return (
        "Two calls: first with `dryRun` true, which sends nothing and returns the email as it would be sent, with a"
        " `token`. Show it to the person you work for. Then the same arguments with that `token` within 10 minutes."
        f"{only}"
    )


def _read(template: str, *, of_others: bool = False) -> Run:
    """Return a tool's work that is one GET: the fields of its arguments are the path's parameters and the query."""

    async def run(api: Api, arguments: Arguments) -> Any:
        values = _fields(arguments)
        in_path = {"id": values.pop("id")} if "{id}" in template else {}
        found = await api.get(path_of(template, in_path), values)
        return untrusted(found) if of_others else found

    return run


def _read_mail(template: str) -> Run:
    async def run(api: Api, arguments: Any) -> Any:
        found = await api.get(path_of(template, {"id": arguments.id}))
        return untrusted(shortened(found, include_html=arguments.include_html))

    return run


async def _check_suppression(api: Api, arguments: given.CheckSuppression) -> Any:
    try:
        found = await api.get(path_of("/v1/suppressions/{address}", {"address": arguments.address}))
    except CallRefused as error:
        if error.status != 404:
            raise
        return {"address": arguments.address, "suppressed": False}
    return {"suppressed": True} | untrusted(found)  # the detail may be the reply of a server


async def _template(api: Api, arguments: given.GetTemplate) -> Any:
    return shortened(await api.get(path_of("/v1/templates/{id}", {"id": arguments.id})), include_html=True)


async def _preview(api: Api, arguments: given.PreviewTemplate) -> Any:
    values = _fields(arguments)
    return shortened(
        await api.post(path_of("/v1/templates/{id}/preview", {"id": values.pop("id")}), values), include_html=True
    )


async def _send(api: Api, arguments: given.SendEmail) -> Any:
    email = _fields(arguments)
    order: dict[str, Any] = {name: email.pop(name) for name in ("dryRun", "token") if name in email}
    return preview_of(await api.post("/v1/agent-sends", {"email": email, **order}))


async def _approval(api: Api, arguments: given.GetApproval) -> Any:
    found: dict[str, Any] = await api.get(path_of("/v1/agent-sends/{id}", {"id": arguments.id}))
    return {name: value for name, value in found.items() if name != "message"}


def _docs_tool() -> Run:
    docs = DocsSearch()  # one index per process

    async def run(api: Api, arguments: given.SearchDocs) -> Any:
        return {"data": await docs.search(api, arguments.query, arguments.limit)}

    return run


def _fields(arguments: Arguments) -> dict[str, Any]:
    """Return the fields by their names in the API, without those that are None."""
    found: dict[str, Any] = msgspec.to_builtins(arguments)
    return {name: value for name, value in found.items() if value is not None}


_ALL: Final = (
    Tool(
        "search_messages", "Search sent messages",
        "List sent messages, newest first, with their status and recipients. Filters are combined.",
        given.SearchMessages, _read("/v1/messages", of_others=True), _MESSAGES,
    ),
    Tool(
        "get_message", "Read a sent message",
        "Read a sent message with its waybill: every event with the receiving server's replies, why it waited, the"
        " forecast of what is still under way, and its text.",
        given.GetMessage, _read_mail("/v1/messages/{id}"), _MESSAGES,
    ),
    Tool(
        "search_received", "Search received mail",
        "List received messages, newest first, with sender, subject and the beginning of the text.",
        given.SearchReceived, _read("/v1/inbound/messages", of_others=True), _RECEIVED,
    ),
    Tool(
        "get_received", "Read a received message",
        "Read a received message with its text and the results of SPF, DKIM and DMARC.",
        given.GetReceived, _read_mail("/v1/inbound/messages/{id}"), _RECEIVED,
    ),
    Tool(
        "list_domains", "List sending domains",
        "List the sending domains with their status; only a verified one can send.",
        given.ListDomains, _read("/v1/domains", of_others=True), ("domains:read",),
    ),
    Tool(
        "get_domain_dns", "Read the DNS records of a domain",
        "Read the DNS records that a domain needs, each with what the last look-up found.",
        given.GetDomain, _read("/v1/domains/{id}/setup", of_others=True), ("domains:read",),
    ),
    Tool(
        "check_suppression", "Check whether an address is suppressed",
        "Tell whether mail to an address is refused because of a bounce, a complaint or an opt-out.",
        given.CheckSuppression, _check_suppression, ("suppressions:read",),
    ),
    Tool(
        "get_statistics", "Count messages",
        "Count sent messages by day or hour and by status.",
        given.GetStatistics, _read("/v1/stats/messages"), _MESSAGES,
    ),
    Tool(
        "get_deliverability", "Read delivery rates",
        "Read delivery rates and times to the inbox, by the recipients' domain or by tag.",
        given.GetDeliverability, _read("/v1/analytics/delivery"), _ANALYTICS,
    ),
    Tool(
        "get_receivers", "Forecast delivery by receiver",
        "Read how mail providers treat mail now, and when mail to them will probably arrive.",
        given.GetReceivers, _read("/v1/receivers"), _ANALYTICS,
    ),
    Tool(
        "list_templates", "List templates",
        "List the templates of emails.",
        given.ListTemplates, _read("/v1/templates"), _TEMPLATES,
    ),
    Tool(
        "get_template", "Read a template",
        "Read a template: its content, and the variables that it needs.",
        given.GetTemplate, _template, _TEMPLATES,
    ),
    Tool(
        "preview_template", "Render a template",
        "Render a template with values, without sending. Names the variables that are missing.",
        given.PreviewTemplate, _preview, _TEMPLATES,
    ),
    Tool(
        "list_webhooks", "List webhook endpoints",
        "List the webhook endpoints with their event types and whether they work.",
        given.PageArguments, _read("/v1/webhooks"), _WEBHOOKS,
    ),
    Tool(
        "list_webhook_deliveries", "List webhook deliveries",
        "List the deliveries of a webhook endpoint with their last response.",
        given.ListDeliveries, _read("/v1/webhooks/{id}/deliveries", of_others=True), _WEBHOOKS,
    ),
    Tool(
        "get_account", "Read the account",
        "Read the account, its plan, and how much it may still send today and this month.",
        given.NoArguments, _read("/v1/me"), ("account:read",),
    ),
    Tool(
        "search_docs", "Search the documentation",
        "Find the sections of Waybill's documentation that answer a question; `read_docs` returns a page.",
        given.SearchDocs, _docs_tool(),
    ),
    Tool(
        "read_docs", "Read a page of the documentation",
        "Return a page of the documentation as Markdown.",
        given.ReadDocs, lambda api, one: page(api, one.page),
    ),
    Tool(
        "explain_error", "Explain an error",
        "Explain an error type of the API: its causes, and what to do.",
        given.ExplainError, lambda api, one: error_text(api, one.type),
    ),
    Tool(
        "send_email", "Send an email",
        "Send an email, or schedule one. A repeated call with the same arguments sends once.",
        given.SendEmail, _send, _SENDS, changes=True,
    ),
    Tool(
        "cancel_message", "Cancel a scheduled message",
        "Cancel a message that waits for its scheduled time.",
        given.CancelMessage, lambda api, one: api.delete(path_of("/v1/emails/{id}/schedule", {"id": one.id})), _SENDS,
        changes=True,
    ),
    Tool(
        "get_approval", "Read a person's decision",
        "Tell whether a send that needs a person's approval is pending, sent, declined or expired.",
        given.GetApproval, _approval, _SENDS,
    ),
)  # fmt: skip
TOOLS: Final = {one.name: one for one in _ALL}
