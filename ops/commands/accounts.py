"""Commands for accounts, people, API keys, sending domains and the platform account."""

from collections.abc import Callable
from pathlib import Path

import click

from engine.base.plans import AGREEABLE, IN_DAYS, MAX_AGREED, MAX_AGREED_DAYS, Plan
from engine.base.scopes import SCOPES
from ops import admin
from ops.commands.base import as_json, attached, fail, reported, show

_account = click.option("--account", "account_id", required=True, help="Id of the account (acc_…).")
_account_id = click.argument("account_id", metavar="ACCOUNT_ID", help="Id of the account (acc_…).")
_domain_name = click.option("--name", required=True, help="Name of the domain, such as example.com.")
_email = click.argument("email", help="Email address that the person signs in with.")


def _raised_caps(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each limit that an agreement can raise."""
    for name in reversed(AGREEABLE):
        most = MAX_AGREED_DAYS if name in IN_DAYS else MAX_AGREED
        words = f"Agreed limit of {name.replace('_', ' ')}; 0: the plan's."
        command = click.option(f"--{name.replace('_', '-')}", type=click.IntRange(0, most), help=words)(command)
    return command


@click.group()
def account() -> None:
    """Create, list, show, suspend and resume accounts; their plans, agreements, billing, invoices and retention."""


@account.command("create")
@click.option("--name", required=True, help="Name of the account.")
@click.option("--email", required=True, help="Email address of the owner.")
@click.option(
    "--plan", type=click.Choice([plan.value for plan in Plan]), default=Plan.FREE.value, show_default=True,
    help="Plan of the account.",
)  # fmt: skip
@click.option(
    "--daily-cap",
    type=click.IntRange(min=0),
    help="Agreed messages per day, instead of the warm-up limit of new accounts.",
)
@click.option(
    "--monthly-cap",
    type=click.IntRange(min=0),
    help="Agreed messages per month, instead of the plan's; never lowers the limit of Enterprise.",
)
@as_json
@reported
def account_create(
    *, name: str, email: str, plan: str, daily_cap: int | None, monthly_cap: int | None, as_json: bool
) -> None:
    """Create an account and print its owner's password, once."""
    made = admin.with_pool(
        attached(),
        lambda pool: admin.create_account(
            pool, name=name, email=email, plan=Plan(plan), daily_cap=daily_cap, monthly_cap=monthly_cap
        ),
    )
    show(made, as_json=as_json)


@account.command("plan")
@_account_id
@click.option(
    "--plan", required=True, type=click.Choice([plan.value for plan in Plan]), help="New plan of the account."
)
@as_json
@reported
def account_plan(*, account_id: str, plan: str, as_json: bool) -> None:
    """Set the plan of an account that has no subscription; its limits hold at once, nothing is deleted."""
    from ops import billing  # noqa: PLC0415

    show(
        admin.with_pool(attached(), lambda pool: billing.set_plan(pool, account=account_id, plan=Plan(plan))),
        as_json=as_json,
    )


@account.command("agreement")
@_account_id
@click.option("--plan", type=click.Choice([plan.value for plan in Plan]), help="Plan that was agreed.")
@click.option("--end", is_flag=True, help="End the agreement and its limits; the account then has the Free plan.")
@_raised_caps
@as_json
@reported
def account_agreement(*, account_id: str, plan: str | None, end: bool, as_json: bool, **caps: int | None) -> None:
    """Agree a plan that is billed outside of Waybill, and limits above it. Without options: show the agreement."""
    from ops import billing  # noqa: PLC0415

    changes = {name: figure or None for name, figure in caps.items() if figure is not None}
    if end and (plan or changes):
        fail("Give --end without other options.")
    if changes and plan is None:
        fail("Give the agreed plan too: --plan PLAN.")
    settings = attached()
    if plan is None and not end:
        found = admin.with_pool(settings, lambda pool: billing.agreement(pool, account=account_id))
        show(found, as_json=as_json)
        return
    agreed = None if plan is None else Plan(plan)
    done = admin.with_pool(
        settings, lambda pool: billing.agree(pool, settings, account=account_id, plan=agreed, caps=changes)
    )
    show(done, as_json=as_json)


@account.command("billing")
@_account_id
@as_json
@reported
def account_billing(*, account_id: str, as_json: bool) -> None:
    """Show an account's subscription, invoices, payment events and the verification of its billing history."""
    from ops import billing  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: billing.shown(pool, account=account_id)), as_json=as_json)


