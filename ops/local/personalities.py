"""Personalities of the local sink: tables of rules by which it answers as a mailbox provider does.

`personalities.toml` beside this module has the shipped ones. The file of the same name in the state folder adds to them
and replaces some. A personality receives mail at `<name>.sim` and at the domains that `[domains]` maps to it, and below
these. `receiving_rules` applies the rules. Keys of the tables:

    seed                          of the draws of `share`
    [domains]                     domain = name of a personality; applies to the domains below it, too
    [personalities.NAME]          title, source, like (the rules of another one follow, except those with the
                                  same check and mailbox), rules
    [[personalities.NAME.rules]]
      mailboxes   local parts, without plus tag; none: every mailbox
      check       always (default), too_large, unauthenticated (neither SPF nor DKIM passes), unaligned (DMARC),
                  no_one_click (bulk mail without RFC 8058; where `mailboxes` are named, all mail is bulk)
      reply       the SMTP reply to mail that the check finds; {recipient}, {domain}, {client} and {helo} are filled in
      per, lasts  with `reply`: it ends after this time since the first one per `recipient`, `client` or `triplet`
      allow       with `lasts`: number of recipients without it; then it lasts until the time since the first is over
      report      instead of `reply`: accepted; bounce, complaint or tls is sent `after` this time
      said        with `report = "bounce"`: the reply that the bounce quotes
      share       part of the addresses for which the rule holds, 0 to 1; drawn by the seed
      max_bytes   with `too_large`
      source      where the behaviour or the text is published

The first rule that refuses answers. Times are a number and a unit: 30s, 5m, 1h, 3d.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

FILE: Final = "personalities.toml"
TOP: Final = "sim"
_SHIPPED: Final = Path(__file__).parent / FILE
_LIKE_DEPTH: Final = 8
_name = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?").fullmatch
_domain = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*").fullmatch
_reply = re.compile(r"[45]\d\d [ -~]{1,480}").fullmatch
_span = re.compile(r"(\d{1,6})([smhd])").fullmatch
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

Check = Literal["always", "too_large", "unauthenticated", "unaligned", "no_one_click"]
Per = Literal["recipient", "client", "triplet"]
ReportKind = Literal["bounce", "complaint", "tls"]


class BadPersonalities(ValueError):  # noqa: N818 - named for what was given
    """A file of personalities can't be used; the message names the file, the place and the reason."""


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule of a personality; see the docstring of this module."""

    source: str
    mailboxes: tuple[str, ...] = ()
    check: Check = "always"
    reply: str | None = None
    per: Per = "recipient"
    lasts: str | None = None
    allow: int = 0
    report: ReportKind | None = None
    after: str = "0s"
    said: str | None = None
    share: float = 1.0
    max_bytes: int | None = None


class Personality(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules of a provider, in the order in which they are applied."""

    title: str
    source: str
    like: str | None = None
    rules: tuple[Rule, ...] = ()


class _Tables(Struct, forbid_unknown_fields=True):
    """The content of one file."""

    seed: str | None = None
    domains: dict[str, str] = {}
    personalities: dict[str, Personality] = {}


class Personalities:
    """All personalities of a sink, by name and by domain."""

    def __init__(self, by_name: Mapping[str, Personality], domains: Mapping[str, str], seed: str) -> None:
        self.by_name = by_name
        self.seed = seed
        self._domains = {f"{name}.{TOP}": name for name in by_name} | dict(domains)

    def name_of(self, domain: str) -> str | None:
        """Return the name of the personality that receives mail for a domain; None if none does."""
        rest = domain.lower().rstrip(".")
        while rest:
            if (found := self._domains.get(rest)) is not None:
                return found
            rest = rest.partition(".")[2]
        return None


