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


class Tool(Struct, frozen=True, dict=True, kw_only=True):
    """A tool: `run` gets its decoded arguments and returns its result, or raises CallRefused."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    run: Run
    scopes: tuple[str, ...] = ()  # the key has one of them; none: any key
    changes: bool = False
    destroys: bool = False  # cannot be undone

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
    return found | {"suppressed": True}


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


async def _cancel(api: Api, arguments: given.CancelMessage) -> Any:
    return await api.delete(path_of("/v1/emails/{id}/schedule", {"id": arguments.id}))


async def _approval(api: Api, arguments: given.GetApproval) -> Any:
    found: dict[str, Any] = await api.get(path_of("/v1/agent-sends/{id}", {"id": arguments.id}))
    return {name: value for name, value in found.items() if name != "message"}


async def _page(api: Api, arguments: given.ReadDocs) -> Any:
    return await page(api, arguments.page)


async def _explain(api: Api, arguments: given.ExplainError) -> Any:
    return await error_text(api, arguments.type)


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
        name="search_messages",
        title="Search sent messages",
        description="List sent messages, newest first, with their status and recipients. Filters are combined.",
        arguments=given.SearchMessages,
        run=_read("/v1/messages", of_others=True),
        scopes=_MESSAGES,
    ),
    Tool(
        name="get_message",
        title="Read a sent message",
        description="Read a sent message with its waybill: every event with the receiving server's replies, why it"
        " waited, the forecast of what is still under way, and its text.",
        arguments=given.GetMessage,
        run=_read_mail("/v1/messages/{id}"),
        scopes=_MESSAGES,
    ),
    Tool(
        name="search_received",
        title="Search received mail",
        description="List received messages, newest first, with sender, subject and the beginning of the text.",
        arguments=given.SearchReceived,
        run=_read("/v1/inbound/messages", of_others=True),
        scopes=_RECEIVED,
    ),
    Tool(
        name="get_received",
        title="Read a received message",
        description="Read a received message with its text and the results of SPF, DKIM and DMARC.",
        arguments=given.GetReceived,
        run=_read_mail("/v1/inbound/messages/{id}"),
        scopes=_RECEIVED,
    ),
    Tool(
        name="list_domains",
        title="List sending domains",
        description="List the sending domains with their status; only a verified one can send.",
        arguments=given.ListDomains,
        run=_read("/v1/domains"),
        scopes=("domains:read",),
    ),
    Tool(
        name="get_domain_dns",
        title="Read the DNS records of a domain",
        description="Read the DNS records that a domain needs, each with what the last look-up found.",
        arguments=given.GetDomain,
        run=_read("/v1/domains/{id}/setup"),
        scopes=("domains:read",),
    ),
    Tool(
        name="check_suppression",
        title="Check whether an address is suppressed",
        description="Tell whether mail to an address is refused because of a bounce, a complaint or an opt-out.",
        arguments=given.CheckSuppression,
        run=_check_suppression,
        scopes=("suppressions:read",),
    ),
    Tool(
        name="get_statistics",
        title="Count messages",
        description="Count sent messages by day or hour and by status.",
        arguments=given.GetStatistics,
        run=_read("/v1/stats/messages"),
        scopes=_MESSAGES,
    ),
    Tool(
        name="get_deliverability",
        title="Read delivery rates",
        description="Read delivery rates and times to the inbox, by the recipients' domain or by tag.",
        arguments=given.GetDeliverability,
        run=_read("/v1/analytics/delivery"),
        scopes=_ANALYTICS,
    ),
    Tool(
        name="get_receivers",
        title="Forecast delivery by receiver",
        description="Read how mail providers treat mail now, and when mail to them will probably arrive.",
        arguments=given.GetReceivers,
        run=_read("/v1/receivers"),
        scopes=_ANALYTICS,
    ),
    Tool(
        name="list_templates",
        title="List templates",
        description="List the templates of emails.",
        arguments=given.ListTemplates,
        run=_read("/v1/templates"),
        scopes=_TEMPLATES,
    ),
    Tool(
        name="get_template",
        title="Read a template",
        description="Read a template: its content, and the variables that it needs.",
        arguments=given.GetTemplate,
        run=_template,
        scopes=_TEMPLATES,
    ),
    Tool(
        name="preview_template",
        title="Render a template",
        description="Render a template with values, without sending. Names the variables that are missing.",
        arguments=given.PreviewTemplate,
        run=_preview,
        scopes=_TEMPLATES,
    ),
    Tool(
        name="list_webhooks",
        title="List webhook endpoints",
        description="List the webhook endpoints with their event types and whether they work.",
        arguments=given.PageArguments,
        run=_read("/v1/webhooks"),
        scopes=_WEBHOOKS,
    ),
    Tool(
        name="list_webhook_deliveries",
        title="List webhook deliveries",
        description="List the deliveries of a webhook endpoint with their last response.",
        arguments=given.ListDeliveries,
        run=_read("/v1/webhooks/{id}/deliveries", of_others=True),
        scopes=_WEBHOOKS,
    ),
    Tool(
        name="get_account",
        title="Read the account",
        description="Read the account, its plan, and how much it may still send today and this month.",
        arguments=given.NoArguments,
        run=_read("/v1/me"),
        scopes=("account:read",),
    ),
    Tool(
        name="search_docs",
        title="Search the documentation",
        description="Find the sections of Waybill's documentation that answer a question; `read_docs` returns a page.",
        arguments=given.SearchDocs,
        run=_docs_tool(),
    ),
    Tool(
        name="read_docs",
        title="Read a page of the documentation",
        description="Return a page of the documentation as Markdown.",
        arguments=given.ReadDocs,
        run=_page,
    ),
    Tool(
        name="explain_error",
        title="Explain an error",
        description="Explain an error type of the API: its causes, and what to do.",
        arguments=given.ExplainError,
        run=_explain,
    ),
    Tool(
        name="send_email",
        title="Send an email",
        description="Send an email, or schedule one. A repeated call with the same arguments sends once.",
        arguments=given.SendEmail,
        run=_send,
        scopes=_SENDS,
        changes=True,
        destroys=True,
    ),
    Tool(
        name="cancel_message",
        title="Cancel a scheduled message",
        description="Cancel a message that waits for its scheduled time.",
        arguments=given.CancelMessage,
        run=_cancel,
        scopes=_SENDS,
        changes=True,
        destroys=True,
    ),
    Tool(
        name="get_approval",
        title="Read a person's decision",
        description="Tell whether a send that needs a person's approval is pending, sent, declined or expired.",
        arguments=given.GetApproval,
        run=_approval,
        scopes=_SENDS,
    ),
)
TOOLS: Final = {one.name: one for one in _ALL}
