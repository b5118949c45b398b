"""Mark the parts of code for the stylesheet: few classes, so that pages stay small."""

from functools import cache
from html import escape
from itertools import groupby
from typing import Final

from pygments import lex
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Literal, Name, String, _TokenType
from pygments.util import ClassNotFound

_ALIASES: Final = {"sh": "bash", "js": "javascript", "text": "text", "dns": "text"}
_CLASSES: Final = (
    (Comment, "c"),
    (String, "s"),
    (Literal, "n"),
    (Keyword, "k"),
    (Name.Tag, "k"),
    (Name.Variable, "v"),
)


def highlighted(code: str, language: str) -> str:
    """Return the code as HTML, with its comments, strings, numbers, keywords and variables in `<span>` elements."""
    tokens = ((_class_of(kind), text) for kind, text in lex(code, _lexer(language)))
    pieces = ((name, "".join(text for _, text in group)) for name, group in groupby(tokens, key=lambda pair: pair[0]))
    return "".join(f'<span class="{name}">{escape(text)}</span>' if name else escape(text) for name, text in pieces)


def _class_of(kind: _TokenType) -> str:
    return next((name for parent, name in _CLASSES if kind in parent), "")


@cache
def _lexer(language: str) -> Lexer:
    try:
        return get_lexer_by_name(_ALIASES.get(language, language), stripnl=False)
    except ClassNotFound:
        return get_lexer_by_name("text")
