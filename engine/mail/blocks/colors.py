"""Choose colors that can be read: contrast after WCAG 2.2, and the dark forms of a theme. Pure."""

from typing import Final

READABLE: Final = 4.5  # WCAG 2.2, 1.4.3: the contrast of text
_STEPS: Final = 20
WHITE: Final = "#ffffff"
BLACK: Final = "#16181d"


def luminance(color: str) -> float:
    """Return the relative luminance of `#rrggbb`, from 0 (black) to 1 (white)."""
    red, green, blue = (_linear(int(color[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colors, from 1 to 21."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def text_on(color: str) -> str:
    """Return white or near-black, whichever reads better on a color; white if it reads well enough."""
    if contrast(WHITE, color) >= READABLE:
        return WHITE
    return max((WHITE, BLACK), key=lambda one: contrast(one, color))


def mixed(one: str, other: str, share: float) -> str:
    """Return the color between two, with this share of the second."""
    parts = []
    for at in (1, 3, 5):
        first, second = int(one[at : at + 2], 16), int(other[at : at + 2], 16)
        parts.append(round(first + (second - first) * share))
    return "#{:02x}{:02x}{:02x}".format(*parts)


def readable(color: str, ground: str) -> str:
    """Return a color for text on a ground: the color itself, or as little of white or black added as it needs."""
    target = WHITE if luminance(ground) < 0.18 else BLACK  # 0.18: white and black contrast about equally
    for step in range(_STEPS + 1):
        found = mixed(color, target, step / _STEPS)
        if contrast(found, ground) >= READABLE:
            return found
    return target


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)
