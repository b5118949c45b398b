"""Define the roles of people on an account, which decide what they may do. Each role includes the one below it."""

from enum import StrEnum


class Role(StrEnum):
    """A role of a person on an account; the order of declaration is from least to most rights."""

    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"

    def includes(self, other: "Role") -> bool:
        """Return True if this role may do everything that `other` may."""
        order = list(Role)
        return order.index(self) >= order.index(other)
