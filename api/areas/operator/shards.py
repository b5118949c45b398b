"""`/v1/operator/nodes` and `/v1/operator/shards`: processes, and which of them delivers which shard."""

from api.areas.operator.operation import OPERATORS, actor_of, line, refusing
from api.areas.operator.schemas import (
    MAX_TARGET,
    DomainMerge,
    DomainSplit,
    MemberDrain,
    MemberWeight,
    NodesReply,
    ShardBalance,
    ShardChange,
    ShardMove,
    ShardsQuery,
)
from api.http import readiness
from api.http.operation import Call, Operation
from engine.base.text import checked_line
from engine.store import process_list
from shards import admin
from shards.admin import MAX_WHY, ShardPlan
from shards.overview import ShardOverview, overview

_NOTE = "With `dryRun` only the plan is made. The platform account's log names the operator."


async def list_nodes(call: Call) -> NodesReply:
    """Return the processes of all hosts, and the readiness of this one."""
    found = await process_list.listing(call.services.pool)
    return NodesReply(found.hosts, found.gone, found.processes, await readiness.check(call.services))


async def list_shards(call: Call, query: ShardsQuery) -> ShardOverview:
    """Return members, the busiest shards, splits and moves in progress."""
    return await overview(call.services.pool, call.settings, limit=query.limit)


async def move(call: Call, body: ShardMove) -> ShardChange:
    """Pin shards to a member or node, or remove their pins."""
    with refusing("shards" if body.to is None else "to"):
        plan = await admin.plan_move(call.services.pool, call.settings, body.shards, body.to, why=_why(body.reason))
    return await _carried_out(call, plan, is_dry_run=body.dry_run)


async def drain(call: Call, body: MemberDrain) -> ShardChange:
    """Move all shards away from a member or node, or let it own some again."""
    why, draining = _why(body.reason), not body.undo
    with refusing("name"):
        plan = await admin.plan_place(
            call.services.pool, call.settings, body.name, weight=None, draining=draining, why=why
        )
    return await _carried_out(call, plan, is_dry_run=body.dry_run)


async def weigh(call: Call, body: MemberWeight) -> ShardChange:
    """Set the relative share of load of a member, or of each member of a node."""
    why = _why(body.reason)
    with refusing("name"):
        plan = await admin.plan_place(
            call.services.pool, call.settings, body.name, weight=body.weight, draining=None, why=why
        )
    return await _carried_out(call, plan, is_dry_run=body.dry_run)


async def balance(call: Call, body: ShardBalance) -> ShardChange:
    """Distribute shards by the load of the last minute, or by their number."""
    with refusing("by"):
        plan = await admin.plan_balance(call.services.pool, call.settings, by_count=body.by == "count")
    return await _carried_out(call, plan, is_dry_run=body.dry_run)


async def split(call: Call, body: DomainSplit) -> ShardChange:
    """Spread a recipient domain over several shards."""
    return await _split(call, body.domain, body.parts, body.reason, is_dry_run=body.dry_run)


async def merge(call: Call, body: DomainMerge) -> ShardChange:
    """Merge a split domain into one shard."""
    return await _split(call, body.domain, None if body.by_rule else 1, body.reason, is_dry_run=body.dry_run)


async def _split(call: Call, domain: str, parts: int | None, reason: str, *, is_dry_run: bool) -> ShardChange:
    why, name = _why(reason), checked_line(domain, "domain", MAX_TARGET)
    with refusing("domain"):
        plan = await admin.plan_split(call.services.pool, call.settings, name, parts, why=why)
    return await _carried_out(call, plan, is_dry_run=is_dry_run)


async def _carried_out(call: Call, plan: ShardPlan, *, is_dry_run: bool) -> ShardChange:
    if not is_dry_run:
        await admin.carry_out(call.services.pool, plan, actor=actor_of(call))
    return ShardChange(plan=plan.words, steps=plan.steps, dry_run=is_dry_run)


def _why(reason: str) -> str:
    return line(reason, "reason", MAX_WHY)


OPERATIONS = (
    Operation(
        "GET",
        "/v1/operator/nodes",
        list_nodes,
        "List the processes of all hosts, and the readiness of this one",
        OPERATORS,
    ),
    Operation(
        "GET",
        "/v1/operator/shards",
        list_shards,
        "Show which process delivers which shard, its load and its pending deliveries",
        OPERATORS,
    ),
    Operation("POST", "/v1/operator/shards/move", move, "Pin shards to a member or node", OPERATORS, note=_NOTE),
    Operation(
        "POST", "/v1/operator/shards/drain", drain, "Move all shards away from a member or node", OPERATORS, note=_NOTE
    ),
    Operation(
        "POST",
        "/v1/operator/shards/weight",
        weigh,
        "Set the relative share of load of a member or node",
        OPERATORS,
        note=_NOTE,
    ),
    Operation(
        "POST", "/v1/operator/shards/balance", balance, "Distribute shards by load or by number", OPERATORS, note=_NOTE
    ),
    Operation(
        "POST",
        "/v1/operator/shards/split",
        split,
        "Spread a recipient domain over several shards",
        OPERATORS,
        note=_NOTE,
    ),
    Operation("POST", "/v1/operator/shards/merge", merge, "Merge a split domain into one shard", OPERATORS, note=_NOTE),
)
