"""Clients that common generators make from the OpenAPI document compile under strict checks, and send."""

import asyncio
import os
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from tests.harness.accounts import TestAccount, make_account
from tests.sdk.node_tools import npm_modules, npm_tool, pip_tool

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(400)]  # the generators read 280 operations

GENERATE_S = 240.0
STRICT = {
    "compilerOptions": {
        "strict": True, "target": "es2022", "lib": ["es2022", "dom", "dom.iterable"], "skipLibCheck": True, "types": [],
        "module": "commonjs", "moduleResolution": "node10", "esModuleInterop": True, "outDir": "out",
    },
    "files": ["main.ts"],
}  # fmt: skip
OPENAPI_FETCH = """
import createClient from "openapi-fetch";
import type { paths } from "./api";

async function main(): Promise<void> {
  const [baseUrl, key, from] = process.argv.slice(2) as [string, string, string];
  const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });
  const { data, error } = await client.POST("/v1/emails", { body: { from, to: "ann@people.test", text: "It works." } });
  if (error !== undefined) throw new Error(error.error.message);
  const found = await client.GET("/v1/messages/{id}", { params: { path: { id: data.id ?? "" } } });
  console.log(found.data?.text?.trim());
}
declare const process: { argv: string[] };
void main();
"""
HEY_API = """
import { createClient } from "./hey/client";
import { getMessage, sendEmail } from "./hey";

async function main(): Promise<void> {
  const [baseUrl, key, from] = process.argv.slice(2) as [string, string, string];
  const client = createClient({ baseUrl, auth: key });
  const body = { from, to: "ann@people.test", text: "It works." };
  const { data } = await sendEmail({ client, body, throwOnError: true });
  const found = await getMessage({ client, path: { id: data.id ?? "" }, throwOnError: true });
  console.log(found.data.text?.trim());
}
declare const process: { argv: string[] };
void main();
"""
OPENAPI_PYTHON_CLIENT = """
import sys
from generated import AuthenticatedClient
from generated.api.emails import send_email
from generated.api.messages import get_message
from generated.models import EmailRequest, MessageDetail, SendReply

base_url, key, sender = sys.argv[1:]
client = AuthenticatedClient(base_url=base_url, token=key)
reply = send_email.sync(client=client, body=EmailRequest(from_=sender, to="ann@people.test", text="It works."))
assert isinstance(reply, SendReply), reply
found = get_message.sync(reply.id, client=client)
assert isinstance(found, MessageDetail), found
print(str(found.text).strip())
"""
DATAMODEL = """
import json
import sys
import urllib.request
from models import EmailRequest, MessageDetail, SendReply

base_url, key, sender = sys.argv[1:]
headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}


def call(path: str, body: str | None = None) -> bytes:
    data = None if body is None else body.encode()
    with urllib.request.urlopen(urllib.request.Request(base_url + path, data, headers)) as answer:
        return bytes(answer.read())


wanted = EmailRequest.model_validate({"from": sender, "to": "ann@people.test", "text": "It works."})
reply = SendReply.model_validate_json(call("/v1/emails", wanted.model_dump_json(by_alias=True, exclude_unset=True)))
found = MessageDetail.model_validate_json(call(f"/v1/messages/{reply.id}"))
print((found.text or "").strip())
"""


async def run(*words: str | Path, cwd: Path, **environ: str) -> str:
    """Run a program to its end; return what it printed, and fail with all of that if it fails."""
    process = await asyncio.create_subprocess_exec(
        *words, cwd=cwd, env={**os.environ, **environ},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(GENERATE_S):
        printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()[-4_000:]
    return printed.decode()


@pytest.fixture
def folder(tmp_path: Path, document: dict[str, Any]) -> Path:
    """Return a folder with the document."""
    (tmp_path / "openapi.json").write_bytes(orjson.dumps(document))
    return tmp_path


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool)


async def compiled_and_run(folder: Path, node: str, source: str, api_url: str, account: TestAccount) -> str:
    """Compile a script and all that it imports, run it, and return what it printed."""
    (folder / "main.ts").write_text(source, "utf-8")
    (folder / "tsconfig.json").write_bytes(orjson.dumps(STRICT))
    await run(npm_tool("tsc"), cwd=folder)
    return await run(node, "out/main.js", api_url, account.token, account.sender, cwd=folder)


async def test_a_client_of_openapi_typescript_compiles_and_sends(
    folder: Path, node: str, api_url: str, account: TestAccount
) -> None:
    (folder / "node_modules").symlink_to(npm_modules("openapi-fetch"))
    await run(npm_tool("openapi-typescript"), "openapi.json", "-o", "api.d.ts", cwd=folder)
    assert await compiled_and_run(folder, node, OPENAPI_FETCH, api_url, account) == "It works.\n"


async def test_a_client_of_hey_api_compiles_and_sends(
    folder: Path, node: str, api_url: str, account: TestAccount
) -> None:
    (folder / "node_modules").symlink_to(npm_modules("@hey-api"))
    await run(npm_tool("openapi-ts"), "-i", "openapi.json", "-o", "hey", "-c", "@hey-api/client-fetch", cwd=folder)
    assert await compiled_and_run(folder, node, HEY_API, api_url, account) == "It works.\n"


async def test_a_client_of_openapi_python_client_compiles_and_sends(
    folder: Path, api_url: str, account: TestAccount
) -> None:
    generator = Path(pip_tool("openapi-python-client"))
    path = f"{generator.parent}:{os.environ['PATH']}"  # it formats with ruff
    words = ("generate", "--path", "openapi.json", "--output-path", "generated", "--meta", "none")
    printed = await run(generator, *words, cwd=folder, PATH=path)
    assert "ERROR" not in printed
    assert "Unable to process schema" not in printed
    (folder / "main.py").write_text(OPENAPI_PYTHON_CLIENT, "utf-8")
    python = generator.parent / "python"
    await run(python, "-m", "compileall", "-q", "generated", cwd=folder)
    given = (api_url, account.token, account.sender)
    assert await run(python, "main.py", *given, cwd=folder, NO_PROXY="*") == "It works.\n"


async def test_models_of_datamodel_code_generator_compile_and_send(
    folder: Path, api_url: str, account: TestAccount
) -> None:
    generator = Path(pip_tool("datamodel-codegen"))
    await run(
        generator, "--input", "openapi.json", "--input-file-type", "openapi", "--output", "models.py",
        "--output-model-type", "pydantic_v2.BaseModel", "--formatters", "builtin", cwd=folder,
    )  # fmt: skip
    (folder / "main.py").write_text(DATAMODEL, "utf-8")
    words = (api_url, account.token, account.sender)
    assert await run(generator.parent / "python", "main.py", *words, cwd=folder, NO_PROXY="*") == "It works.\n"
