"""A DNS server for local mode and for tests: answers over UDP and TCP, and simulates failures.

As a process (`python -m ops.local.dns --port 2653`) it routes all mail to the sink: any name has the MX record
`10 mx.<name>.` and the address 127.0.0.1; names under `nxdomain.test` do not exist, those under `servfail.test`
fail, and those under `nullmx.test` accept no mail (RFC 7505). The records that a customer's domain needs are read
from the database, so that domain verification works without public DNS.

In tests a `Responder` serves its own zone: `responder.set(...)`, `responder.behave(...)`.
"""

import argparse
import asyncio
import json
import os
import socket
import struct
import sys
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, cast

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import uvloop
from msgspec import Struct

from engine.base import settings
from engine.sending.domains.service import identity
from engine.store import stopping
from ops.local import dns_plain
from ops.local.published_records import Published, RecordsUnavailable

Lookup = Callable[[str, str], Awaitable[list[str] | None]]

_TTL: Final = 60
_CHANGING_TTL: Final = 1
_CNAME_DEPTH: Final = 8
_CACHED: Final = 100_000
_TCP_IDLE_S: Final = 10.0
_TCP_CONNECTIONS: Final = 256
_PENDING: Final = 4_096
_PORT_TRIES: Final = 5
_UDP_DEFAULT: Final = 512  # RFC 1035 4.2.1, without EDNS
_HOST: Final = "127.0.0.1"


class DnsBehaviour(Struct, frozen=True):
    """A simulated failure or delay in answering questions about a name."""

    rcode: str | None = None  # "SERVFAIL", "NXDOMAIN", "REFUSED"
    drop: bool = False  # no answer at all
    truncate: bool = False  # truncate UDP answers; TCP answers are complete
    delay_s: float = 0.0


class LoggedQuestion(NamedTuple):
    """A question that the server received."""

    name: str
    rdtype: str
    transport: str  # "udp" or "tcp"


