"""Measure what a call of the Python client costs beyond bare httpx: `python3 -m loadtests.client_overhead`.

A process answers every request with the reply of a send. Both sides send the same body over one kept connection, in
turns of a few calls, so that a busy machine slows both. Prints the medians and their difference as JSON.
"""

import importlib
import json
import multiprocessing
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from api.routes import client_document
from api.sdk import python_package
from engine.base.settings import Settings

ROUNDS: Final = 200
CALLS: Final = 10
REPLY: Final = b'{"id":"msg_01m83c9a2rfvxaarvh63bftrj8","status":"queued"}'
ANSWER: Final = b"HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(REPLY), REPLY,
)  # fmt: skip
BODY: Final = {"from": "hello@hello.test", "to": ["ann@example.com"], "subject": "Hello", "text": "It works."}


def answer_all(listener: socket.socket) -> None:
    """Answer the requests of each connection in a thread of its own."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    """Answer each request of one connection."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(65_536):
        if b'"text"' in data:  # the body may come apart from the head
            connection.sendall(ANSWER)


def client_of(base_url: str) -> Any:
    """Return a client of the generated package."""
    folder = Path(tempfile.mkdtemp())
    package = folder / python_package.PACKAGE
    package.mkdir()
    for name, text in python_package.files(orjson.loads(client_document(Settings())), "0.0.0").items():
        (package / name).write_text(text, "utf-8")
    sys.path.insert(0, str(folder))
    return importlib.import_module(python_package.PACKAGE).Waybill("svc_live_x", base_url=base_url)


def seconds(call: Callable[[], object]) -> float:
    """Return the seconds of one call, of some in a row."""
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS


def measured(base_url: str) -> dict[str, float]:
    """Return the medians of both sides in milliseconds, and their difference."""
    client = client_of(base_url)
    bare = httpx.Client(base_url=base_url, headers={"Authorization": "Bearer svc_live_x"}, timeout=30)
    arguments = {"from_": BODY["from"], "to": BODY["to"], "subject": BODY["subject"], "text": BODY["text"]}
    spent: dict[str, list[float]] = {"httpx": [], "client": []}
    for _ in range(ROUNDS):
        spent["httpx"].append(seconds(lambda: bare.post("/v1/emails", json=BODY).json()))
        spent["client"].append(seconds(lambda: client.emails.send(**arguments)))
    medians = {f"{name}_ms": round(statistics.median(times) * 1000, 3) for name, times in spent.items()}
    return medians | {"overhead_ms": round(medians["client_ms"] - medians["httpx_ms"], 3)}


def main() -> None:
    """Measure and print."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=answer_all, args=(listener,), daemon=True)
    server.start()
    try:
        print(json.dumps(measured(f"http://127.0.0.1:{listener.getsockname()[1]}"), indent=2))
    finally:
        server.kill()


if __name__ == "__main__":
    main()
