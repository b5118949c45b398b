"""Break valid examples at random: the same seed gives the same inputs."""

from collections.abc import Callable, Iterator, Sequence
from random import Random

MAX_OCTETS = 20_000
_INTERESTING = (b"\x00", b"\xff", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" ", b'"', b"\\", b"=", b";", b"<", b">", b"%",
                b"\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\xae", b"-1", b"0", b"9" * 30, b"1e999",
                b"\x7f", b"..", b"{{", b"}}", b"{", b"}", b"[", b"]", b",", b":", b"@",
                b"=?utf-8?b?", b"?=")  # fmt: skip

Change = Callable[[Random, bytearray, Sequence[bytes]], None]


def inputs(examples: Sequence[bytes], words: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """Yield the examples, then `count` broken ones of at most `MAX_OCTETS` octets."""
    yield from examples
    random = Random(seed)
    known = (*_INTERESTING, *words)
    for _ in range(count):
        content = bytearray(random.choice(examples))
        for _ in range(1 + int(random.expovariate(0.5))):
            random.choice(_CHANGES)(random, content, known)
        yield bytes(content[:MAX_OCTETS])


def _span(random: Random, content: bytearray) -> slice:
    start = random.randrange(len(content) + 1)
    return slice(start, min(len(content), start + 1 + int(random.expovariate(1 / 12))))


def _flip(random: Random, content: bytearray, _known: Sequence[bytes]) -> None:
    if content:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _put(random: Random, content: bytearray, known: Sequence[bytes]) -> None:
    at = random.randrange(len(content) + 1)
    content[at:at] = random.choice(known)


def _replace(random: Random, content: bytearray, known: Sequence[bytes]) -> None:
    content[_span(random, content)] = random.choice(known)


def _drop(random: Random, content: bytearray, _known: Sequence[bytes]) -> None:
    del content[_span(random, content)]


def _cut(random: Random, content: bytearray, _known: Sequence[bytes]) -> None:
    del content[random.randrange(len(content) + 1) :]


def _repeat(random: Random, content: bytearray, _known: Sequence[bytes]) -> None:
    span = _span(random, content)
    content[span.stop : span.stop] = content[span] * random.choice((1, 2, 7, 100))


def _swap(random: Random, content: bytearray, _known: Sequence[bytes]) -> None:
    one, other = sorted((_span(random, content), _span(random, content)), key=lambda span: span.start)
    if one.stop <= other.start:
        content[one.start : other.stop] = content[other] + content[one.stop : other.start] + content[one]


_CHANGES: tuple[Change, ...] = (_flip, _put, _put, _replace, _replace, _drop, _cut, _repeat, _swap)
