"""The files of the console as served: vendored libraries unchanged, small, compressed, with their policy."""

import gzip
import hashlib
import posixpath
import re
import tomllib

from api.console import assets
from api.console.modules import without_comments
from api.http.static_files import StaticFile
from tests.harness.api import Api

PLAIN = {"Accept-Encoding": "identity"}
VENDOR = assets.FILES / "vendor"
MAX_FIRST_LOAD_BYTES = 60_000  # compressed: start page, styles, vendor module, core, the page after sign-in
MAX_FIRST_SCRIPTS = 12
MAX_PAGE_BYTES = 15_000
MAX_FACE_BYTES = 110_000  # both subsets; the first load above is without the one that it preloads
MAX_COMPOSER_BYTES = 40_000  # loaded only when a person composes by blocks
_IMPORTED = re.compile(r"""^(?:(?:import|export)\b[^;]*?\bfrom|import)\s+"(\.[^"]+)";""", re.MULTILINE)


def test_vendored_libraries_are_as_published() -> None:
    known = tomllib.loads((VENDOR / "VENDOR.toml").read_text("utf-8"))
    sums = known["sha256"]
    assert {path.name for path in VENDOR.iterdir()} == {*sums, "VENDOR.toml"}
    for name, expected in sums.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == expected, name
    for library, record in known.items():
        if library != "sha256":
            assert {record["license_file"], *record["files"]} <= set(sums)
            assert record["version"]
            assert record["license"]


def test_the_joined_module_exports_what_its_parts_export() -> None:
    joined = assets.files().by_path["vendor/preact.mjs"].plain.decode()
    assert "import" not in re.sub(r"important|importNode", "", joined)
    for name in ("h", "render", "useState", "signal", "useSignalEffect", "htm"):
        assert re.search(rf"export const (?:\{{[^}}]*\b{name}\b[^}}]*\}}|{name})=", joined), name


def test_the_first_load_is_small() -> None:
    known = assets.files().by_path
    page = len(gzip.compress((assets.FILES / "console.html").read_bytes()))
    scripts = [*assets.files().first, "app/main.js", "app/pages/home.js"]
    octets = page + len(known["app/console.css"].content) + sum(len(known[name].content) for name in scripts)
    assert len(scripts) <= MAX_FIRST_SCRIPTS
    assert octets <= MAX_FIRST_LOAD_BYTES, octets


def test_the_typeface_is_small_and_only_its_first_subset_is_preloaded() -> None:
    faces = {name: len(file.content) for name, file in assets.files().by_path.items() if name.endswith(".woff2")}
    page = (assets.FILES / "console.html").read_text("utf-8")
    styles = (assets.FILES / "app" / "console.css").read_text("utf-8")

    assert sum(faces.values()) <= MAX_FACE_BYTES, faces
    assert re.findall(r'rel="preload" href="\{\{base\}\}/([^"]+)"', page) == ["vendor/inter-latin.woff2"]
    assert {f"vendor/{name}" for name in re.findall(r'url\("\.\./vendor/([^"]+)"\)', styles)} == set(faces)
    assert styles.count("@font-face") == styles.count("font-display: swap") == len(faces)


async def test_the_typeface_is_served_as_published(api: Api) -> None:
    answer = await api.get(f"/console-files/{assets.files().version}/vendor/inter-latin.woff2")
    assert (answer.status, answer.headers["content-type"]) == (200, "font/woff2")
    assert "content-encoding" not in answer.headers
    assert answer.body == (VENDOR / "inter-latin.woff2").read_bytes()


def imported(name: str, known: dict[str, StaticFile], seen: set[str]) -> set[str]:
    """Add the module and all that it imports by statements, which load together, to `seen`."""
    if name not in seen:
        seen.add(name)
        for path in _IMPORTED.findall(known[name].plain.decode()):
            imported(posixpath.normpath(posixpath.join(posixpath.dirname(name), path)), known, seen)
    return seen


