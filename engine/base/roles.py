"""What a person may do on an account: three roles, each with all that the one below it may."""

from enum import StrEnum


class Role(StrEnum):
    """From the least to the most."""

    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"

    def includes(self, other: "Role") -> bool:
        """Whether this role may do what `other` may."""
        order = list(Role)
        return order.index(self) >= order.index(other)
