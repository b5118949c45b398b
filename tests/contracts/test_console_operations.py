"""The console and the OpenAPI document name the same operations."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

from api.console import assets
from api.routes import all_operations

APP = assets.FILES / "app"
_NAMED = re.compile(r'"((?:GET|POST|PUT|PATCH|DELETE) /v1/[^"\s]*)"')
OPERATIONS = {f"{one.method} {one.path}" for one in all_operations()}

# Operations that the console leaves out, with the reason.
NOT_FOR_PEOPLE = {
    "GET /v1/openapi.json": "for tools; the documentation shows it",
    "POST /v1/billing/{provider}/webhook": "for payment providers",
    "POST /v1/webhooks/payprov/success": "for the payment provider",
    "POST /v1/webhooks/payprov/failed": "for the payment provider",
    "POST /v1/webhooks/payprov/refund": "for the payment provider",
    "POST /v1/leads": "for forms of the operator's web site, with a platform key",
    "GET /v1/agent-access": "for the MCP server",
    "POST /v1/agent-sends": "for agents; people send one message with POST /v1/emails",
    "POST /v1/emails/batch": "for programs; people send one message or a broadcast",
    "POST /v1/emails/raw": "for programs that compose MIME themselves",
    "POST /v1/compat/resend/emails": "for clients of Resend",
    "POST /v1/compat/resend/emails/batch": "for clients of Resend",
    "GET /v1/compat/resend/emails": "for clients of Resend",
    "GET /v1/compat/resend/emails/{id}": "for clients of Resend",
    "PATCH /v1/compat/resend/emails/{id}": "for clients of Resend",
    "POST /v1/compat/resend/emails/{id}/cancel": "for clients of Resend",
    "GET /v1/compat/resend/domains": "for clients of Resend",
    "GET /v1/compat/resend/domains/{id}": "for clients of Resend",
    "POST /v1/compat/postmark/email": "for clients of Postmark",
    "POST /v1/compat/postmark/email/batch": "for clients of Postmark",
    "POST /v1/compat/postmark/email/withTemplate": "for clients of Postmark",
    "POST /v1/compat/postmark/email/batchWithTemplates": "for clients of Postmark",
    "GET /v1/compat/postmark/messages/outbound": "for clients of Postmark",
    "GET /v1/compat/postmark/messages/outbound/{id}/details": "for clients of Postmark",
    "GET /v1/compat/postmark/messages/outbound/{id}/dump": "for clients of Postmark",
    "GET /v1/compat/postmark/bounces": "for clients of Postmark",
    "GET /v1/compat/postmark/bounces/{bounceId}": "for clients of Postmark",
    "GET /v1/compat/postmark/bounces/{bounceId}/dump": "for clients of Postmark",
    "GET /v1/compat/postmark/message-streams/{stream}/suppressions/dump": "for clients of Postmark",
    "PUT /v1/compat/postmark/bounces/{bounceId}/activate": "for clients of Postmark",
    "DELETE /v1/local/sink": "for test suites; people filter the list",
    "POST /v1/local/accounts": "for test suites",
    "POST /v1/templates/{id}/preview": "the editor previews unsaved content with POST /v1/templates/preview",
    "GET /v1/auth/idp/callback": "the identity provider sends the browser there",
    "GET /v1/auth/idp/nonce": "for One Tap, whose script of another host the console's policy forbids",
    "POST /v1/auth/idp/one-tap": "for One Tap, whose script of another host the console's policy forbids",
    "POST /v1/auth/idp/mobile/exchange": "for mobile apps",
    "GET /v1/domains/{id}": "GET /v1/domains/{id}/setup holds the same and the records",
    "GET /v1/erasures/{id}": "the list holds every field",
    "GET /v1/inbound/routes/{id}": "the list holds every field",
    "GET /v1/sub-accounts/{id}": "the list holds every field",
    "POST /v1/contacts/import/file": "the console reads files itself, to show errors before anything is sent",
    "POST /v1/suppressions/import": "people import files: POST /v1/suppressions/import/file",
    "GET /v1/emails/{id}": "the same record as GET /v1/messages/{id}",
}


def named() -> dict[str, set[str]]:
    """Return the operations that the console names, with the files that name them."""
    found: dict[str, set[str]] = {}
    for path in APP.rglob("*.js"):
        for operation in _NAMED.findall(path.read_text("utf-8")):
            found.setdefault(operation, set()).add(path.relative_to(APP).as_posix())
    return found


def test_each_call_of_the_console_names_an_operation() -> None:
    wrong = {operation: sorted(files) for operation, files in named().items() if operation not in OPERATIONS}
    assert not wrong


def test_the_console_uses_each_operation_or_says_why_not() -> None:
    missing = OPERATIONS - set(named()) - set(NOT_FOR_PEOPLE)
    assert not missing, sorted(missing)
    assert not set(NOT_FOR_PEOPLE) - OPERATIONS
    assert not set(NOT_FOR_PEOPLE) & set(named())


def test_no_module_of_the_console_writes_markup_or_runs_text_as_code() -> None:
    forbidden = re.compile(
        r"\.(?:innerHTML|outerHTML)\s*=|insertAdjacentHTML|document\.write|\beval\(|new Function\("
        r"|dangerouslySetInnerHTML|setTimeout\(['\"`]"
    )
    found = {
        path.relative_to(APP).as_posix(): forbidden.findall(path.read_text("utf-8"))
        for path in APP.rglob("*.js")
        if forbidden.search(path.read_text("utf-8"))
    }
    assert list(found) == ["frame.js"], found  # the sandboxed frame that draws the HTML of a mail


def test_modules_of_the_console_import_files_that_exist() -> None:
    served = assets.files().by_path
    for name, targets in imports_of_modules().items():
        assert targets <= set(served), name


def test_modules_of_the_console_do_not_import_in_circles() -> None:
    TopologicalSorter(imports_of_modules()).prepare()  # raises CycleError with the modules of a circle


def imports_of_modules() -> dict[str, set[str]]:
    """Return what each module of the console imports, by statements and when it is needed."""
    imports = re.compile(r'(?:from|import|import\()\s*"(\.[^"]+)"')
    root = assets.FILES.resolve()
    return {
        path.relative_to(assets.FILES).as_posix(): {
            (path.parent / target).resolve().relative_to(root).as_posix()
            for target in imports.findall(path.read_text("utf-8"))
        }
        for path in APP.rglob("*.js")
    }


def test_the_console_names_no_other_host() -> None:
    allowed = {"http://www.w3.org/2000/svg"}
    for path in Path(APP).rglob("*"):
        if path.suffix in {".js", ".css", ".html", ".svg"}:
            loads = re.findall(
                r"(?:src|href|url|import|fetch)\s*[=(]\s*[\"'`]?(https?://[^\"'`\s)]+)", path.read_text("utf-8")
            )
            assert set(loads) <= allowed, (path.name, loads)


def test_pages_do_not_style_each_others_classes() -> None:
    styles = (APP / "console.css").read_text("utf-8")
    shared, *pages = styles.split("@layer pages {")
    own = set(re.findall(r"\.([a-z][\w-]*)", shared))
    begun: dict[str, set[str]] = {}
    for block in pages:
        page = ""
        for line in block.splitlines():
            if title := re.match(r"\s*/\* (.*?) \*/", line):
                page = title[1]
            elif first := re.match(r"\s*\.([a-z][\w-]*)", line):
                begun.setdefault(first[1], set()).add(page)
    assert {name: pages for name, pages in begun.items() if len(pages) > 1 and name not in own} == {}
