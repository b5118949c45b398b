"""Turn a theme into the styles of an email: typeface, colors, and their dark forms. Pure."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from engine.mail.blocks import colors
from engine.mail.blocks.types import BlockTheme

FONTS: Final = {  # installed on the systems that people read mail on
    "sans": "-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif",
    "serif": "Georgia,'Times New Roman',serif",
    "mono": "Menlo,Consolas,'Courier New',monospace",
}
# Outlook on Windows shows Times New Roman where the first name of a list is unknown to it.
OUTLOOK_FONTS: Final = {"sans": "Arial,sans-serif", "serif": "Georgia,serif", "mono": "Consolas,monospace"}
_DARK_BACKGROUND: Final = "#101216"
_DARK_SURFACE: Final = "#1b1e24"
_DARK_TEXT: Final = "#e7e9ee"
_DARK_BELOW: Final = 0.18  # luminance of a surface from which a theme counts as light


class Palette(Struct, frozen=True):
    """The colors of one mode."""

    background: str
    surface: str
    text: str
    muted: str
    line: str
    link: str


class Look(Struct, frozen=True):
    """The styles of an email. `dark` is None for a theme that is dark already."""

    font: str
    outlook_font: str
    width: int
    accent: str
    light: Palette
    dark: Palette | None

    @property
    def link(self) -> str:
        """Return the attributes of a link in text."""
        return f'class="wb-link" style="color:{self.light.link};text-decoration:underline"'

    def text(self, size: int, line_height: str, color: str | None = None, weight: int = 400) -> str:
        """Return the style of text; clients without style sheets need it on each element."""
        shade = self.light.text if color is None else color
        return (
            f"margin:0;font-family:{self.font};font-size:{size}px;line-height:{line_height};"
            f"font-weight:{weight};color:{shade}"
        )


def look_of(theme: BlockTheme) -> Look:
    """Return the styles of a theme, with colors adjusted where text could not be read."""
    light = _palette(theme.background, theme.surface, theme.text, theme.accent)
    is_dark = colors.luminance(theme.surface) < _DARK_BELOW
    dark = None if is_dark else _palette(_DARK_BACKGROUND, _DARK_SURFACE, _DARK_TEXT, theme.accent)
    return Look(FONTS[theme.font], OUTLOOK_FONTS[theme.font], theme.width, theme.accent, light, dark)


def style_sheets(look: Look) -> Iterator[str]:
    """Yield the rules for phones and dark mode; the email is complete without them.

    The form for Outlook on the web stands apart: its selectors are unknown to Gmail, which may remove the whole sheet.
    """
    rules = [
        f":root{{color-scheme:{'light dark' if look.dark else 'dark'}}}",
        "table{border-collapse:separate}",
        f"@media (max-width:{look.width}px){{",
        ".wb-pad{padding-left:20px!important;padding-right:20px!important}",
        ".wb-cols{padding-left:12px!important;padding-right:12px!important}",
        ".wb-col{display:block!important;max-width:100%!important}",
        ".wb-h1{font-size:24px!important}",
        "}",
    ]
    if look.dark is not None:
        rules += ["@media (prefers-color-scheme:dark){", *_dark_rules(look.dark), "}"]
    yield "\n".join(rules)
    if look.dark is not None:
        yield "\n".join(f"[data-ogsc] {rule}" for rule in _dark_rules(look.dark))


def _dark_rules(dark: Palette) -> list[str]:
    return [
        f".wb-page{{background-color:{dark.background}!important}}",
        f".wb-surface{{background-color:{dark.surface}!important}}",
        f".wb-text{{color:{dark.text}!important}}",
        f".wb-muted{{color:{dark.muted}!important}}",
        f".wb-link{{color:{dark.link}!important}}",
        f".wb-line{{border-top-color:{dark.line}!important}}",
    ]


def _palette(background: str, surface: str, text: str, accent: str) -> Palette:
    text = colors.readable(text, surface)
    return Palette(
        background=background,
        surface=surface,
        text=text,
        muted=colors.readable(colors.mixed(text, surface, 0.4), surface),
        line=colors.mixed(text, surface, 0.82),
        link=colors.readable(accent, surface),
    )
