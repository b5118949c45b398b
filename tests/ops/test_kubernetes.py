"""The Helm chart renders manifests that Kubernetes takes and that agree with the code."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import redis
import yaml  # type: ignore[import-untyped]

from engine.base.settings import PREFIX, SECRETS, Settings, load, variable
from engine.base.settings_docs import documented
from loadtests.drill.valkey_servers import until
from ops.host import healthcheck, process_specs, rolling, server_paths, sockets
from ops.host.process_specs import ROOT
from tests.harness import chart_tools
from tests.harness.chart_tools import CHART, REQUIRED, Manifest, merged, render_all
from tests.harness.manifests import ALL, EVERYTHING, container, environment, kind, parts, pods, selects, settings_of
from tests.harness.patience import PATIENCE_S

VERSIONS = ("1.29", "1.33", "1.37")  # from Chart.yaml's kubeVersion to the newest known

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(chart_tools.missing(), reason=chart_tools.WHY)]


@pytest.fixture(scope="module")
def rendered() -> dict[str, list[Manifest]]:
    """The manifests of each of `ALL`."""
    found = render_all([merged(REQUIRED, one) for one in ALL.values()])
    refused = [one for one in found if isinstance(one, str)]
    assert not refused
    return dict(zip(ALL, [one for one in found if not isinstance(one, str)], strict=True))


@pytest.fixture(scope="module", params=list(ALL))
def manifests(request: pytest.FixtureRequest, rendered: dict[str, list[Manifest]]) -> list[Manifest]:
    """Each of the sets of manifests."""
    return rendered[request.param]


# -- what Kubernetes takes ----------------------------------------------------------------------


def test_helm_finds_nothing_wrong() -> None:
    assert chart_tools.lint() == []


def test_kubernetes_takes_every_manifest_without_unknown_fields(rendered: dict[str, list[Manifest]]) -> None:
    together = [one for manifests in rendered.values() for one in manifests]

    assert chart_tools.validated(together, VERSIONS) == []
    kube = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["kubeVersion"]
    assert f">={VERSIONS[0]}." in kube


def test_names_are_unique_and_short_enough_for_the_labels_made_from_them() -> None:
    [found] = render_all([merged(REQUIRED, EVERYTHING)])
    assert not isinstance(found, str)
    names = [(one["kind"], one["metadata"]["name"]) for one in found]

    assert len(set(names)) == len(names)
    # The release's part is cut to 40; a StatefulSet's pods carry its name, a dash and ten characters as a label.
    assert all(40 + len(name.removeprefix("waybill")) + 11 <= 63 for _, name in names)
    assert all(len(str(value)) <= 63 for one in found for value in one["metadata"]["labels"].values())


def test_objects_of_operators_have_the_fields_that_they_require(rendered: dict[str, list[Manifest]]) -> None:
    """Kubernetes has no schema of these; the field names are those of the operators' API references."""
    found = rendered["everything"]
    [cluster] = kind(found, "Cluster").values()
    [monitor] = kind(found, "ServiceMonitor").values()

    assert cluster["apiVersion"] == "postgresql.cnpg.io/v1"
    assert set(cluster["spec"]) == {
        "instances", "enableSuperuserAccess", "bootstrap", "storage", "walStorage", "postgresql", "backup",
        "monitoring", "resources",
    }  # fmt: skip
    assert cluster["spec"]["postgresql"]["synchronous"] == {"method": "any", "number": 1}
    assert all(isinstance(value, str) for value in cluster["spec"]["postgresql"]["parameters"].values())
    assert set(monitor["spec"]) == {"jobLabel", "selector", "endpoints"}
    assert not any(one["apiVersion"].startswith(chart_tools.CUSTOM) for one in rendered["default"])


# -- what the code declares ---------------------------------------------------------------------


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_each_part_starts_with_settings_that_load(manifests: list[Manifest]) -> None:
    for name, pod in parts(manifests).items():
        settings = settings_of(pod)
        assert settings.processes == (name,)
        assert settings.delivery == "live"
        assert settings.log_output == "stdout"


def test_every_kind_of_process_has_its_pod(rendered: dict[str, list[Manifest]]) -> None:
    assert set(parts(rendered["default"])) == set(Settings().processes)
    assert set(parts(rendered["minimal"])) == {"api", "mta", "worker"}
    assert {settings_of(one).mx_workers for one in parts(rendered["minimal"]).values()} == {0}
    assert {settings_of(one).mx_workers for one in parts(rendered["default"]).values()} == {1}


