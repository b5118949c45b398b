"""Lists of domains and local parts: privacy relays, disposable providers, role names, common typing errors. Pure."""

from typing import Final

from disposable_email_domains import blocklist

# Relays that forward to a person's real mailbox until that person stops it. Lists of disposable providers hold some.
# Sources: support.apple.com/105078 (Hide My Email), support.mozilla.org/kb/relay-faq, duckduckgo.com/email (Email
# Protection), simplelogin.io/docs, proton.me/support/pass-alias-address, addy.io/faq, 33mail.com, ironvest.com.
RELAYS: Final = frozenset({
    "privaterelay.appleid.com", "mozmail.com", "relay.firefox.com", "duck.com",
    "simplelogin.com", "simplelogin.co", "simplelogin.fr", "simplelogin.io", "slmail.me", "slmails.com", "aleeas.com",
    "8alias.com", "8shield.net", "dralias.com", "silomails.com",
    "passmail.com", "passmail.net", "passinbox.com", "passfwd.com",
    "anonaddy.com", "anonaddy.me", "addy.io", "addymail.com", "4wrd.cc", "mailer.me", "addy.biz",
    "33mail.com", "opayq.com",
})  # fmt: skip

# RFC 2142 sections 3 to 6, then what companies use most.
ROLES: Final = frozenset({
    "abuse", "ftp", "hostmaster", "info", "marketing", "news", "noc", "postmaster", "sales", "security", "support",
    "usenet", "uucp", "webmaster", "www",
    "accounting", "accounts", "admin", "administrator", "all", "billing", "careers", "compliance", "contact",
    "customerservice", "devnull", "do-not-reply", "donotreply", "dpo", "enquiries", "everyone", "feedback", "finance",
    "hello", "help", "helpdesk", "hr", "inquiries", "invoices", "it", "jobs", "legal", "list", "mail",
    "mailer-daemon", "media", "newsletter", "no-reply", "noreply", "office", "orders", "press", "privacy",
    "reception", "recruitment", "returns", "root", "service", "spam", "staff", "subscribe", "sysadmin", "team",
    "unsubscribe", "welcome",
})  # fmt: skip

# The most common typing errors of the largest mailbox providers' domains. They are suggested, never applied.
TYPING_ERRORS: Final = {
    "gmial.com": "gmail.com", "gmai.com": "gmail.com", "gamil.com": "gmail.com", "gmal.com": "gmail.com",
    "gnail.com": "gmail.com", "gmail.co": "gmail.com", "gmail.con": "gmail.com", "gmail.cm": "gmail.com",
    "hotmial.com": "hotmail.com", "hotmal.com": "hotmail.com", "hotmai.com": "hotmail.com",
    "hotmail.con": "hotmail.com", "yaho.com": "yahoo.com", "yahooo.com": "yahoo.com", "yahoo.con": "yahoo.com",
    "outlok.com": "outlook.com", "outloook.com": "outlook.com", "outlook.con": "outlook.com", "iclod.com": "icloud.com",
    "icloud.con": "icloud.com",
}  # fmt: skip


def is_relay(domain: str) -> bool:
    """Return True for a privacy relay or a subdomain of one."""
    return _is_under(domain, RELAYS)


def is_disposable(domain: str) -> bool:
    """Return True for a provider of throw-away mailboxes or a subdomain of one, unless it is a privacy relay."""
    return not is_relay(domain) and _is_under(domain, blocklist)


def is_role(local: str) -> bool:
    """Return True for a local part that names a function instead of a person; a tag after `+` does not matter."""
    return local.lower().partition("+")[0] in ROLES


def _is_under(domain: str, listed: frozenset[str] | set[str]) -> bool:
    labels = domain.split(".")
    return any(".".join(labels[start:]) in listed for start in range(max(0, len(labels) - 6), len(labels) - 1))
