"""Write the call of an operation in curl, Python and JavaScript, from the examples of its schema."""

import json
import re
from typing import Any, Final

from api.docs.markdown import CodeSample
from api.docs.schema_tables import Schema, SchemaReader
from api.http.client_names import client_method, python_name

FOREIGN: Final = "/v1/compat/"  # operations that our own clients lack
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
# Properties of a sample's body where the required ones alone make no request of use.
_FIELDS: Final = {
    "PATCH /v1/account": ("name",),
    "PATCH /v1/api-keys/{id}": ("name",),
    "PATCH /v1/broadcasts/{id}": ("subject",),
    "PATCH /v1/contacts/{id}": ("name",),
    "PATCH /v1/domains/{id}": ("minTls",),
    "PATCH /v1/layouts/{id}": ("html",),
    "PATCH /v1/lists/{id}": ("name",),
    "PATCH /v1/segments/{id}": ("name",),
    "PATCH /v1/templates/{id}": ("subject",),
    "PATCH /v1/webhooks/{id}": ("status",),
    "POST /v1/broadcasts": ("name", "list", "from", "subject", "text"),
    "POST /v1/compat/postmark/email": ("From", "To", "Subject", "TextBody"),
    "POST /v1/compat/postmark/email/batch": ("From", "To", "Subject", "TextBody"),
    "POST /v1/compat/resend/emails": ("from", "to", "subject", "text"),
    "POST /v1/compat/resend/emails/batch": ("from", "to", "subject", "text"),
    "POST /v1/emails": ("from", "to", "subject", "text", "idempotencyKey"),
    "POST /v1/layouts": ("name", "html"),
    "POST /v1/templates": ("name", "subject", "text"),
    "POST /v1/templates/preview": ("subject", "text", "variables"),
}


def samples(method: str, path: str, described: Schema, reader: SchemaReader, base_url: str) -> list[CodeSample]:
    """Return the samples of one operation of the document; Python only where the client has the operation."""
    file_type = _file_type(described)
    if file_type is not None:
        return [CodeSample("sh", "curl", _curl_of_file(base_url + path, file_type))]
    body = _body(method, path, described, reader)
    filled, values = _filled(path, described)
    by_session = {"apiKey": []} not in described["security"] and described["security"]
    found = [
        CodeSample("sh", "curl", _curl(method, base_url + filled, body, session=bool(by_session))),
        CodeSample("js", "JavaScript", _javascript(method, base_url + filled, body, session=bool(by_session))),
    ]
    if {"apiKey": []} in described["security"] and not path.startswith(FOREIGN) and not isinstance(body, list):
        found.insert(1, CodeSample("python", "Python", _python(method, path, values, body, base_url)))
    return found


def _file_type(described: Schema) -> str | None:
    """Return the media type of a body that is a file, None for JSON and for no body."""
    content = described.get("requestBody", {}).get("content", {})
    return None if not content or "application/json" in content else next(iter(content))


def _body(method: str, path: str, described: Schema, reader: SchemaReader) -> dict[str, Any] | list[Any] | None:
    content = described.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    schema = reader.resolved(content["schema"])
    is_list = schema.get("type") == "array"
    if is_list:
        schema = reader.resolved(schema["items"])
    known = schema.get("properties", {})
    wanted = _FIELDS.get(f"{method} {path}") or tuple(schema.get("required", ())) or tuple(known)[:1]
    found = {name: reader.example(known[name]) for name in wanted if name in known}
    return [found] if is_list else found


def _filled(path: str, described: Schema) -> tuple[str, list[str]]:
    """Return the path with the examples of its parameters, and these examples."""
    examples = {
        one["name"]: str(next(iter(one["schema"].get("examples", ())), one.get("example", f"{one['name']}…")))
        for one in described.get("parameters", ())
        if one["in"] == "path"
    }
    return _PARAMETER.sub(lambda found: examples[found[1]], path), [examples[name] for name in _PARAMETER.findall(path)]


def _curl(method: str, url: str, body: dict[str, Any] | list[Any] | None, *, session: bool) -> str:
    words = ["curl -s"]
    if method != "GET" and not (method == "POST" and body is not None):
        words.append(f"-X {method}")
    words.append(url)
    if session:
        words.append('-b "svc_session=$SESSION"' + ("" if method == "GET" else ' -H "X-CSRF-Token: $CSRF"'))
    else:
        words.append('-H "Authorization: Bearer $KEY"')
    line = " ".join(words)
    if body is None:
        return line + "\n"
    text = json.dumps(body, indent=2, ensure_ascii=False).replace("'", "'\\''")
    return f"{line} \\\n  -H 'Content-Type: application/json' -d '{text}'\n"  # --json needs curl 7.82


def _curl_of_file(url: str, media_type: str) -> str:
    return (
        f'curl -s {url} -H "Authorization: Bearer $KEY" \\\n'
        f'  -H "Content-Type: {media_type}" --data-binary @message.eml\n'
    )


def _python(method: str, path: str, values: list[str], body: dict[str, Any] | None, base_url: str) -> str:
    name = client_method(method, path)
    arguments = [repr(value).replace("'", '"') for value in values]
    arguments += [f"{python_name(key)}={_python_value(value)}" for key, value in (body or {}).items()]
    joined = ", ".join(arguments)
    if len(joined) > 70:
        joined = "\n    " + ",\n    ".join(arguments) + ",\n"
    return (
        "from waybill_client import Waybill\n\n"
        f'client = Waybill(api_key=os.environ["KEY"], base_url="{base_url}")\n'
        f"print(client.{name.group}.{name.method}({joined}))\n"
    ).replace("from waybill", "import os\n\nfrom waybill", 1)


def _python_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict | list):
        return repr(value).replace("'", '"') if '"' not in repr(value) else repr(value)
    return {"true": "True", "false": "False", "null": "None"}.get(text, text)


def _javascript(method: str, url: str, body: dict[str, Any] | list[Any] | None, *, session: bool) -> str:
    options = [] if method == "GET" else [f'method: "{method}"']
    sends = body is not None
    if session:
        options.append('credentials: "same-origin"')
        if method != "GET":
            options.append(
                'headers: { "X-CSRF-Token": csrf' + (', "Content-Type": "application/json"' if sends else "") + " }"
            )
    else:
        kind = ', "Content-Type": "application/json"' if sends else ""
        options.append(f"headers: {{ Authorization: `Bearer ${{process.env.KEY}}`{kind} }}")
    if sends:
        options.append(f"body: JSON.stringify({json.dumps(body, indent=2, ensure_ascii=False)})")
    lines = ",\n".join(options).replace("\n", "\n  ")
    return (
        f'const response = await fetch("{url}", {{\n  {lines},\n}});\n'
        "if (!response.ok) throw new Error((await response.json()).error.message);\n"
        "console.log(await response.text());\n"
    )