@account.command("invoice")
@click.argument("invoice", metavar="INVOICE", help="Id (inv_…) or number of an invoice.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write; default: NUMBER.pdf.")
@as_json
@reported
def account_invoice(*, invoice: str, out: Path | None, as_json: bool) -> None:
    """Write the PDF of an invoice; also of an account that was erased."""
    from ops import billing  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: billing.invoice(pool, name=invoice, out=out)), as_json=as_json)


@account.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Print at most this many.")
@click.option("--search", help="Only accounts with this id, member's address, domain, or beginning of the name.")
@as_json
@reported
def account_list(*, limit: int, search: str | None, as_json: bool) -> None:
    """List the newest accounts and their status."""
    from ops import accounts  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: accounts.listed(pool, limit=limit, search=search))
    show({"accounts": found}, as_json=as_json)


@account.command("show")
@_account_id
@as_json
@reported
def account_show(*, account_id: str, as_json: bool) -> None:
    """Show an account: suspensions, deletion, sub-accounts. For an erased account, show what remains of it."""
    from ops import accounts  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: accounts.shown(pool, account=account_id)), as_json=as_json)


@account.command("suspend")
@_account_id
@click.option("--reason", required=True, help="Reason, in one sentence; shown to the members of the account.")
@as_json
@reported
def account_suspend(*, account_id: str, reason: str, as_json: bool) -> None:
    """Suspend an account and its sub-accounts: keys stop working, queued mail is held, members can only read."""
    from ops import accounts  # noqa: PLC0415

    done = admin.with_pool(attached(), lambda pool: accounts.suspend(pool, account=account_id, reason=reason))
    show(done, as_json=as_json)


@account.command("resume")
@_account_id
@as_json
@reported
def account_resume(*, account_id: str, as_json: bool) -> None:
    """Resume a suspended account: deliver held mail, and ignore its bounces and complaints up to now."""
    from ops import accounts  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: accounts.resume(pool, account=account_id)), as_json=as_json)


@click.group()
def person() -> None:
    """Help people who can't sign in, or whose sessions were stolen."""


@person.command("show")
@_email
@as_json
@reported
def person_show(*, email: str, as_json: bool) -> None:
    """Show the person who signs in with an email address, and their accounts."""
    from ops import people  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: people.shown(pool, email=email)), as_json=as_json)


@person.command("reset-factor")
@_email
@as_json
@reported
def person_reset_factor(*, email: str, as_json: bool) -> None:
    """Turn off a person's second factor (app and recovery codes lost), end their sessions and notify them by mail."""
    from ops import people  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: people.reset_factor(pool, email=email)), as_json=as_json)


@person.command("sign-in-link")
@_email
@as_json
@reported
def person_sign_in_link(*, email: str, as_json: bool) -> None:
    """Print a link that signs a person in to the console once; a second factor is still required."""
    from ops import people  # noqa: PLC0415

    settings = attached()
    show(admin.with_pool(settings, lambda pool: people.make_link(pool, settings, email=email)), as_json=as_json)


@person.command("operator")
@_email
@click.option("--revoke", "revoked", is_flag=True, help="Make the person no operator any more.")
@as_json
@reported
def person_operator(*, email: str, revoked: bool, as_json: bool) -> None:
    """Confirm a person as an operator of the installation; WAYBILL_OPERATORS must name their address too."""
    from ops import people  # noqa: PLC0415

    settings = attached()
    show(
        admin.with_pool(settings, lambda pool: people.operator(pool, settings, email=email, revoked=revoked)),
        as_json=as_json,
    )