class Responder:
    """The DNS server. Names are case-insensitive, with or without the final dot; unknown names get NXDOMAIN."""

    def __init__(self, *, fallback: Lookup | None = None, cache: bool = False, log: int = 10_000) -> None:
        """Use `fallback` for names that are not in the zone: it returns records, or None if the name doesn't exist.

        With `cache`, encoded answers from `steady` are cached. `log`: number of questions to remember.
        """
        self.questions: deque[LoggedQuestion] = deque(maxlen=log)
        self._zone: dict[str, dict[str, tuple[int, list[str]]]] = {}
        self._behaviours: dict[tuple[str, str | None], DnsBehaviour] = {}
        self._suffixes: dict[str, DnsBehaviour] = {}
        self._fallback = fallback
        self._steady: Callable[[str, str], list[str] | None] | None = None
        self._caches = cache
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._udp: asyncio.DatagramTransport | None = None
        self._tcp: asyncio.Server | None = None
        self._open_tcp = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # -- zone and behaviours -------------------------------------------------------------------

    def set(self, name: str, rdtype: str, values: Sequence[str], *, ttl: int = _TTL) -> None:
        """Set the records of one name and type in zone file form (`"10 mx.a.test."`); [] gives an empty NOERROR."""
        self._zone.setdefault(_plain(name), {})[rdtype.upper()] = (ttl, list(values))

    def null_mx(self, name: str) -> None:
        """Set a null MX: the name accepts no mail (RFC 7505)."""
        self.set(name, "MX", ["0 ."])

    def behave(self, name: str, behaviour: DnsBehaviour | None, rdtype: str | None = None) -> None:
        """Set the behaviour for a name, or for one record type of it; None restores normal answers."""
        key = (_plain(name), rdtype.upper() if rdtype else None)
        self._behaviours.pop(key, None)
        if behaviour is not None:
            self._behaviours[key] = behaviour

    def behave_under(self, suffix: str, behaviour: DnsBehaviour) -> None:
        """Set the behaviour for a name and all names below it."""
        self._suffixes[_plain(suffix)] = behaviour

    def steady(self, source: Callable[[str, str], list[str] | None]) -> None:
        """Set a source of constant records, asked before `fallback`; its None passes the question to `fallback`."""
        self._steady = source

    def clear(self) -> None:
        """Delete the zone, the behaviours, the logged questions and the cache."""
        self._zone.clear()
        self._behaviours.clear()
        self._suffixes.clear()
        self.questions.clear()
        self._cache.clear()

    # -- start and stop ------------------------------------------------------------------------

    async def start(self, host: str = _HOST, port: int = 0) -> tuple[str, int]:
        """Listen on UDP and TCP on the same port (0: any free one); return the address."""
        for attempt in range(_PORT_TRIES):
            self._tcp = await asyncio.start_server(self._serve_tcp, host, port)
            bound: tuple[str, int] = self._tcp.sockets[0].getsockname()[:2]
            try:
                opened = _bound_udp(self._tcp.sockets[0].family, bound)
                self._udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                    lambda: _Udp(self), sock=opened
                )
                break
            except OSError:
                self._tcp.close()
                # The free TCP port may be in use on UDP: try again with another one.
                if port or attempt == _PORT_TRIES - 1:
                    raise
        return bound

    async def stop(self) -> None:
        """Close both sockets and cancel pending answers."""
        if self._udp is not None:
            self._udp.close()
        if self._tcp is not None:
            self._tcp.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tcp is not None:
            await self._tcp.wait_closed()

    async def __aenter__(self) -> Self:
        self.address = await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- answering -----------------------------------------------------------------------------

    def answer_udp(self, request: bytes, sender: tuple[str, int]) -> None:
        """Answer cached and constant records immediately, and other questions in a task."""
        known = self._cache.get(request[2:])
        if known is not None and self._udp is not None:
            self._udp.sendto(request[:2] + known, sender)
            return
        plain = self._plain(request)
        steady = None if plain is None or self._steady is None else self._steady(plain.name, plain.rdtype)
        at_once = None if plain is None or steady is None else dns_plain.answer(request, plain, _TTL, steady)
        if at_once is not None and self._udp is not None:
            self._log(plain)
            self._udp.sendto(at_once, sender)
        elif len(self._tasks) < _PENDING:  # else drop it, as the network may drop any datagram
            self._spawn(self._answer_udp(request, sender, plain if steady is None else None))

    def _plain(self, request: bytes) -> dns_plain.LocalQuestion | None:
        """Return the question if it can be answered without dnspython; None if the zone or a behaviour has its name."""
        plain = dns_plain.read(request) if self._caches else None
        if plain is None or plain.name in self._zone or self._behaviour(plain.name, plain.rdtype) != DnsBehaviour():
            return None
        return plain

    def _log(self, plain: dns_plain.LocalQuestion | None) -> None:
        if plain is not None:
            self.questions.append(LoggedQuestion(plain.name, plain.rdtype, "udp"))

    async def _answer_udp(self, request: bytes, sender: tuple[str, int], plain: dns_plain.LocalQuestion | None) -> None:
        values = None if plain is None or self._fallback is None else await self._fallback(plain.name, plain.rdtype)
        response = None if plain is None or values is None else dns_plain.answer(request, plain, _CHANGING_TTL, values)
        if response is None:
            response = await self._respond(request, "udp")
        else:
            self._log(plain)
        if response is not None and self._udp is not None and not self._udp.is_closing():
            self._udp.sendto(response, sender)

    async def _serve_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open_tcp += 1
        try:
            while self._open_tcp <= _TCP_CONNECTIONS:
                async with asyncio.timeout(_TCP_IDLE_S):
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    request = await reader.readexactly(length)
                response = await self._respond(request, "tcp")
                if response is None:
                    break
                writer.write(struct.pack("!H", len(response)) + response)
                async with asyncio.timeout(_TCP_IDLE_S):
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError):  # the time-out is an OSError
            pass
        finally:
            self._open_tcp -= 1
            self._tasks.discard(task)
            writer.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _respond(self, request: bytes, transport: str) -> bytes | None:
        """Return the encoded answer; None for an invalid request or a dropped answer."""
        try:
            query = dns.message.from_wire(request)
        except dns.exception.DNSException:
            return None
        if not query.question or query.flags & dns.flags.QR:
            return None
        asked = query.question[0]
        name, rdtype = _plain(asked.name.to_text()), dns.rdatatype.to_text(asked.rdtype)
        self.questions.append(LoggedQuestion(name, rdtype, transport))
        behaviour = self._behaviour(name, rdtype)
        if behaviour.delay_s:
            await asyncio.sleep(behaviour.delay_s)
        if behaviour.drop:
            return None
        response = dns.message.make_response(query, recursion_available=True)
        steady = False
        if behaviour.rcode is not None:
            response.set_rcode(dns.rcode.from_text(behaviour.rcode))
        elif behaviour.truncate and transport == "udp":
            response.flags |= dns.flags.TC
        else:
            try:
                steady = await self._fill(response, asked.name, name, rdtype)
            except RecordsUnavailable:
                response.set_rcode(dns.rcode.SERVFAIL)
        encoded = _encoded(response, query, transport)
        if steady and self._caches and transport == "udp":
            self._cache[request[2:]] = encoded[2:]
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        return encoded

    def _behaviour(self, name: str, rdtype: str) -> DnsBehaviour:
        known = self._behaviours.get((name, rdtype)) or self._behaviours.get((name, None))
        if known is not None:
            return known
        for suffix, behaviour in self._suffixes.items():
            if name == suffix or name.endswith("." + suffix):
                return behaviour
        return DnsBehaviour()

    async def _fill(self, response: dns.message.Message, owner: dns.name.Name, name: str, rdtype: str) -> bool:
        """Add the records to the response, following CNAMEs; return True if the answer never changes."""
        for _ in range(_CNAME_DEPTH):
            found, steady = await self._records(name, rdtype)
            if found is None:
                response.set_rcode(dns.rcode.NXDOMAIN)
                return False
            kind, ttl, values = found
            if values:
                response.answer.append(_rrset(owner, kind, ttl, values))
            if kind == rdtype or not values:
                return steady
            owner = dns.name.from_text(values[0])
            name = _plain(values[0])
        return False

    async def _records(self, name: str, rdtype: str) -> tuple[tuple[str, int, list[str]] | None, bool]:
        """Return (type, ttl, values), or None if the name doesn't exist; and True if that never changes."""
        zone = self._zone.get(name)
        if zone is not None:
            kind = rdtype if rdtype in zone or "CNAME" not in zone else "CNAME"
            return (kind, *zone.get(kind, (_TTL, []))), False
        if self._steady is not None:
            values = self._steady(name, rdtype)
            if values is not None:
                return (rdtype, _TTL, values), True
        if self._fallback is not None:
            values = await self._fallback(name, rdtype)
            return ((rdtype, _CHANGING_TTL, values) if values is not None else None), False
        below = "." + name
        exists = any(known.endswith(below) for known in self._zone)  # an empty non-terminal (RFC 8020)
        return ((rdtype, _TTL, []) if exists else None), False