def load(state: Path | None = None) -> Personalities:
    """Return the shipped personalities, with those of the state folder's file; raises BadPersonalities."""
    shipped = _read(_SHIPPED)
    own = _Tables()
    path = _SHIPPED if state is None else state / FILE
    if state is not None and path.exists():
        own = _read(path)
    by_name = shipped.personalities | own.personalities
    whole = {name: _with_rules_of_others(path, name, by_name) for name in by_name}
    domains = {domain.lower().rstrip("."): name for domain, name in (shipped.domains | own.domains).items()}
    for domain, name in domains.items():
        if _domain(domain) is None:
            raise BadPersonalities(f"{path}: [domains] `{domain}` is not a domain in ASCII.")
        if name not in whole:
            raise BadPersonalities(
                f"{path}: [domains] maps {domain} to `{name}`, which is no personality. There are {', '.join(whole)}."
            )
    return Personalities(whole, domains, own.seed or shipped.seed or "")


def span(text: str) -> timedelta:
    """Return a time such as `3d`; raises ValueError."""
    found = _span(text)
    if found is None:
        raise ValueError(f"`{text}` is not a time such as 30s, 5m, 1h or 3d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _read(path: Path) -> _Tables:
    try:
        tables = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _Tables)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadPersonalities(f"{path}: {error}") from error
    for name, personality in tables.personalities.items():
        if _name(name) is None:
            raise BadPersonalities(f"{path}: [personalities.{name}] is not a name of a-z, 0-9 and hyphens.")
        for number, rule in enumerate(personality.rules, 1):
            flaw = _flaw(rule)
            if flaw is not None:
                raise BadPersonalities(f"{path}: rule {number} of [personalities.{name}]: {flaw}.")
    return tables


def _flaw(rule: Rule) -> str | None:
    """Return why a rule can't be applied; None for a good one."""
    if (rule.reply is None) == (rule.report is None):
        return "it needs either `reply` or `report`"
    for text in (rule.reply, rule.said):
        if text is not None and _reply(text) is None:
            return f"`{text}` is not one line in ASCII that begins with a code of 400 to 599"
    if rule.report is not None and rule.check != "always":
        return "`report` goes with no `check`"
    if (rule.check == "too_large") != (rule.max_bytes is not None):
        return '`max_bytes` goes with `check = "too_large"`, and that needs it'
    if not 0 <= rule.share <= 1:
        return f"`share` is {rule.share:g}; it is 0 to 1"
    if rule.allow < 0 or (rule.allow and rule.lasts is None):
        return "`allow` is a whole number, and needs `lasts`"
    if any(local != local.lower() or "+" in local or "@" in local for local in rule.mailboxes):
        return "`mailboxes` are local parts in lower case, without plus tags"
    try:
        span(rule.after)
        span(rule.lasts or "0s")
    except ValueError as error:
        return str(error)
    return None


def _with_rules_of_others(path: Path, name: str, by_name: Mapping[str, Personality]) -> Personality:
    """Return a personality with the rules of those that it is like behind its own, except those that it replaces."""
    personality = by_name[name]
    rules, like = personality.rules, personality.like
    for _ in range(_LIKE_DEPTH):
        if like is None:
            return Personality(title=personality.title, source=personality.source, rules=rules)
        if like not in by_name:
            raise BadPersonalities(f"{path}: [personalities.{name}] is like `{like}`, which is no personality.")
        further = [left for rule in by_name[like].rules if (left := _not_replaced(rule, rules)) is not None]
        rules, like = (*rules, *further), by_name[like].like
    raise BadPersonalities(f"{path}: [personalities.{name}] is like itself.")


def _not_replaced(rule: Rule, before: Sequence[Rule]) -> Rule | None:
    """Return a rule for the mailboxes that have no rule of this check before it; None if that leaves none."""
    same = [one for one in before if one.check == rule.check and (one.report is None) == (rule.report is None)]
    if not rule.mailboxes:
        return None if any(not one.mailboxes for one in same) else rule
    replaced = {local for one in same for local in one.mailboxes}
    left = tuple(local for local in rule.mailboxes if local not in replaced)
    return msgspec.structs.replace(rule, mailboxes=left) if left else None
