"""Markup that tries to run a script or to reach a host: every combination of element, handler, address and quoting.

Each piece sets `hostile` on its window or asks for an address below the canary, so that one check finds those that
worked.
"""

from itertools import product
from typing import Final

SCRIPT: Final = "hostile=1"
ELEMENTS: Final = (
    "a", "abbr", "audio", "body", "button", "details", "dialog", "div", "embed", "form", "frameset", "iframe", "image",
    "img", "input", "isindex", "keygen", "link", "marquee", "math", "object", "select", "style", "svg", "table",
    "textarea", "title", "video", "x",
)  # fmt: skip
HANDLERS: Final = (
    "onload", "onerror", "onfocus", "onmouseover", "ontoggle", "onanimationstart", "ontransitionend", "onbegin",
    "onpointerrawupdate", "onbeforetoggle", "onscrollend", "onauxclick",
)  # fmt: skip
QUOTINGS: Final = (
    "{name}={value}",
    '{name}="{value}"',
    "{name}='{value}'",
    "/{name}=`{value}`",
    "\t{name}\n=\r{value}",
)
ADDRESSES: Final = (
    "javascript:{script}", "JaVaScRiPt:{script}", "java\tscript:{script}", "&#106;avascript:{script}",
    "\x01javascript:{script}", "data:text/html,<script>{script}</script>", "vbscript:{script}", "{canary}/address",
    "//{host}/address", "feed:javascript:{script}",
)  # fmt: skip
ADDRESS_PLACES: Final = (
    "a href", "iframe src", "iframe srcdoc", "img src", "img srcset", "object data", "embed src", "form action",
    "button formaction", "base href", "link rel=stylesheet href", "link rel=prefetch href", "link rel=icon href",
    "meta http-equiv=refresh content", "video poster", "audio src", "source srcset", "track src", "body background",
    "table background", "input type=image src", "svg><use href", "svg><image href", "svg><animate href", "math href",
    "a ping", "area href", "frame src", "applet codebase", "script src",
)  # fmt: skip
STYLES: Final = (
    "background:url({canary}/style)", "@import '{canary}/import'", "list-style:url({canary}/list)",
    "width:expression({script})", "behavior:url({canary}/htc)", "-moz-binding:url({canary}/xbl)",
    "content:url({canary}/content)", "@font-face{{font-family:x;src:url({canary}/font)}}",
    "cursor:url({canary}/cursor),auto", "border-image:url({canary}/border)", "mask:url({canary}/mask)",
)  # fmt: skip
BREAKS: Final = (
    "", '">', "'>", "-->", "</title>", "</textarea>", "</style>", "</script>", "</svg>", "`>", "]]>", "</noscript>",
    "<![CDATA[", "<!--", "{{", "${", "\\", "%3C", "<math><mtext><table><mglyph><style><!--</style>",
    "<svg></p><style><a id='</style>", "<form><math><mtext></form><form><mglyph><style></math>",
)  # fmt: skip


def pieces(canary: str) -> list[str]:
    """Return about 8,000 pieces of markup; `canary` is the address (`http://host:port`) that must not be asked."""
    host = canary.partition("//")[2]
    fill = {"script": SCRIPT, "canary": canary, "host": host}
    found = [
        f"<{element} {quoting.format(name=handler, value=SCRIPT)} autofocus tabindex=1 src=x open>"
        for element, handler, quoting in product(ELEMENTS, HANDLERS, QUOTINGS)
    ]
    for place, address in product(ADDRESS_PLACES, ADDRESSES):
        target = address.format(**fill)
        found += [f'<{place}="{target}">', f"<{place}={target} >", f"<{place}='0;url={target}'>x</{place.split()[0]}>"]
    for style in STYLES:
        text = style.format(**fill)
        found += [
            f'<div style="{text}">',
            f"<style>*{{{text}}}</style>",
            f"<style>{text};</style>",
            f"<svg><style>{text}",
        ]
    scripts = [f"<script>{SCRIPT}</script>", f"<script src={canary}/script></script>", f"<img src=x onerror={SCRIPT}>"]
    found += [opening + script for opening, script in product(BREAKS, scripts)]
    nested = [f"<{outer}><{inner} onload={SCRIPT}>" for outer, inner in product(ELEMENTS, ELEMENTS)]
    escaped = [one.replace("<", "&lt;") for one in scripts] + [one.replace("<", "\\u003c") for one in scripts]
    wrapped = [opening + one for opening, one in product(BREAKS, found[::16])]
    return found + nested + escaped + wrapped
