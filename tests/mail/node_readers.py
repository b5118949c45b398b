"""Two readers of mail for Node, mailparser 3 and postal-mime, run once for many messages.

Node looks for the packages where NODE_PATH says; a test without them is skipped.
"""

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

# Reads a JSON list of base64 messages, and writes a list of what the package shows of each.
_SCRIPT = """
const { pathToFileURL } = require('url');
const name = process.argv[1];
const load = async () => {
  if (name === 'mailparser') {
    const { simpleParser } = require(name);
    const options = { skipHtmlToText: true, skipTextToHtml: true, skipTextLinks: true, skipImageLinks: true };
    return (octets) => simpleParser(octets, options);
  }
  const found = await import(pathToFileURL(require.resolve(name)));
  const PostalMime = found.default.default || found.default;
  return (octets) => PostalMime.parse(octets);
};
let input = '';
process.stdin.on('data', (piece) => { input += piece; });
process.stdin.on('end', async () => {
  const read = await load();
  const shown = [];
  for (const one of JSON.parse(input)) {
    const mail = await read(Buffer.from(one, 'base64'));
    shown.push({
      text: mail.text || '', html: mail.html || '',
      files: mail.attachments.map((file) => Buffer.from(file.content).toString('base64')),
      names: mail.attachments.map((file) => file.filename || null),
    });
  }
  process.stdout.write(JSON.stringify(shown));
});
"""


@dataclass(frozen=True)
class Shown:
    """The words and files of a message, as a reader shows them."""

    words: str  # of its text and its HTML
    files: tuple[bytes, ...]
    names: tuple[str | None, ...]


def shown_by(package: str, messages: Sequence[bytes]) -> list[Shown]:
    """Return what an npm package shows of each message; skip the test if Node or the package is missing."""
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        pytest.skip("Node is not on PATH")
    found = subprocess.run([node, "-e", f"require.resolve('{package}')"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"the npm package {package} is not where Node looks (NODE_PATH)")
    given = json.dumps([base64.b64encode(one).decode() for one in messages]).encode()
    done = subprocess.run([node, "-e", _SCRIPT, package], input=given, capture_output=True, check=True, timeout=120)
    return [
        Shown(one["text"] + one["html"], tuple(base64.b64decode(file) for file in one["files"]), tuple(one["names"]))
        for one in json.loads(done.stdout)
    ]