def test_a_later_page_is_small_with_all_that_it_imports() -> None:
    known = assets.files().by_path
    first = imported("app/main.js", known, set())
    assert first == {*assets.files().first, "app/main.js"}
    pages = {name: imported(name, known, set()) - first for name in known if name.startswith("app/pages/")}
    octets = {name: sum(len(known[one].content) for one in modules) for name, modules in pages.items()}
    assert {name: size for name, size in octets.items() if size > MAX_PAGE_BYTES} == {}


def test_the_composer_is_small_and_loads_only_when_it_is_opened() -> None:
    known = assets.files().by_path
    first = imported("app/main.js", known, set())
    parts = {name for name in known if name.startswith("app/parts/composer")}
    pages = set[str]().union(*(imported(name, known, set()) for name in known if name.startswith("app/pages/")))
    assert not parts & pages
    loaded = set[str]().union(*(imported(name, known, set()) for name in parts if name.endswith(".js"))) - first
    octets = sum(len(known[name].content) for name in loaded | parts)
    assert octets <= MAX_COMPOSER_BYTES, octets


def test_comments_are_not_served() -> None:
    module = (
        b"// one\nimport a;\n/** two\n * lines\n */\nconst b = 'https://x'; // three\n  /* four */\n/* five */ let c;\n"
    )
    assert without_comments(module) == b"import a;\nconst b = 'https://x'; // three\n/* five */ let c;\n"


async def test_the_bare_address_leads_to_the_console(api: Api) -> None:
    answer = await api.get("/")
    assert (answer.status, answer.headers["location"]) == (302, "/console/")


async def test_every_path_below_console_answers_the_start_page_with_the_policy(api: Api) -> None:
    for path in ("/console", "/console/", "/console/messages/msg_1", "/console/a%2Fb"):
        answer = await api.get(path, headers=PLAIN)
        assert answer.status == 200
        assert answer.headers["content-security-policy"] == assets.POLICY
        assert answer.headers["x-frame-options"] == "DENY"
        assert b'<script type="module"' in answer.body
        assert b"<script>" not in answer.body


async def test_files_are_kept_for_ever_at_the_address_with_their_hash(api: Api) -> None:
    version = assets.files().version
    answer = await api.get(f"/console-files/{version}/app/main.js", headers=PLAIN)
    assert (answer.status, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert answer.headers["content-type"].startswith("text/javascript")
    old = await api.get("/console-files/0123456789abcdef/app/main.js", headers=PLAIN)
    assert (old.status, old.headers["cache-control"], old.body) == (200, "no-cache", answer.body)


async def test_files_are_compressed_for_clients_that_ask(api: Api) -> None:
    path = f"/console-files/{assets.files().version}/app/main.js"
    packed = await api.get(path, headers={"Accept-Encoding": "br, gzip"})
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert gzip.decompress(packed.body) == (await api.get(path, headers=PLAIN)).body


async def test_files_outside_the_console_are_not_served(api: Api) -> None:
    version = assets.files().version
    for path in ("app/../../assets.py", "vendor/VENDOR.toml", "app/nothing.js", "app/%2e%2e/%2e%2e/assets.py"):
        assert (await api.get(f"/console-files/{version}/{path}")).status == 404, path


async def test_answers_forbid_other_origins_and_devices(api: Api) -> None:
    version = assets.files().version
    for path in ("/console", "/console-frame", "/v1/me", "/nothing", f"/console-files/{version}/app/main.js"):
        answer = await api.get(path)
        assert answer.headers["cross-origin-resource-policy"] == "same-origin", path
        assert "camera=()" in answer.headers["permissions-policy"], path
    # The sandbox of the mail frame has an opaque origin, so for it every origin is another one.
    script = await api.get(f"/console-files/{version}/{assets.FRAME_SCRIPT}")
    assert script.headers["cross-origin-resource-policy"] == "cross-origin"


async def test_the_mail_frame_has_an_origin_of_its_own(api: Api) -> None:
    answer = await api.get("/console-frame")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; script-src http://127.0.0.1:")
    assert re.search(r"img-src data: http://127\.0\.0\.1:\d+/images/;", policy)
    remote = await api.get("/console-frame/remote-images")
    assert "img-src data: https: http://127.0.0.1:" in remote.headers["content-security-policy"]
    assert "unsafe-inline" not in policy.replace("style-src 'unsafe-inline'", "")
