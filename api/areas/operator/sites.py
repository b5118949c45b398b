"""`/v1/operator/sites`: limits of destinations, and their state in the mta processes."""

from typing import Final

import msgspec
from msgspec import UNSET, structs

from api.areas.operator.operation import OPERATORS, actor_of, line, refusing
from api.areas.operator.schemas import SiteRuleChange, SiteRuleRecord, SiteRuleReply
from api.http.operation import Call, Operation
from engine.base.errors import invalid
from engine.delivery.sites import checked_name
from engine.sending import site_admin
from engine.sending.site_admin import SiteLimits, SiteList
from shards.admin import MAX_WHY

DEADLINE_S: Final = 30.0  # with the look-up of a name in DNS
_NAME: Final = "/sites/{name}"


async def list_sites(call: Call) -> SiteList:
    """Return all rules, and the sites whose state changed in the last hour."""
    return await site_admin.listing(call.services.pool)


async def show(call: Call) -> SiteLimits:
    """Return the limits of a domain, host or site, and its state in each mta process."""
    return await site_admin.show(call.services.pool, call.settings, _named(call), call.services.resolver)


async def change(call: Call, body: SiteRuleChange) -> SiteRuleReply:
    """Set or remove limits of a name's rule."""
    fields: dict[str, object] = {
        name: msgspec.to_builtins(value)
        for name, value in structs.asdict(body).items()
        if name != "why" and value is not UNSET
    }
    why = None if body.why is UNSET else line(body.why, "why", MAX_WHY)
    if not fields and why is None:
        raise invalid("body", "Nothing to change. Set at least one limit, or `why`.")
    name = _named(call)
    with refusing("body"):
        done = await site_admin.change(
            call.services.pool, call.settings, name, fields, why, resolver=call.services.resolver,
            actor=actor_of(call),
        )  # fmt: skip
    return SiteRuleReply(name=done.name, rule=SiteRuleRecord(**msgspec.to_builtins(done.rule)))


async def reset(call: Call) -> None:
    """Remove the operator's rule for a name."""
    resolver, actor = call.services.resolver, actor_of(call)
    await site_admin.reset(call.services.pool, call.settings, _named(call), resolver=resolver, actor=actor)


def _named(call: Call) -> str:
    with refusing("name"):
        return checked_name(call.path["name"])


OPERATIONS = (
    Operation(
        "GET", "/v1/operator/sites", list_sites, "List the limits of destinations, and the sites with mail", OPERATORS
    ),
    Operation(
        "GET",
        "/v1/operator/sites/{name}",
        show,
        "Show the limits of a domain, host or site and their origin",
        OPERATORS,
        deadline_s=DEADLINE_S,
    ),
    Operation(
        "PATCH",
        "/v1/operator/sites/{name}",
        change,
        "Change the limits of a mail host, all hosts below a name, a domain's servers, or `*`",
        OPERATORS,
        deadline_s=DEADLINE_S,
        note="In force within a second. The platform account's log names the operator.",
    ),
    Operation(
        "DELETE",
        "/v1/operator/sites/{name}",
        reset,
        "Remove the operator's rule for a name, so that shipped rules and settings apply again",
        OPERATORS,
        deadline_s=DEADLINE_S,
    ),
)
