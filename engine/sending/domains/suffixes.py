"""Recognise names under which registries sell domains, such as `co.uk`.

Adding one is a mistake, which this check explains early. It is no protection: control of a domain is proved by a DNS
record.
"""

from functools import cache

from publicsuffixlist import PublicSuffixList


def is_registry_name(name: str) -> bool:
    """Return True for a registry's own name, such as `co.uk`; `name` is in lower-case A-labels.

    Uses the ICANN section of the Public Suffix List in the library.
    """
    return "." in name and _suffixes().is_public(name)


@cache
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList(only_icann=True)  # takes 25 ms, so it is built at first use
