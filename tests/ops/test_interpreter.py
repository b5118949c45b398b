"""Which Python the first start takes, and how builds are told apart."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ops.host import interpreter

PLAIN = {"CONFIG_ARGS": "'--prefix=/opt/py'", "PGO_PROF_USE_FLAG": "-fprofile-use", "PY_CORE_CFLAGS": "-O3 -Wall"}


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        (PLAIN, []),
        ({}, []),
        ({"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'"}, ["profile-guided", "link-time"]),
        (PLAIN | {"CONFIG_ARGS": "'--with-lto=thin'"}, ["link-time"]),
        (PLAIN | {"PY_CORE_CFLAGS": "-O3 -fprofile-use"}, ["profile-guided"]),  # make profile-opt
        (PLAIN | {"PY_LDFLAGS_NODIST": "-flto=auto"}, ["link-time"]),
        (PLAIN | {"CONFIG_ARGS": "'--prefix=/usr' '--without-ensurepip'", "PGO_PROF_USE_FLAG": ""}, ["profile-guided"]),
        (PLAIN | {"CONFIG_ARGS": "'--prefix=/usr'"}, []),  # a plain build that was installed there by hand
    ],
)
def test_the_optimisations_of_a_build_are_told(variables: dict[str, str], found: list[str]) -> None:
    assert interpreter.build(variables.get) == found


def python(version: tuple[int, int], *optimised: str, path: str = "/usr/bin/python3") -> dict[str, Any]:
    return {"path": path, "version": [*version, 5], "optimised": list(optimised)}


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ([], None),
        ([None, python((3, 12))], None),  # plain as well
        ([python((3, 11), "profile-guided")], None),  # older
        ([python((3, 99), "profile-guided")], None),  # never tried
        ([python((3, 13), "link-time"), python((3, 12), "profile-guided")], (3, 12)),  # the nearest version
    ],
)
def test_an_optimised_one_of_the_same_or_a_newer_version_is_preferred(
    others: list[dict[str, Any] | None], chosen: tuple[int, int] | None
) -> None:
    found = interpreter.best(python((3, 12)), others)

    assert (None if found is None else tuple(found["version"][:2])) == chosen


def test_an_interpreter_tells_about_itself_and_what_is_none_tells_nothing(tmp_path: Path) -> None:
    silent = tmp_path / "python3"
    silent.write_text("#!/bin/sh\necho nonsense\n")
    silent.chmod(0o755)
    found = interpreter.ask(sys.executable)

    assert found is not None
    assert found["version"] == list(sys.version_info[:3])
    assert interpreter.ask(str(silent)) is None
    assert interpreter.ask(str(tmp_path / "missing")) is None
    assert str(silent) in interpreter.candidates(str(tmp_path))


def test_the_choice_is_told_and_the_variable_and_a_virtual_environment_go_before_it(tmp_path: Path) -> None:
    told: list[str] = []
    link = tmp_path / "mine"
    link.symlink_to(sys.executable)

    assert interpreter.choose({"PATH": "/usr/bin"}, told.append) == sys.executable  # tests run in an environment
    assert interpreter.choose({"WAYBILL_PYTHON": str(link)}, told.append)
    assert "virtual environment" in told[0]
    assert "WAYBILL_PYTHON says" in told[1]
    with pytest.raises(interpreter.Unfit, match="WAYBILL_PYTHON is /bin/false"):
        interpreter.choose({"WAYBILL_PYTHON": "/bin/false"}, told.append)
