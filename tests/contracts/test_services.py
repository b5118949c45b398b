"""Handlers get typed services: mypy checks each use, so a field that is missing there never reaches production."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def untyped_services(tree: ast.Module) -> list[int]:
    """The lines that annotate a field or an argument `services` as `Any` or `object`."""
    named = [
        *((one.lineno, one.arg, one.annotation) for one in ast.walk(tree) if isinstance(one, ast.arg)),
        *(
            (one.lineno, one.target.id, one.annotation)
            for one in ast.walk(tree)
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ),
    ]
    return [
        line
        for line, name, kind in named
        if name in {"services", "_services"} and (kind is None or ast.unparse(kind) in {"Any", "object"})
    ]


@pytest.mark.parametrize("folder", ["engine", "shards", "api", "mta", "ops"])
def test_no_services_are_untyped(folder: str) -> None:
    strays = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in untyped_services(ast.parse(path.read_text("utf-8")))
    ]

    assert strays == []


def test_resources_leave_caches_to_the_services() -> None:
    strays = [
        path.relative_to(ROOT)
        for path in sorted((ROOT / "api/areas").rglob("*.py"))
        if ".clear()" in path.read_text("utf-8")
    ]

    assert strays == []