def _bound_udp(family: int, address: tuple[str, int]) -> socket.socket:
    """Return a bound UDP socket; uvloop would leak its socket if the port is in use."""
    udp = socket.socket(family, socket.SOCK_DGRAM)
    try:
        udp.bind(address)
    except OSError:
        udp.close()
        raise
    return udp


class _Udp(asyncio.DatagramProtocol):
    def __init__(self, responder: Responder) -> None:
        self._responder = responder

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self._responder.answer_udp(data, addr)


def local_world(published: Lookup, sink: str = _HOST) -> Responder:
    """Return the responder of local mode, which resolves every name to the sink (see the module docstring)."""

    def fixed(name: str, rdtype: str) -> list[str] | None:
        if rdtype == "A":
            return [sink]
        if rdtype == "AAAA":
            return []
        if rdtype == "MX" and (name == "nullmx.test" or name.endswith(".nullmx.test")):
            return ["0 ."]
        return None

    async def changing(name: str, rdtype: str) -> list[str]:
        found = await published(name, rdtype)
        if not found and rdtype == "MX":
            return [f"10 mx.{name}."]
        return found or []

    responder = Responder(fallback=changing, cache=True, log=0)
    responder.steady(fixed)
    responder.behave_under("nxdomain.test", DnsBehaviour(rcode="NXDOMAIN"))
    responder.behave_under("servfail.test", DnsBehaviour(rcode="SERVFAIL"))
    return responder