def test_a_part_gets_exactly_the_secrets_that_its_processes_read(manifests: list[Manifest]) -> None:
    for name, pod in parts(manifests).items():
        given = {one["name"] for one in container(pod)["env"]} & {variable(field) for field in SECRETS}
        readers = {variable(field): set(documented()[field].readers) for field in SECRETS}
        assert given == {secret for secret, who in readers.items() if who & {"all", name}}


def test_every_secret_comes_from_an_existing_one(manifests: list[Manifest]) -> None:
    assert not kind(manifests, "Secret", "ConfigMap")
    secrets = {variable(field) for field in SECRETS} | {"VALKEY_PASSWORD", "REDISCLI_AUTH"}
    for pod in pods(manifests).values():
        for one in container(pod).get("env", []):
            if one["name"] in secrets:
                text = one.get("value", "")
                assert "secretKeyRef" in one.get("valueFrom", {}) or "$(VALKEY_PASSWORD)@" in text, one


def test_no_secret_is_an_argument_where_the_list_of_processes_shows_it(manifests: list[Manifest]) -> None:
    for name, pod in pods(manifests).items():
        given = container(pod)
        secret = [one["name"] for one in given["env"] if "secretKeyRef" in one.get("valueFrom", {})]
        words = " ".join([*given.get("command", []), *given["args"]])
        assert not [one for one in secret if f"$({one})" in words], name


def test_the_chart_starts_a_valkey_that_demands_the_password(
    rendered: dict[str, list[Manifest]], tmp_path: Path
) -> None:
    given = container(pods(rendered["everything"])["waybill-valkey"])
    socket, [script] = tmp_path / "valkey.sock", given["args"]
    (tmp_path / "valkey-server").symlink_to(server_paths.valkey_program(server_paths.find_paths(tmp_path)))
    script = script.replace("--dir /data", f"--dir {tmp_path} --port 0 --unixsocket {socket}")
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "REDISCLI_AUTH": "0123456789abcdef"}
    with subprocess.Popen([*given["command"], script], env=environ, stdout=subprocess.DEVNULL) as server:
        try:
            with redis.Redis(unix_socket_path=str(socket), password=environ["REDISCLI_AUTH"]) as client:
                until(lambda: socket.exists() and client.ping(), PATIENCE_S, "Valkey did not start")
                assert client.config_get("maxmemory*")["maxmemory-policy"] == "noeviction"
                assert client.config_get("maxmemory")["maxmemory"] == str(512 * 1024 * 1024)
            with redis.Redis(unix_socket_path=str(socket)) as stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()
        finally:
            server.kill()


def test_metrics_on_a_nodes_network_are_not_on_its_public_addresses(rendered: dict[str, list[Manifest]]) -> None:
    for name, manifests in rendered.items():
        env = container(parts(manifests)["mta"])["env"]
        bound = [one["valueFrom"]["fieldRef"]["fieldPath"] for one in env if one["name"] == "WAYBILL_API_HOST"]
        assert bound == (["status.hostIP"] if name == "minimal" else []), name


def test_containers_declare_the_ports_that_the_part_listens_on(manifests: list[Manifest]) -> None:
    for name, pod in parts(manifests).items():
        settings = settings_of(pod)
        wanted = {
            one: getattr(settings, sockets.address_settings(one)[1]) for one in process_specs.socket_names(settings)
        }
        declared = {one["name"]: one["containerPort"] for one in container(pod)["ports"]}
        assert declared == wanted | {"metrics": settings.metrics_port}, name
        assert min(declared.values()) >= 1024  # no capability is needed


def test_pods_have_as_few_rights_as_the_strictest_standard_demands(rendered: dict[str, list[Manifest]]) -> None:
    for manifests in (rendered["default"], rendered["everything"]):
        for name, pod in pods(manifests).items():
            spec, security = pod["spec"], container(pod)["securityContext"]
            assert spec["securityContext"]["runAsNonRoot"] is True, name
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert spec["automountServiceAccountToken"] is False
            assert spec["enableServiceLinks"] is False  # WAYBILL_MX_PORT is a setting, not a Service's address
            assert "hostNetwork" not in spec
            assert security == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                "capabilities": {"drop": ["ALL"]}}  # fmt: skip


def test_the_user_of_the_pods_is_the_one_of_the_image(rendered: dict[str, list[Manifest]]) -> None:
    [uid] = re.findall(r"--uid (\d+) ", (ROOT / "ops/deploy/compose/Dockerfile").read_text("utf-8"))

    for pod in parts(rendered["everything"]).values():
        context = pod["spec"]["securityContext"]
        assert {context["runAsUser"], context["runAsGroup"], context["fsGroup"]} == {int(uid)}
        mounts = {one["mountPath"] for one in container(pod)["volumeMounts"]}
        assert mounts >= {"/tmp", str(settings_of(pod).state)}


