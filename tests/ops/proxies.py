"""Load balancers of others, each started in front of a running API: with the file that ops/deploy ships, and plainly.

nginx, HAProxy, Caddy and Apache are looked for on the PATH and in /usr/sbin.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec import Struct

from loadtests.ports import reserve_port
from ops.host.process_specs import ROOT
from tests.harness.transport import self_signed

SHIPPED = ROOT / "ops" / "deploy" / "proxies"
NAME = "api.example.com"
START_S = 15.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


class Site(Struct, frozen=True):
    """Where a proxy listens, what is behind it, and the folder that is its own."""

    listen: str
    api: str
    folder: Path


class Proxy(Struct, frozen=True):
    """One way to set a proxy up. `write` makes its configuration; `limit` is its own bound on bodies, if any."""

    name: str
    program: str
    write: Callable[[Site], str]
    shipped: bool = False
    tls: bool = False
    limit: int | None = None


class Running(Struct, frozen=True):
    """A proxy that answers, and its base URL."""

    proxy: Proxy
    url: str


@contextlib.asynccontextmanager
async def running(proxy: Proxy, api_url: str, folder: Path) -> AsyncIterator[Running]:
    """The proxy in front of `api_url`; skips the test where it is not installed."""
    program = shutil.which(proxy.program, path=_PATH)
    if program is None:
        pytest.skip(f"{proxy.program} is not installed")
    port = reserve_port()
    site = Site(f"127.0.0.1:{port}", urlsplit(api_url).netloc, folder)
    config = folder / "proxy.conf"
    config.write_text(proxy.write(site))
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(
            [program, *_arguments(proxy.program, config)],
            cwd=folder,
            env={"PATH": _PATH, "HOME": str(folder)},  # Caddy keeps its state there
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        await _until_it_listens(process, port, folder / "proxy.log")
        yield Running(proxy, f"{'https' if proxy.tls else 'http'}://127.0.0.1:{port}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.wait)


async def _until_it_listens(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    async with asyncio.timeout(START_S):
        while process.poll() is None:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.transport.abort()
                return
            await asyncio.sleep(0.05)
    raise RuntimeError(f"the proxy did not start:\n{log.read_text('utf-8', 'replace')[-4000:]}")


def _arguments(program: str, config: Path) -> Sequence[str]:
    return {
        "nginx": ["-e", "stderr", "-p", str(config.parent), "-c", str(config), "-g", "daemon off;"],
        "haproxy": ["-db", "-f", str(config)],
        "caddy": ["run", "--adapter", "caddyfile", "--config", str(config)],
        "apache2": ["-DFOREGROUND", "-f", str(config)],
    }[program]


def nginx_around(servers: str, folder: Path) -> str:
    """Return a whole configuration of nginx with these servers, whose files are all in `folder`."""
    user = "user root;\n" if os.geteuid() == 0 else ""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    around = f"pid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}\n"
    return f"{user}{around}{servers}\n}}\n"


def _plain_nginx(*directives: str) -> Callable[[Site], str]:
    def write(site: Site) -> str:
        location = "\n".join([f"proxy_pass http://{site.api};", *directives])
        return nginx_around(f"server {{ listen {site.listen}; location / {{ {location} }} }}", site.folder)

    return write


def _shipped_nginx(site: Site) -> str:
    pem = _certificate(site.folder)
    text = _with_api("nginx.conf", site).replace("listen 443", f"listen {site.listen}")
    return nginx_around(re.sub(r"(ssl_certificate(?:_key)?) \S+;", rf"\1 {pem};", text), site.folder)


def _haproxy(sections: str) -> str:
    timeouts = "timeout connect 5s\ntimeout client 50s\ntimeout server 50s"  # as Debian ships them
    return f"global\n  maxconn 1000\ndefaults\n  mode http\n  {timeouts}\n{sections}\n"


def _plain_haproxy(*options: str) -> Callable[[Site], str]:
    def write(site: Site) -> str:
        lines = [f"listen api\n  bind {site.listen}", *options, f"server api1 {site.api}"]
        return _haproxy("\n  ".join(lines))

    return write


def _shipped_haproxy(site: Site) -> str:
    text = _with_api("haproxy.cfg", site).replace("bind :443", f"bind {site.listen}")
    return _haproxy(text.replace(f"/etc/haproxy/{NAME}.pem", str(_certificate(site.folder))))


def _caddy(site: Site, block: str) -> str:
    host, port = site.listen.split(":")
    bound = block.replace("{", f"{{\nbind {host}", 1)
    return f"{{\n admin off\n auto_https off\n}}\nhttp://:{port} {bound}\n"


def _plain_caddy(*directives: str) -> Callable[[Site], str]:
    return lambda site: _caddy(site, "\n".join([f"{{\nreverse_proxy {site.api} {{", *directives, "}\n}"]))


def _shipped_caddy(site: Site) -> str:
    return _caddy(site, _with_api("Caddyfile", site).partition(NAME)[2])  # without its certificate from an authority


def _apache(site: Site, host: str) -> str:
    modules = "\n".join(f"LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so" for name in APACHE_LOADS)
    user = "User www-data\nGroup www-data\n" if os.geteuid() == 0 else ""
    files = f"PidFile {site.folder}/apache.pid\nErrorLog /dev/stderr\nMutex file:{site.folder} default\n"
    return f"{modules}\n{user}{files}ServerName localhost\nListen {site.listen}\n{host}\n"


def _plain_apache(*directives: str) -> Callable[[Site], str]:
    def write(site: Site) -> str:
        lines = [
            f"<VirtualHost {site.listen}>",
            f"ProxyPass / http://{site.api}/ nocanon",
            *directives,
            "</VirtualHost>",
        ]
        return _apache(site, "\n".join(["AllowEncodedSlashes NoDecode", *lines]))

    return write


def _shipped_apache(site: Site) -> str:
    pem = _certificate(site.folder)
    text = _with_api("apache.conf", site).replace("*:443", site.listen)
    return _apache(site, re.sub(r"(SSLCertificate(?:Key)?File) \S+", rf"\1 {pem}", text))


def _with_api(file: str, site: Site) -> str:
    return (SHIPPED / file).read_text("utf-8").replace("127.0.0.1:8080", site.api)


def _certificate(folder: Path) -> Path:
    self_signed(NAME).server(folder)
    (pem,) = folder.glob("*.pem")
    return pem


MIB = 1024 * 1024
APACHE_MODULES = "/usr/lib/apache2/modules"
APACHE_LOADS = ("mpm_event", "authz_core", "socache_shmcb", "ssl", "http2", "headers", "env", "proxy", "proxy_http")
PROXIES = (
    Proxy("nginx as shipped", "nginx", _shipped_nginx, shipped=True, tls=True, limit=60 * MIB),
    Proxy("nginx, nothing but proxy_pass", "nginx", _plain_nginx(), limit=MIB),  # HTTP/1.0, one request a connection
    Proxy(
        "nginx without buffers", "nginx",
        _plain_nginx("proxy_http_version 1.1;", "proxy_buffering off;", "proxy_request_buffering off;"), limit=MIB,
    ),
    Proxy("HAProxy as shipped", "haproxy", _shipped_haproxy, shipped=True, tls=True),
    Proxy("HAProxy, nothing but its defaults", "haproxy", _plain_haproxy("option httpchk")),
    Proxy("HAProxy that closes", "haproxy", _plain_haproxy("option httpclose")),
    Proxy(
        "HAProxy that buffers requests", "haproxy",
        _plain_haproxy("option http-buffer-request", "http-reuse always"),
    ),
    Proxy("Caddy as shipped", "caddy", _shipped_caddy, shipped=True, limit=60 * MIB),
    Proxy("Caddy, nothing but reverse_proxy", "caddy", _plain_caddy()),
    Proxy("Caddy that closes", "caddy", _plain_caddy("flush_interval -1", "transport http {", "keepalive off", "}")),
    Proxy("Caddy that buffers requests", "caddy", _plain_caddy("buffer_requests")),
    Proxy("Apache as shipped", "apache2", _shipped_apache, shipped=True, tls=True, limit=60 * MIB),
    Proxy("Apache, nothing but paths unchanged", "apache2", _plain_apache()),
    Proxy("Apache that closes", "apache2", _plain_apache("SetEnv proxy-nokeepalive 1")),
)  # fmt: skip
