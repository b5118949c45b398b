"""Decide whether local mode allows sign-up and private addresses, by the address that the API listens on, and sending
over SMTP without a login.

Local mode is for one machine: everybody may sign up, and webhooks may post to private addresses. On an address that
other machines reach, both would give strangers an account, and a way to the hosts of the private network.
"""

from ipaddress import ip_address
from typing import Final

from engine.base.settings import Settings, variable

FIRST_RUN: Final = "first-run.json"  # in the state folder: account, API key and domain that the first start made


def is_exposed(settings: Settings) -> bool:
    """Return True in local mode if the API listens on an address other than loopback."""
    return settings.delivery == "local" and not is_loopback(settings.api_host)


def may_sign_up(settings: Settings) -> bool:
    """Return True if everybody may sign up."""
    return settings.signup == "open" or (settings.signup == "auto" and not is_exposed(settings))


def may_dial_private(settings: Settings, allowed: bool | None) -> bool:  # noqa: FBT001 - the value of a setting
    """Return whether a setting allows private addresses; unset (None) it does in local mode that is not exposed."""
    return settings.delivery == "local" and not is_exposed(settings) if allowed is None else allowed


def sends_without_login(settings: Settings) -> bool:
    """Return True if programs on this machine may send over SMTP without TLS and login.

    Behind a load balancer they may not: its connections from loopback are those of strangers.
    """
    return settings.delivery == "local" and settings.submission_open is not False and not settings.proxy_networks


def sign_up_closed(settings: Settings) -> str:
    """Return the sentence for a person who may not sign up."""
    if settings.signup == "auto":
        return (
            f"Sign-up is closed: this service runs in local mode on {settings.api_host}, which other machines reach. "
            f"Ask its operator to set {variable('signup')}=open, or for an invitation."
        )
    return "Sign-up is closed. Ask a member of an account for an invitation."


def warning(settings: Settings) -> str | None:
    """Return the line for the operator at the start; None if local mode is not exposed."""
    if not is_exposed(settings):
        return None
    told = [f"sign-up is closed ({variable('signup')}=open opens it)"] * (settings.signup == "auto")
    if settings.allow_private_webhooks is None:
        told.append(f"webhooks reach no private addresses ({variable('allow_private_webhooks')}=true allows them)")
    if not told:
        return None
    return f"Local mode listens on {settings.api_host}, which other machines reach: {', and '.join(told)}."


def is_loopback(host: str) -> bool:
    """Return True for an address that only this machine reaches."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