@person.command("sign-out")
@_email
@as_json
@reported
def person_sign_out(*, email: str, as_json: bool) -> None:
    """End all of a person's sessions, and invalidate their sign-in link."""
    from ops import people  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: people.sign_out(pool, email=email)), as_json=as_json)


@click.group()
def key() -> None:
    """Create, list and revoke API keys."""


@key.command("create")
@_account
@click.option(
    "--scopes",
    default="all",
    show_default=True,
    help=f"all, or some of: {', '.join(sorted(SCOPES))}",
)
@click.option("--name", default="Operator's key", show_default=True, help="Name of the key.")
@as_json
@reported
def key_create(*, account_id: str, scopes: str, name: str, as_json: bool) -> None:
    """Create an API key and print it, once."""
    settings = attached()
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    made = admin.with_pool(
        settings, lambda pool: admin.create_key(pool, settings, account=account_id, name=name, scopes=wanted)
    )
    show(made, as_json=as_json)


@key.command("list")
@_account
@as_json
@reported
def key_list(*, account_id: str, as_json: bool) -> None:
    """List an account's keys, without their secrets."""
    from ops import keys  # noqa: PLC0415

    show({"keys": admin.with_pool(attached(), lambda pool: keys.listed(pool, account=account_id))}, as_json=as_json)


@key.command("revoke")
@_account
@click.argument("key_id", metavar="KEY_ID", help="Id of the key (key_…), as `ops key list` shows it.")
@as_json
@reported
def key_revoke(*, account_id: str, key_id: str, as_json: bool) -> None:
    """Revoke a key, for example one that has leaked. This can't be undone."""
    from ops import keys  # noqa: PLC0415

    done = admin.with_pool(attached(), lambda pool: keys.revoked(pool, account=account_id, key=key_id))
    show(done, as_json=as_json)


@click.group()
def domain() -> None:
    """Add and verify sending domains."""


@domain.command("add")
@_account
@_domain_name
@click.option("--verified", is_flag=True, help="Mark the domain as verified without checking DNS.")
@as_json
@reported
def domain_add(*, account_id: str, name: str, verified: bool, as_json: bool) -> None:
    """Add a domain and print the DNS records to publish."""
    settings = attached()
    made = admin.with_pool(
        settings, lambda pool: admin.add_domain(pool, settings, account=account_id, name=name, verified=verified)
    )
    show(made, as_json=as_json)


@domain.command("verify")
@_account
@_domain_name
@as_json
@reported
def domain_verify(*, account_id: str, name: str, as_json: bool) -> None:
    """Check a domain's records in DNS. Exit status 1 if the domain is not verified."""
    settings = attached()
    found = admin.with_pool(settings, lambda pool: admin.check_domain(pool, settings, account=account_id, name=name))
    if found is None:
        fail(f"{name} is not a domain of {account_id}. Add it with `ops domain add`.")
    show(found, as_json=as_json)
    if found["status"] != "verified":
        raise click.exceptions.Exit(1)


@click.group()
def platform() -> None:
    """Choose the account that Waybill sends its own mail from."""


@platform.command("set")
@_account
@click.option("--from", "sender", help="Sender address of that mail; its domain must be verified on the account.")
@as_json
@reported
def platform_set(*, account_id: str, sender: str | None, as_json: bool) -> None:
    """Send confirmations, notices and password links from this account."""
    settings = attached()
    show(
        admin.with_pool(settings, lambda pool: admin.set_platform(pool, settings, account=account_id, sender=sender)),
        as_json=as_json,
    )


@platform.command("show")
@as_json
@reported
def platform_show(*, as_json: bool) -> None:
    """Show the platform account, the sender address, and how many of its mails wait."""
    settings = attached()
    show(admin.with_pool(settings, lambda pool: admin.show_platform(pool, settings)), as_json=as_json)
