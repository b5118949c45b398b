"""`ops domain`: add and verify sending domains."""

import click

from ops import admin
from ops.commands.base import as_json, fail, in_service, reported, show

_account = click.option("--account", "account_id", required=True, help="Id of the account (acc_…).")
_domain_name = click.option("--name", required=True, help="Name of the domain, such as example.com.")


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
    show(in_service(admin.add_domain, account=account_id, name=name, verified=verified), as_json=as_json)


@domain.command("verify")
@_account
@_domain_name
@as_json
@reported
def domain_verify(*, account_id: str, name: str, as_json: bool) -> None:
    """Check a domain's records in DNS. Exit status 1 if the domain is not verified."""
    found = in_service(admin.check_domain, account=account_id, name=name)
    if found is None:
        fail(f"{name} is not a domain of {account_id}. Add it with `ops domain add`.")
    show(found, as_json=as_json)
    if found["status"] != "verified":
        raise click.exceptions.Exit(1)