def test_a_pod_has_time_to_drain_before_it_is_killed(manifests: list[Manifest]) -> None:
    for name, pod in parts(manifests).items():
        settings = settings_of(pod)
        stages = process_specs.processes(settings)
        drain_s = sum({rolling.kind(one.name): one.grace_s for one in stages}.values())
        assert pod["spec"]["terminationGracePeriodSeconds"] >= _pre_stop_s(container(pod)) + drain_s + 10, name


def _pre_stop_s(container: Manifest) -> float:
    words = " ".join(container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["0"]))
    return float(re.findall(r"(?:sleep |--timeout |^)(\d+)", words)[0])


def test_probes_ask_what_the_code_answers(manifests: list[Manifest]) -> None:
    for name, pod in parts(manifests).items():
        probes = {one: container(pod)[f"{one}Probe"] for one in ("startup", "readiness", "liveness")}
        if name == "api":
            assert {one: probe["httpGet"] for one, probe in probes.items()} == {
                "startup": {"path": "/readyz", "port": "http"}, "readiness": {"path": "/readyz", "port": "http"},
                "liveness": {"path": "/healthz", "port": "http"},
            }  # fmt: skip
        else:
            assert all(
                probe["exec"]["command"][:3] == ["python", "-m", healthcheck.__name__] for probe in probes.values()
            )
            assert probes["liveness"]["exec"]["command"][3:] == ["--alive"]
            assert all(probe["timeoutSeconds"] > healthcheck.TIMEOUT_S for probe in probes.values())
        # A start may wait for PostgreSQL, then for its processes.
        assert probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"] >= 240


def test_commands_are_ones_that_the_image_has(manifests: list[Manifest]) -> None:
    for name, pod in pods(manifests).items():
        if name != "waybill-valkey":
            words = " ".join([*container(pod).get("command", []), *container(pod)["args"]])
            assert re.search(r"(^|ops )(up|migrate)\s*$", words), name


# -- how the objects fit each other -------------------------------------------------------------


def test_selectors_select_the_pods_they_are_for_and_services_reach_their_ports(manifests: list[Manifest]) -> None:
    templates = pods(manifests)
    labelled = {name: pod["metadata"]["labels"] for name, pod in templates.items()}
    for name, one in kind(manifests, "Deployment", "StatefulSet").items():
        assert selects(one["spec"]["selector"], labelled[name])
    for name, one in kind(manifests, "PodDisruptionBudget").items():
        assert [pod for pod, labels in labelled.items() if selects(one["spec"]["selector"], labels)] == [name]
    for name, service in kind(manifests, "Service").items():
        selected = [pod for pod, labels in labelled.items() if selects(service["spec"]["selector"], labels)]
        assert selected, name
        for pod in selected:
            named = {one["name"] for one in container(templates[pod]).get("ports", [])}
            assert {one["targetPort"] for one in service["spec"]["ports"]} <= named, name


def test_services_offer_the_ports_of_mail(rendered: dict[str, list[Manifest]]) -> None:
    services = kind(rendered["default"], "Service")
    offered = {name: {one["port"] for one in service["spec"]["ports"]} for name, service in services.items()}

    assert offered == {"waybill-api": {80}, "waybill-relay": {587, 465}, "waybill-mx": {25}, "waybill-metrics": {9090}}
    for name in ("waybill-relay", "waybill-mx"):
        assert services[name]["spec"]["type"] == "LoadBalancer"
        assert services[name]["spec"]["externalTrafficPolicy"] == "Local"


def test_network_policies_allow_what_services_offer_and_nothing_else_comes_in(
    rendered: dict[str, list[Manifest]],
) -> None:
    for manifests in (rendered["default"], rendered["everything"]):
        policies = kind(manifests, "NetworkPolicy").values()
        for pod in pods(manifests).values():
            labels = pod["metadata"]["labels"]
            mine = [one["spec"] for one in policies if selects(one["spec"]["podSelector"], labels)]
            assert any(one.get("egress") and one["policyTypes"] == ["Ingress", "Egress"] and "ingress" not in one
                       for one in mine)  # fmt: skip
            allowed = {port["port"] for one in mine for rule in one.get("ingress", []) for port in rule["ports"]}
            assert allowed == {one["name"] for one in container(pod).get("ports", [])} or labels[
                "app.kubernetes.io/component"] == "migrate"  # fmt: skip