def _plain(name: str) -> str:
    return name.rstrip(".").lower()


def _rrset(owner: dns.name.Name, rdtype: str, ttl: int, values: Sequence[str]) -> dns.rrset.RRset:
    texts = [_quoted(value) if rdtype == "TXT" else value for value in values]
    return dns.rrset.from_text_list(owner, ttl, dns.rdataclass.IN, rdtype, texts)


def _quoted(text: str) -> str:
    """Return TXT data as quoted strings of at most 255 octets (RFC 1035 3.3.14); keep text that is quoted already."""
    if text.startswith('"'):
        return text
    raw = text.encode()
    batches = (raw[start : start + 255] for start in range(0, len(raw), 255))
    pieces = ["".join(_escaped(octet) for octet in piece) for piece in batches]
    return " ".join(f'"{piece}"' for piece in pieces) or '""'


def _escaped(octet: int) -> str:
    if octet in b'"\\':
        return "\\" + chr(octet)
    return chr(octet) if 0x20 <= octet < 0x7F else f"\\{octet:03d}"


def _encoded(response: dns.message.Message, query: dns.message.Message, transport: str) -> bytes:
    """Return the wire form; if it is too large for UDP, an empty answer with TC set, so that the client uses TCP."""
    if transport == "tcp":
        return response.to_wire(max_size=65_535)
    limit = max(_UDP_DEFAULT, query.payload) if query.edns >= 0 else _UDP_DEFAULT
    try:
        return response.to_wire(max_size=limit)
    except dns.exception.TooBig:
        cut = dns.message.make_response(query, recursion_available=True)
        cut.flags |= dns.flags.TC
        return cut.to_wire(max_size=limit)


async def serve(
    host: str,
    port: int,
    sink: tuple[str, int],
    given: settings.Settings,
    texts: Mapping[str, Sequence[str]],
    stop: asyncio.Event | None = None,
) -> None:
    """Run the DNS server until `stop` is set (default: at SIGTERM or SIGINT); `texts` are more TXT records by name."""
    stop = stop or stopping.stop_event()
    zone = Published(given.database_url, identity(given) if given.key_pepper else None)
    responder = local_world(cast("Lookup", zone), sink[0])
    for name, values in texts.items():
        responder.set(name, "TXT", values)
    bound = await responder.start(host, port)
    print(f"dns ready on {bound[0]}:{bound[1]}, all mail to {sink[0]}, port {sink[1]}", flush=True)
    await stop.wait()
    await responder.stop()
    await zone.close()
    print("dns stopped", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ops.local.dns", description="local DNS responder")
    parser.add_argument("--host", default=_HOST)
    parser.add_argument("--port", type=int, required=True, help="0 chooses a free one and prints it")
    parser.add_argument("--sink-host", default=_HOST, help="the address that every name has")
    parser.add_argument("--sink-port", type=int, help="named in the ready line: DNS itself knows no ports")
    parser.add_argument("--zone", type=Path, help="JSON file with TXT records by name, to serve beside the others")
    given = parser.parse_args(arguments)
    try:
        loaded = settings.load(os.environ)
        sink_port = given.sink_port or loaded.settings.sink_port
        texts = {} if given.zone is None else json.loads(given.zone.read_text("utf-8"))
        uvloop.run(serve(given.host, given.port, (given.sink_host, sink_port), loaded.settings, texts))
    except settings.BadSetting as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"the DNS responder can't listen on {given.host}:{given.port}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
