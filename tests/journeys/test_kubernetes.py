"""The containers of the Helm chart run: started as the kubelet would, with the rendered command, rights and settings.

No cluster takes part. Each pod has namespaces of its own and a read-only root, and reaches PostgreSQL and Valkey by
sockets; one test goes the way of an installation, from empty database to uninstalling.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from engine.base.settings import load
from loadtests.kit.accounts import ApiAccess, new_access
from ops.host.temporary_servers import Temporary
from ops.local import certificate
from tests.harness import chart_tools, pods
from tests.harness.chart_tools import Manifest
from tests.harness.pods import Pod, Stores, log_lines
from tests.harness.service import until

HOST = chart_tools.REQUIRED["mailHost"]
PEPPER = "5a" * 32
START_S = 200.0
VALUES = {
    "drainSeconds": 5, "mta": {"shardDrainSeconds": 30, "sources": [{"ehlo": f"out{n}.example.com"} for n in range(2)]},
    "settings": {"WAYBILL_LEASE_S": "2", "WAYBILL_FRESH_DUE_S": "1"},
}  # fmt: skip
PORTS = {"api": [8080, 9090], "relay": [2587, 2465, 9090], "mx": [2525, 9090], "mta": [9090], "worker": [9090]}
_numbers = count()

pytestmark = [
    pytest.mark.journey,
    pytest.mark.exhaustive,
    pytest.mark.timeout(900),  # seven starts of the service, each in a container of its own
    pytest.mark.skipif(chart_tools.missing(), reason=chart_tools.WHY),
    pytest.mark.skipif(bool(pods.why_not()), reason=f"no containers here: {pods.why_not()}"),
]


class Cluster:
    """The manifests of the chart, and what stands outside of it: an empty database, Valkey, secrets."""

    def __init__(self, folder: Path, stores: Stores, database: str) -> None:
        self._folder = folder
        self._stores = stores
        self.secrets = {
            "WAYBILL_DATABASE_URL": f"postgresql://postgres@/{database}?host={pods.DATABASE_SOCKETS}",
            "WAYBILL_REDIS_URL": f"unix://{pods.REDIS_SOCKETS}/valkey.sock",
            "WAYBILL_KEY_PEPPER": PEPPER,
        }
        self.manifests = chart_tools.render(VALUES)
        self._tls = certificate.ensure(folder / "issued", HOST)
        self._opened = contextlib.ExitStack()

    def pod(self, part: str, name: str, address: str = "10.0.0.1") -> Pod:
        """Return a pod of a part, not yet started; one of the same name has its volumes again."""
        [found] = [one for one in self.manifests if one["metadata"]["name"] == f"waybill-{part}" and "template" in
                   one["spec"]]  # fmt: skip
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        template: Manifest = found["spec"]["template"]
        return Pod(name, template, folder, secrets=self.secrets, stores=self._stores, tls=self._tls, address=address)

    def start(self, part: str, name: str, address: str = "10.0.0.1") -> Pod:
        """Start a pod, which is killed at the end of the test if it still runs."""
        return self._opened.enter_context(self.pod(part, name, address))

    def close(self) -> None:
        """Kill the pods that run."""
        self._opened.close()


@pytest.fixture
async def database(servers: Temporary) -> Any:
    """Yield the name of an empty database."""
    name = f"pods_{next(_numbers)}"
    connection = await asyncpg.connect(servers.database_url)
    await connection.execute(f"CREATE DATABASE {name}")
    yield name
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


@pytest.fixture
def cluster(servers: Temporary, database: str, tmp_path: Path) -> Iterator[Cluster]:
    """Return the cluster of a test."""
    tmp_path.chmod(0o755)
    stores = Stores(servers.postgres.socket_folder(), servers.valkey.socket.parent)
    with stores.opened():
        made = Cluster(tmp_path, stores, database)
        yield made
        made.close()


def once(check: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    """Return a check for `until` that runs in a thread, as it waits for another process."""

    async def checked() -> bool:
        return await asyncio.to_thread(check)

    return checked


async def until_ready(pod: Pod) -> None:
    """Wait for the probes of the start and of readiness; then the one that keeps the pod alive succeeds too."""
    for name in ("startup", "readiness"):
        await until(once(lambda name=name: pod.probe(name)), START_S, lambda: pod.log.read_text()[-2000:])  # type: ignore[misc]
    assert await asyncio.to_thread(pod.probe, "liveness")


async def after_start(pod: Pod) -> None:
    """Run the hook that Kubernetes runs while the command starts; probes begin after it."""
    await until(once(lambda: bool(pod.log.read_text())))
    done = await asyncio.to_thread(pod.hook, "postStart")
    assert done.returncode == 0, done.stdout + done.stderr


def shards_of(pod: Pod) -> dict[str, int]:
    """Return how many shards each mta pod owns, as `ops shards` says in a pod."""
    done = pod.exec_in(["python", "-m", "ops", "shards", "--json"])
    assert done.returncode == 0, done.stderr
    members = json.loads(done.stdout)["members"]
    return {one["member"].partition(":")[0]: one["shards"] for one in members}


def sent(api: Pod, access: ApiAccess) -> str:
    """Send a message to the simulator through the API of a pod; return its id."""
    body = {"from": access.sender, "to": [f"delivered@simulator.{HOST}"], "subject": "Hello", "text": "Hello!"}
    done = api.fetch(
        8080, "/v1/emails", "--header", f"Authorization: Bearer {access.key}", "--header",
        "Content-Type: application/json", "--data", json.dumps(body),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return str(json.loads(done.stdout)["id"])


def status(api: Pod, access: ApiAccess, message: str) -> str:
    """Return the status of a message."""
    done = api.fetch(8080, f"/v1/messages/{message}", "--header", f"Authorization: Bearer {access.key}")
    assert done.returncode == 0, done.stdout + done.stderr
    return str(json.loads(done.stdout)["status"])


def listens(pod: Pod, port: int) -> bool:
    """Return True if the pod accepts connections on a port."""
    words = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
    return pod.exec_in(["python", "-c", words]).returncode == 0


async def delivered(api: Pod, access: ApiAccess) -> None:
    message = await asyncio.to_thread(sent, api, access)
    await until(once(lambda: status(api, access, message) == "delivered"))


async def test_an_installation_starts_delivers_moves_its_shards_and_drains(
    cluster: Cluster, servers: Temporary, database: str
) -> None:
    # The first install: every pod migrates, one of them does the work.
    running = {part: cluster.start(part, f"waybill-{part}-x") for part in ("api", "worker", "relay", "mx")}
    running |= {f"mta-{n}": cluster.start("mta", f"waybill-mta-{n}", f"10.0.0.{n + 1}") for n in range(2)}
    api, worker, first, second = (running[name] for name in ("api", "worker", "mta-0", "mta-1"))
    await asyncio.gather(after_start(first), after_start(second))
    for pod in running.values():
        await until_ready(pod)

    # Ports answer, no right is left, and only the declared folders can be written.
    for name, pod in running.items():
        for port in PORTS[name.partition("-")[0]]:
            assert await asyncio.to_thread(listens, pod, port), f"{name} {port}"
        assert pod.exec_in(["touch", "/opt/waybill/x"]).returncode != 0
        rights = pod.exec_in(["grep", "-E", "^(CapEff|CapBnd|NoNewPrivs|Uid)", "/proc/self/status"]).stdout.split()
        assert rights[:2] == ["Uid:", "10001"]
        assert rights[-6:] == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    metrics = await asyncio.to_thread(api.fetch, 9090, "/metrics")
    assert "waybill_http_requests_open" in metrics.stdout

    # An operator's commands run in a pod; mail goes from the API's pod to an mta pod.
    words = ["python", "-m", "ops", "account", "create", "--name", "Example", "--email", "ann@example.com"]
    made = await asyncio.to_thread(worker.exec_in, words)
    assert made.returncode == 0, made.stderr
    outside = {
        "WAYBILL_DATABASE_URL": servers.database_url.replace("/postgres?", f"/{database}?"),
        "WAYBILL_REDIS_URL": servers.redis_url, "WAYBILL_KEY_PEPPER": PEPPER, "WAYBILL_DELIVERY": "live",
        "WAYBILL_MAIL_HOST": HOST,
    }  # fmt: skip
    access = await new_access(load(outside).settings, "pods")
    await delivered(api, access)
    assert sorted(await asyncio.to_thread(shards_of, worker)) == ["waybill-mta-0", "waybill-mta-1"]
    environs = [(await asyncio.to_thread(one.exec_in, ["cat", "/proc/1/environ"])).stdout for one in (first, second)]
    assert "WAYBILL_SOURCE_IPS=10.0.0.1=out0.example.com" in environs[0].split("\0")
    assert "WAYBILL_SOURCE_IPS=10.0.0.2=out1.example.com" in environs[1].split("\0")

    # A mta pod goes: first its shards, then the pod; mail still flows. The next one of its name takes shards again.
    hook = await asyncio.to_thread(first.hook, "preStop")
    assert hook.returncode == 0, hook.stdout + hook.stderr
    assert (await asyncio.to_thread(shards_of, worker)) == {"waybill-mta-0": 0, "waybill-mta-1": 256}
    await asyncio.to_thread(first.stop)
    lines = list(log_lines(first))  # the supervisor's sentences and the processes' JSON, as kubectl shows them
    assert any(line.startswith("Waybill is ready") for line in lines)
    assert "stopped" in [json.loads(line)["event"] for line in lines if line.startswith("{")]
    await delivered(api, access)
    again = cluster.start("mta", "waybill-mta-0", "10.0.0.7")
    await after_start(again)
    await until_ready(again)
    await until(once(lambda: shards_of(worker).get("waybill-mta-0", 0) > 100))

    # An upgrade: the hook finds nothing to do.
    job = cluster.start("migrate", "waybill-migrate-x")
    assert await asyncio.to_thread(job.wait, START_S) == 0, job.log.read_text("utf-8")
    assert "the database is up to date" in job.log.read_text("utf-8")

    # Everything stops within its grace period, by itself.
    for pod in (api, running["relay"], running["mx"], again, second, worker):
        await asyncio.to_thread(pod.stop)


async def test_a_mta_pod_without_an_entry_for_its_name_says_so(cluster: Cluster) -> None:
    pod = cluster.start("mta", "waybill-mta-7")

    assert await asyncio.to_thread(pod.wait, START_S) == 1
    assert list(log_lines(pod)) == ["mta.sources has no entry for waybill-mta-7"]
