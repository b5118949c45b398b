"""Decode text in the charsets that mail declares, within a fixed list of codecs.

The list replaces `codecs.lookup`, which searches the file system for every unknown name and remembers the name for the
life of the process: a sender could fill the memory with invented names.
"""

import re
from encodings.aliases import aliases
from enum import StrEnum
from typing import Final

_NO_TEXT: Final = frozenset({"base64_codec", "bz2_codec", "hex_codec", "mbcs", "quopri_codec", "rot_13", "uu_codec",
                             "zlib_codec"})  # fmt: skip
# Names that mail uses and Python's table of aliases lacks.
_MORE: Final = {
    "ansi_x3_4_1968": "utf_8", "big5_hkscs": "big5hkscs", "cp874": "cp874", "cp_850": "cp850", "cp949": "cp949",
    "euc_cn": "gb18030", "gb18030": "gb18030", "iso_8859_6_e": "iso8859_6", "iso_8859_6_i": "iso8859_6",
    "iso_8859_8_e": "iso8859_8", "iso_8859_8_i": "iso8859_8", "koi8_ru": "koi8_u", "koi8_u": "koi8_u",
    "utf_8_sig": "utf_8_sig", "windows_874": "cp874", "windows_31j": "cp932", "x_euc_jp": "euc_jp", "x_gbk": "gb18030",
    "x_mac_cyrillic": "mac_cyrillic", "x_sjis": "cp932",
}  # fmt: skip
# Supersets that mail programs write under the smaller name (encoding.spec.whatwg.org 4.2, "Names and labels"), and
# UTF-8 for ASCII, which many programs declare for any text.
_SUPERSETS: Final = {
    "ascii": "utf_8", "big5": "big5hkscs", "euc_kr": "cp949", "gb2312": "gb18030", "gbk": "gb18030",
    "iso8859_9": "cp1254", "latin_1": "cp1252", "iso8859_1": "cp1252", "shift_jis": "cp932", "tis_620": "cp874",
}  # fmt: skip


def _table() -> dict[str, str]:
    named = {codec: codec for codec in aliases.values()} | aliases | _MORE | {name: name for name in _SUPERSETS}
    return {name: _SUPERSETS.get(codec, codec) for name, codec in named.items() if codec not in _NO_TEXT}


_CODECS: Final = _table()
_without_signs = re.compile(r"[^a-z0-9]+").sub
# Other labels of encoding.spec.whatwg.org 4.2 and of mail programs, without their signs and a first `x` or `cs`.
_LOOSE: Final = {_without_signs("", name): codec for name, codec in _CODECS.items()} | {
    "cnbig5": "big5hkscs", "dos874": "cp874", "euckr": "cp949", "eucpkdfmtjapanese": "euc_jp", "gb231280": "gb18030",
    "iso88598e": "iso8859_8", "iso88598i": "iso8859_8", "iso88596e": "iso8859_6", "iso88596i": "iso8859_6",
    "isoir149": "cp949", "koi": "koi8_r", "koi8": "koi8_r", "ksc5601": "cp949", "ksc56011987": "cp949",
    "ksc56011989": "cp949", "latin9": "iso8859_15", "logical": "iso8859_8", "mac": "mac_roman", "macce": "mac_latin2",
    "macukrainian": "mac_cyrillic", "suneugreek": "iso8859_7", "unicode11utf8": "utf_8", "unicode20utf8": "utf_8",
    "isolatin1": "cp1252", "isolatin9": "iso8859_15", "utf8mb4": "utf_8", "visual": "iso8859_8",
    "windows932": "cp932", "windows936": "gb18030", "windows949": "cp949", "windows950": "big5hkscs",
    "xbig5": "big5hkscs",
}  # fmt: skip
_LOOSE.update({f"{family}125{page}": f"cp125{page}" for page in range(9) for family in ("windows", "win")})
_LOOSE.update({name.removeprefix("iso"): codec for name, codec in _LOOSE.items() if name.startswith("iso8859")})
_SEPARATORS: Final = str.maketrans("- .", "___")
_MAX_LABEL: Final = 100  # characters in which a charset is looked for
_label_words = re.compile(r"[A-Za-z0-9](?:[\w.:+-]*[A-Za-z0-9])?", re.ASCII).findall


class CharsetFlaw(StrEnum):
    """The reason why a decoded text may differ from what its author wrote."""

    UNKNOWN = "unknown_charset"  # read as UTF-8
    GUESSED = "charset_guessed"  # none declared, and not UTF-8: read as Windows-1252
    DAMAGED = "text_damaged"  # octets that the charset does not have


def codec_of(label: str) -> str | None:
    """Return the Python codec for a declared charset, or None if it is unknown.

    Finds the name also among what programs write around it: `"utf-8" (text)`, `iso-8859-1,`, `charset=utf-8`.
    """
    codec = _named_codec(label)
    if codec is None and len(label) <= _MAX_LABEL:
        return next(filter(None, map(_named_codec, _label_words(label))), None)
    return codec


def _named_codec(name: str) -> str | None:
    codec = _CODECS.get(name.strip("'\" \t\r\n").lower().translate(_SEPARATORS))
    if codec is None and len(name) <= _MAX_LABEL:
        loose = _without_signs("", name.lower())
        codec = _LOOSE.get(loose) or _LOOSE.get(loose.removeprefix("x")) or _LOOSE.get(loose.removeprefix("cs"))
    return codec


def decode_text(octets: bytes, declared: str) -> tuple[str, CharsetFlaw | None]:
    """Decode octets; return the text, which UTF-8 can encode, and the flaw of its declaration or content.

    `declared` is the charset, or "" if there is none. Octets that can't be decoded become U+FFFD.
    """
    codec = codec_of(declared) if declared else "utf_8"
    flaw = CharsetFlaw.UNKNOWN if codec is None else None
    try:
        text = octets.decode(codec or "utf_8")
        if not text.isascii():
            text.encode()  # UTF-7 can spell lone surrogates
    except ValueError:
        return _replaced(octets, declared, codec, flaw)
    return text, flaw


def in_charset(octets: bytes, charset: str) -> str:
    """Decode octets in a declared charset to text that UTF-8 can encode; use UTF-8 if the charset is unknown."""
    return decode_text(octets, charset or "utf-8")[0]


def _replaced(
    octets: bytes, declared: str, codec: str | None, flaw: CharsetFlaw | None
) -> tuple[str, CharsetFlaw | None]:
    if not declared:
        # The default of web browsers for such text (encoding.spec.whatwg.org, "windows-1252").
        return octets.decode("cp1252", "replace"), CharsetFlaw.GUESSED
    text = octets.decode(codec or "utf_8", "replace")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = octets.decode("utf_8", "replace")
    return text, flaw or CharsetFlaw.DAMAGED
