"""Render the Helm chart and validate manifests, in a process of its own: Helm is a library with Go's runtime.

Run as a script with the packages of `CHART_TOOLS_PYTHONPATH`: reads `{"values": [...], "validate": [...]}` and prints a
list with the result of each, manifests or `{"error": TEXT}`; with versions in `validate`, the errors of each of them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

CHART: Final = Path(__file__).resolve().parents[2] / "ops" / "deploy" / "kubernetes"
PACKAGES: Final = "CHART_TOOLS_PYTHONPATH"  # a folder with helm-python-sdk and kubernetes-validate
WHY: Final = f"helm-python-sdk and kubernetes-validate are not where {PACKAGES} says"
RELEASE: Final = "waybill"
NAMESPACE: Final = "mail"
CUSTOM: Final = ("monitoring.coreos.com/", "postgresql.cnpg.io/")  # of operators: Kubernetes has no schema of these
REQUIRED: Final[dict[str, Any]] = {
    "existingSecret": "waybill-secrets", "mailHost": "mail.example.com", "publicUrl": "https://mail.example.com",
    "tls": {"secret": "waybill-tls"},
}  # fmt: skip
Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_S: Final = 100.0

Manifest = dict[str, Any]


class Refused(Exception):  # noqa: N818 - named for what it says
    """The chart refused the values; the text is Helm's message."""

    @property
    def error(self) -> str:
        """Return Helm's message."""
        return str(self.args[0])


def missing() -> bool:
    """Return True if the packages are not where the environment says."""
    return not (Path(os.environ.get(PACKAGES) or "/nonexistent") / "helm_python").is_dir()


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with `more` laid over them, as Helm does with several files of values."""
    found = dict(values)
    for name, value in more.items():
        before = found.get(name)
        found[name] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def render_all(values: Sequence[Mapping[str, Any]]) -> list[list[Manifest] | str]:
    """Render the chart with each of the values; return manifests, or the message of a refusal."""
    return [one.error if isinstance(one, Refused) else _documents(one) for one in texts(values)]


def texts(values: Sequence[Mapping[str, Any]]) -> list[list[str] | Refused]:
    """Render the chart with each of the values; return the texts of its files, or the refusal."""
    found = _ask({"values": values})
    return [Refused(one["error"]) if isinstance(one, dict) else [str(text) for text in one] for one in found]


def render(more: Mapping[str, Any] | None = None) -> list[Manifest]:
    """Render the chart with the required values and `more`; raises Refused."""
    [found] = render_all([merged(REQUIRED, more or {})])
    if isinstance(found, str):
        raise Refused(found)
    return found


def lint() -> list[str]:
    """Return Helm's findings about the chart with the required values that are errors or warnings."""
    return [str(one) for one in _ask({"lint": REQUIRED})]


def validated(manifests: Sequence[Manifest], versions: Sequence[str]) -> list[str]:
    """Return how the manifests break the strict schemas of these versions of Kubernetes."""
    known = [one for one in manifests if not one["apiVersion"].startswith(CUSTOM)]
    return [str(one) for one in _ask({"validate": versions, "manifests": known})]


def _ask(question: Mapping[str, Any]) -> list[Any]:
    environ = {**os.environ, "PYTHONPATH": os.environ[PACKAGES]}
    done = subprocess.run(
        [sys.executable, __file__], check=True, input=json.dumps(question), capture_output=True, text=True,
        env=environ, timeout=_S,
    )  # fmt: skip
    return list(json.loads(done.stdout))


def _documents(files: Sequence[str]) -> list[Manifest]:
    return [one for text in files for one in yaml.load_all(text, Loader) if one]


def _answer(question: Mapping[str, Any]) -> list[Any]:
    """Answer in the process that has the packages."""
    if "validate" in question:
        import kubernetes_validate as checker  # type: ignore[import-not-found]

        errors = []
        for version in question["validate"]:
            for manifest in question["manifests"]:
                try:
                    checker.validate(manifest, version, strict=True)
                except checker.ValidationError as error:
                    errors.append(f"{version} {manifest['kind']} {manifest['metadata']['name']}: {error.message}")
        return errors
    import helm_python as helm  # type: ignore[import-not-found]

    if "lint" in question:
        found = helm.lint(str(CHART), values=question["lint"])
        return [*(one for one in found["messages"] if one["severity"] > 1), *found["errors"]]
    answers: list[Any] = []
    with helm.Chart.load(str(CHART)) as chart:
        for values in question["values"]:
            try:
                rendered = chart.render(values, name=RELEASE, namespace=NAMESPACE)
            except helm.HelmError as error:
                answers.append({"error": str(error)})
            else:
                answers.append([text for name, text in sorted(rendered.items()) if name.endswith(".yaml")])
    return answers


if __name__ == "__main__":
    json.dump(_answer(json.load(sys.stdin)), sys.stdout)
