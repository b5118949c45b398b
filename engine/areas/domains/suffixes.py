"""Names under which registries sell domains: nobody sends from them, so adding one is a slip of the pen.

It saves people a wait for records that they can't publish; it guards nothing: proof of a domain is a record in its
DNS, and no customer can write one under a registry's own name.
"""

from functools import cache

from publicsuffixlist import PublicSuffixList


def is_registry_name(name: str) -> bool:
    """True for a name that a registry runs itself, such as `co.uk`; `name` is in lower-case A-labels.

    By the ICANN part of the Public Suffix List as the library carries it.
    """
    return "." in name and _suffixes().is_public(name)


@cache
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList(only_icann=True)  # some 25 ms, so not before somebody asks