def test_every_part_may_reach_the_stores_and_only_mta_pods_reach_port_25(
    rendered: dict[str, list[Manifest]],
) -> None:
    for manifests in (rendered["default"], rendered["everything"]):
        policies = kind(manifests, "NetworkPolicy").values()
        for name, pod in (parts(manifests) | {"migrate": pods(manifests)["waybill-migrate"]}).items():
            labels = pod["metadata"]["labels"]
            rules = [rule for one in policies if selects(one["spec"]["podSelector"], labels)
                     for rule in one["spec"].get("egress", [])]  # fmt: skip
            ports = {port.get("port") for rule in rules for port in rule["ports"]}
            assert {53, 5432, 6379} <= ports
            assert (25 in ports) == (name == "mta")
            assert (None in ports) == (name in {"api", "worker"})  # any port of a public address
        for one in policies:
            for rule in one["spec"].get("egress", []):
                for peer in rule.get("to", []):
                    assert "ipBlock" not in peer or len(peer["ipBlock"]["except"]) >= 2


def test_migrations_run_before_an_upgrade_and_need_nothing_of_the_release(rendered: dict[str, list[Manifest]]) -> None:
    job = kind(rendered["everything"], "Job")["waybill-migrate"]
    hooked = [one for one in rendered["everything"] if "helm.sh/hook" in one["metadata"].get("annotations", {})]

    assert hooked == [job]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    spec = job["spec"]["template"]["spec"]
    assert "serviceAccountName" not in spec
    assert all(set(volume) == {"name", "emptyDir"} for volume in spec["volumes"])
    load({name: value for name, value in environment(job["spec"]["template"]).items() if name.startswith(PREFIX)})


def test_each_mta_pod_has_its_source_address_by_its_name(rendered: dict[str, list[Manifest]]) -> None:
    listed = environment(parts(rendered["everything"])["mta"])["MTA_SOURCES"].splitlines()
    by_node = environment(parts(rendered["minimal"])["mta"])["MTA_SOURCES"].splitlines()

    assert listed == ["waybill-mta-0 =out0.example.com", "waybill-mta-1 192.0.2.26=out1.example.com"]
    assert by_node == ["node0 =out0.example.com", "node1 =out1.example.com"]
    assert parts(rendered["minimal"])["mta"]["spec"]["affinity"]["podAntiAffinity"]
    assert "MTA_SOURCES" not in environment(parts(rendered["default"])["mta"])


def test_the_api_scales_by_open_requests_where_they_are_measured(rendered: dict[str, list[Manifest]]) -> None:
    [plain] = kind(rendered["default"], "HorizontalPodAutoscaler").values()
    [measured] = kind(rendered["everything"], "HorizontalPodAutoscaler").values()

    assert [one["type"] for one in plain["spec"]["metrics"]] == ["Resource"]
    assert [one["type"] for one in measured["spec"]["metrics"]] == ["Pods", "Resource"]
    name = measured["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert name in (ROOT / "engine/store/metrics.py").read_text("utf-8")
    assert "replicas" not in kind(rendered["default"], "Deployment")["waybill-api"]["spec"]


def test_the_rules_are_those_of_prometheus_and_the_job_has_their_name(rendered: dict[str, list[Manifest]]) -> None:
    rules = kind(rendered["everything"], "PrometheusRule")
    for name in ("alerts", "recording"):
        file = ROOT / "ops" / "deploy" / "prometheus" / f"{name}.yml"
        assert rules[f"waybill-{name}"]["spec"] == yaml.safe_load(file.read_text("utf-8"))
        assert (CHART / "rules" / f"{name}.yml").resolve() == file
    [monitor] = kind(rendered["everything"], "ServiceMonitor").values()
    services = kind(rendered["everything"], "Service").values()
    [service] = [one for one in services if selects(monitor["spec"]["selector"], one["metadata"]["labels"])]
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "waybill"


def test_the_database_of_the_chart_has_connections_for_all_pods(rendered: dict[str, list[Manifest]]) -> None:
    """The formula of ops/runbooks/scale.md, with one pod more of each part during an update."""
    found = rendered["everything"]
    [cluster] = kind(found, "Cluster").values()
    [scaler] = kind(found, "HorizontalPodAutoscaler").values()
    count = {name: int(one["spec"].get("replicas", 0)) + 1 for name, one in kind(found, "Deployment").items()}
    needed = 10 * (scaler["spec"]["maxReplicas"] + 1) + 12 * 2 + 10
    needed += 8 * (count["waybill-relay"] + count["waybill-mx"]) + 12 * count["waybill-worker"]

    assert int(cluster["spec"]["postgresql"]["parameters"]["max_connections"]) >= needed
