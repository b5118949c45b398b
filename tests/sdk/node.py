"""Run scripts with the JavaScript client in Node."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.harness.patience import PATIENCE_S


async def run(node: str, modules: Path, script: str, *, key: str, url: str, sender: str = "") -> Any:
    """Return what the script puts into `out`."""
    values = {"key": key, "url": url, "sender": sender}
    text = (
        f'import {{ ApiError, Waybill }} from "{(modules / "waybill.mjs").as_uri()}";\n'
        f"const {{ key, url, sender }} = {json.dumps(values)};\n"
        f"const client = new Waybill({{ apiKey: key, baseUrl: url }});\nlet out;\n{script}\n"
        "console.log(JSON.stringify(out)); process.exit(0);\n"
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        node, "--input-type=module", "--eval", text, stdout=pipe, stderr=pipe
    )
    async with asyncio.timeout(PATIENCE_S):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(output)
