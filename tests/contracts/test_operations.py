"""Every operation is tested, described and on the map; the description is a valid document."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import Struct, structs
from openapi_spec_validator import OpenAPIV31SpecValidator

from api.areas.webhooks import event_schemas
from api.http import openapi
from api.http.operation import Access, Area, Call, LimitedKeys, Operation
from api.http.paging import Page, PageQuery
from api.http.path_ids import NOUNS
from api.routes import all_operations
from engine.base.errors import REGISTRY, ErrorType
from engine.base.scopes import SCOPES
from engine.base.settings import MEBIBYTE, Settings
from tests.harness.api import Api, name_of

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = all_operations()
_PARAMETER = re.compile(r"\\\{\w+\\\}")


@pytest.fixture(scope="module")
def sources() -> str:
    """All tests."""
    files = (ROOT / "tests").rglob("test_*.py")
    return "\n".join(path.read_text("utf-8") for path in files)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(openapi.document(OPERATIONS, Settings(), webhooks=event_schemas.webhooks()))
    return found


def test_the_description_states_the_limits_of_the_settings() -> None:
    own = Settings(give_up_s=36 * 3600.0, max_message_bytes=25 * MEBIBYTE)
    text = openapi.document(OPERATIONS, own).decode()
    assert "At most 36 hours after the send" in text
    assert "at most 25 MiB, with lines" in text
    assert not re.search(r"<\w+_(?:s|bytes)>", text)


def test_every_module_with_operations_is_routed() -> None:
    handlers = {operation.handler.__module__ for operation in OPERATIONS}
    modules = [path for path in (ROOT / "api" / "areas").rglob("*.py") if "OPERATIONS = (" in path.read_text("utf-8")]

    names = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules}
    assert names - handlers <= {"api.areas.operator.resources"}  # which joins the lists of its area


def test_every_operation_is_called_by_a_test(sources: str) -> None:
    """A call is `get`, `post`, … of a client with the path as its first words, anything in place of the parameters."""
    assert not [name_of(one) for one in OPERATIONS if _call_of(one).search(sources) is None]


def _call_of(operation: Operation) -> re.Pattern[str]:
    path = _PARAMETER.sub(lambda _: r"[^/\"?]+", re.escape(operation.path))
    method = operation.method.lower()
    return re.compile(rf'\.(?:{method}|request)\(\s*(?:"{operation.method}",\s*)?f?"{path}["?]')


def test_operation_ids_and_routes_are_unique() -> None:
    assert len({operation.id for operation in OPERATIONS}) == len(OPERATIONS)
    assert len({name_of(operation) for operation in OPERATIONS}) == len(OPERATIONS)


def test_an_operation_names_only_refusals_of_the_registry() -> None:
    assert not [name_of(one) for one in OPERATIONS if not set(one.all_refusals()) <= set(REGISTRY)]


def test_an_operation_with_a_key_names_a_scope_that_exists() -> None:
    assert not [name_of(one) for one in OPERATIONS if (one.access is Access.KEY) != bool(one.scopes)]
    assert not [name_of(one) for one in OPERATIONS if not set(one.scopes) <= SCOPES]


def test_unknown_parameters_are_refused_so_the_400_is_described() -> None:
    assert not [name_of(one) for one in OPERATIONS if ErrorType.INVALID_REQUEST not in one.all_refusals()]


def test_the_registry_holds_every_type_and_only_statuses_of_errors() -> None:
    assert set(REGISTRY) == set(ErrorType)
    assert all(400 <= entry.status < 600 for entry in REGISTRY.values())


def test_the_description_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    OpenAPIV31SpecValidator(_shared(document, {})).validate()
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == "1.0.0"


def _shared(value: Any, known: dict[bytes, Any]) -> Any:
    """Return an equal value in which equal objects are one: the validator judges each once, two thirds of its time."""
    if isinstance(value, list):
        return [_shared(one, known) for one in value]
    if not isinstance(value, dict):
        return value
    made = {name: _shared(one, known) for name, one in value.items()}
    return known.setdefault(orjson.dumps(made), made)


def test_the_description_holds_every_operation(document: dict[str, Any]) -> None:
    described = {
        (method.upper(), path, one["operationId"])
        for path, item in document["paths"].items()
        for method, one in item.items()
    }

    assert {one[:2] for one in described} == {(operation.method, operation.path) for operation in OPERATIONS}
    assert len({name for _, _, name in described}) == len(OPERATIONS)
    assert [name for _, _, name in described if not re.fullmatch("[a-z][A-Za-z0-9]+", name)] == []
    assert ("POST", "/v1/emails", "sendEmail") in described


def test_the_description_lists_the_refusals_of_each_operation(document: dict[str, Any]) -> None:
    for operation in OPERATIONS:
        responses = document["paths"][operation.path][operation.method.lower()]["responses"]
        described = {
            kind
            for status, response in responses.items()
            if int(status) >= 400
            for part in response["content"]["application/json"]["schema"]["allOf"][1:]
            for kind in part["properties"]["error"]["properties"]["type"]["enum"]
        }

        assert described == {kind.value for kind in operation.all_refusals()}, name_of(operation)
        assert str(operation.success) in responses, name_of(operation)


def test_the_description_lists_the_parameters_of_each_query(document: dict[str, Any]) -> None:
    for operation in [one for one in OPERATIONS if one.query is not None]:
        described = document["paths"][operation.path][operation.method.lower()]["parameters"]

        names = {one["name"] for one in described if one["in"] == "query"}
        assert operation.query is not None
        assert names == {field.encode_name for field in structs.fields(operation.query)}, name_of(operation)


def test_no_reference_of_the_description_is_dangling(document: dict[str, Any]) -> None:
    text = orjson.dumps(document).decode()
    wanted = set(re.findall(r'"#/components/schemas/([^"]+)"', text))

    assert wanted <= set(document["components"]["schemas"])


async def test_the_server_serves_its_description_to_anybody(api: Api, document: dict[str, Any]) -> None:
    answer = await api.get("/v1/openapi.json")

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    served = answer.json
    assert served["servers"] == [{"url": api.base_url}]
    assert served | {"servers": document["servers"]} == document


async def test_no_operation_answers_without_its_key(api: Api) -> None:
    for operation in [one for one in OPERATIONS if one.access is Access.KEY]:
        path = re.sub(r"\{\w+\}", "x", operation.path)
        answer = await api.request(operation.method, path, body=b"{}" if operation.request else None)

        assert (answer.status, answer.error["type"]) == (401, "unauthorized"), name_of(operation)


@pytest.mark.parametrize("folders", ["engine/*/*", "api/areas/*"])
def test_every_area_folder_is_on_the_map_of_the_code(folders: str) -> None:
    code_map = (ROOT / "ops" / "runbooks" / "code-map.md").read_text("utf-8")
    found = sorted(path.parent for path in ROOT.glob(f"{folders}/__init__.py"))

    assert found
    for path in found:
        assert re.search(rf"\b{path.name}\b", code_map), f"{path.relative_to(ROOT)} is not on the map"


def test_an_operation_has_the_types_of_its_handler_and_the_values_of_its_area() -> None:
    area = Area("Tests", reads=("account:read",), writes=("account:read",), limited_keys=LimitedKeys.FREE)

    operation = Operation("POST", "/v1/tests", _count, "Count", area)

    assert (operation.request, operation.query, operation.reply) == (Counted, PageQuery, Counted)
    assert (operation.tag, operation.scopes, operation.success) == ("Tests", ("account:read",), 200)
    assert operation.limited_keys is LimitedKeys.FREE


def test_an_operation_hands_over_ids_that_it_names() -> None:
    assert not [name_of(one) for one in OPERATIONS if len(one.path_ids) > one.path.count("{")]
    assert {part.kind for one in OPERATIONS for part in one.path_ids} <= set(NOUNS)


def test_a_list_says_of_which_kind_its_cursor_is() -> None:
    with pytest.raises(TypeError, match="`page` is required"):
        Operation("GET", "/v1/tests", _list, "List", Area("Tests", access=Access.NONE))


def test_a_handler_that_returns_nothing_answers_204() -> None:
    assert Operation("DELETE", "/v1/tests", _nothing, "Do nothing", Area("Tests", access=Access.NONE)).success == 204


def test_a_handler_with_an_unknown_parameter_is_an_error_at_the_start() -> None:
    with pytest.raises(TypeError, match="may take `call`, `query`, `page` and `body`"):
        Operation("GET", "/v1/tests", _misspelled, "Count", Area("Tests", access=Access.NONE))


class Counted(Struct):
    """A body."""

    count: int


async def _count(call: Call, query: PageQuery, body: Counted) -> Counted:
    return body


async def _list(call: Call, page: Page) -> Counted:
    return Counted(page.limit)


async def _nothing(call: Call) -> None: ...


async def _misspelled(call: Call, bdy: Counted) -> Counted:
    return bdy
