"""Debian's Firefox, driven by WebDriver BiDi (W3C working draft) over its own WebSocket.

Playwright drives only a build of its own, and Selenium needs geckodriver, which Debian does not package. Elements are
found by role and accessible name, as Firefox computes them.
"""

import asyncio
import json
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from axe_playwright_python.async_playwright import Axe

from engine.people.sessions.rules import COOKIE
from tests.harness.browser import RULES, ConsoleUser
from tests.harness.patience import PATIENCE_S

PROGRAMS: Final = ("firefox-esr", "firefox")
MISSING: Final = "no Firefox (Debian: apt install firefox-esr)"
KEYS: Final = {"Enter": "\ue007", "Tab": "\ue004", "Escape": "\ue00c", "Control": "\ue009", "Down": "\ue015"}
EVENTS: Final = ("log.entryAdded", "network.responseCompleted")
_POLL_S: Final = 0.05  # between two looks at a page
_AXE: Final = Axe()
_LISTENING: Final = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
# A violation of the content security policy is no console message in Firefox.
_REPORT_VIOLATIONS: Final = """() => {
  addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
    console.error(`policy: ${violatedDirective} ${blockedURI}`);
  });
}"""
_FIELD: Final = """label => {
  const names = one => [one.labels?.[0]?.textContent, one.getAttribute("aria-label")].map(text => text?.trim());
  const fields = [...document.querySelectorAll("input, textarea, select")].filter(one => one.checkVisibility());
  return fields.find(one => names(one).includes(label));
}"""
PREFERENCES: Final[Mapping[str, str]] = {
    "app.update.enabled": "false",
    "browser.shell.checkDefaultBrowser": "false",
    "datareporting.policy.dataSubmissionEnabled": "false",
    "network.captive-portal-service.enabled": "false",
    "network.connectivity-service.enabled": "false",
    "toolkit.telemetry.enabled": "false",
}


def find() -> str | None:
    """Return the path of the first of PROGRAMS that is on the PATH."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class BidiError(Exception):
    """A command that Firefox refused."""


class Firefox:
    """A running Firefox and its BiDi session. Commands may overlap; events go to the tab that they name."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._awaited: dict[int, asyncio.Future[Any]] = {}
        self.tabs: dict[str, FirefoxTab] = {}

    async def listen(self) -> None:
        """Receive responses and events until the socket closes."""
        async for message in self._socket:
            said = message.json()
            if said["type"] == "event":
                self._note(said["method"], said["params"])
            elif (waiting := self._awaited.pop(said["id"], None)) is not None and not waiting.done():
                if said["type"] == "success":
                    waiting.set_result(said["result"])
                else:
                    waiting.set_exception(BidiError(f"{said['error']}: {said['message']}"))

    async def command(self, method: str, **params: Any) -> Any:
        """Send a command and return its result. Raises BidiError, TimeoutError."""
        number = next(self._numbers)
        waiting = self._awaited[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_S):
            return await waiting

    def _note(self, method: str, params: Any) -> None:
        source = params.get("source", params).get("context")
        tab = self.tabs.get(source)
        if tab is None:
            return
        if method == "log.entryAdded" and params["level"] == "error":
            tab.faults.append(f"{params['type']}: {params['text']}")
        elif method == "network.responseCompleted" and params["response"]["status"] >= 500:
            tab.faults.append(f"{params['response']['status']} of {params['request']['url']}")


class FirefoxTab:
    """A tab in a container of its own; `faults` holds errors of scripts, of the policy, and responses of 5xx."""

    def __init__(self, firefox: Firefox, context: str, base_url: str) -> None:
        self._firefox = firefox
        self._context = context
        self.base_url = base_url
        self.faults: list[str] = []

    async def go(self, path: str) -> None:
        """Open a page of the installation by its path, and wait until its main heading is there and nothing loads."""
        url = self.base_url + path
        await self._firefox.command("browsingContext.navigate", context=self._context, url=url, wait="complete")
        await self.until("document.querySelector('h1') && !document.querySelector('[aria-busy=true], .skeleton')")

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a script expression (a string, number, boolean or null). Raises BidiError."""
        target = {"context": self._context}
        done = await self._firefox.command(
            "script.evaluate", expression=expression, target=target, awaitPromise=True, resultOwnership="none"
        )
        if done["type"] != "success":
            raise BidiError(done["exceptionDetails"]["text"])
        return done["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until a script expression is true. Raises TimeoutError that shows the page."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await self.evaluate(f"Boolean({expression})"):
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AssertionError(f"never true: {expression}\n{await self.text()}") from None

    async def text(self) -> str:
        """Return the text that the page shows."""
        return str(await self.evaluate("document.body.innerText"))

    async def shows(self, text: str) -> None:
        """Wait until the page shows this text."""
        await self.until(f"document.body.innerText.includes({text!r})")

    async def find(self, role: str, name: str) -> str:
        """Wait for a visible element with this role and accessible name, and return its shared id."""
        locator = {"type": "accessibility", "value": {"role": role, "name": name}}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    found = await self._firefox.command(
                        "browsingContext.locateNodes", context=self._context, locator=locator, maxNodeCount=1
                    )
                    if found["nodes"]:
                        return str(found["nodes"][0]["sharedId"])
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AssertionError(f"no {role} {name!r}\n{await self.text()}") from None

    async def click(self, role: str, name: str) -> None:
        """Press an element with the mouse, scrolled into view."""
        element = await self.find(role, name)
        await self._call("element => element.scrollIntoView({ block: 'center' })", element)
        origin = {"type": "element", "element": {"sharedId": element}}
        steps = [
            {"type": "pointerMove", "x": 0, "y": 0, "origin": origin},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        await self._perform({"type": "pointer", "id": "mouse", "actions": steps})

    async def fill(self, label: str, text: str) -> None:
        """Replace the text of a field, typed key by key."""
        await self._call("element => { element.focus(); element.select?.(); }", await self._field(label))
        await self.type(text)

    async def choose(self, label: str, value: str) -> None:
        """Choose an option of a select by its value."""
        script = """(element, value) => {
          element.value = value;
          element.dispatchEvent(new Event("input", { bubbles: true }));
          element.dispatchEvent(new Event("change", { bubbles: true }));
        }"""
        await self._call(script, await self._field(label), {"type": "string", "value": value})

    async def attach(self, label: str, path: Path) -> None:
        """Choose a file in a file field."""
        element = {"sharedId": await self._field(label)}
        await self._firefox.command("input.setFiles", context=self._context, element=element, files=[str(path)])

    async def type(self, text: str) -> None:
        """Type text into what has the focus."""
        steps = [{"type": kind, "value": one} for one in text for kind in ("keyDown", "keyUp")]
        await self._perform({"type": "key", "id": "keyboard", "actions": steps})

    async def press(self, keys: str) -> None:
        """Press keys together, such as `Control+k`."""
        values = [KEYS.get(one, one) for one in keys.split("+")]
        steps = [{"type": "keyDown", "value": one} for one in values]
        steps += [{"type": "keyUp", "value": one} for one in reversed(values)]
        await self._perform({"type": "key", "id": "keyboard", "actions": steps})

    async def resize(self, width: int, height: int, ratio: float = 1) -> None:
        """Set the viewport in CSS pixels; `ratio` device pixels to each, as zoom does."""
        await self._firefox.command(
            "browsingContext.setViewport",
            context=self._context,
            viewport={"width": width, "height": height},
            devicePixelRatio=ratio,
        )

    async def axe(self) -> list[str]:
        """Return the findings of axe on what the page shows."""
        if not await self.evaluate("'axe' in window"):
            await self.evaluate(f"{_AXE.axe_script}; true")
        expression = (
            f"axe.run(document, {json.dumps(RULES)})"
            ".then(results => results.violations.map(one => `${one.id}: ${one.nodes[0].html}`).join('\\n'))"
        )
        return [line for line in str(await self.evaluate(expression)).split("\n") if line]

    async def _field(self, label: str) -> str:
        """Wait for a visible field with this label, and return its shared id: a password has no role to find it by."""
        await self.until(f"({_FIELD})({label!r})")
        target = {"context": self._context}
        done = await self._firefox.command(
            "script.evaluate", expression=f"({_FIELD})({label!r})", target=target, awaitPromise=False
        )
        return str(done["result"]["sharedId"])

    async def _call(self, function: str, element: str, *arguments: object) -> None:
        done = await self._firefox.command(
            "script.callFunction",
            functionDeclaration=function,
            target={"context": self._context},
            awaitPromise=False,
            arguments=[{"sharedId": element}, *arguments],
        )
        if done["type"] != "success":
            raise BidiError(done["exceptionDetails"]["text"])

    async def _perform(self, source: Mapping[str, object]) -> None:
        await self._firefox.command("input.performActions", context=self._context, actions=[source])


@asynccontextmanager
async def running(program: str, preferences: Mapping[str, str] | None = None) -> AsyncIterator[Firefox]:
    """Run a Firefox with a profile of its own; `preferences` as lines of `user.js` have them (name, literal)."""
    with tempfile.TemporaryDirectory(prefix="firefox-", ignore_cleanup_errors=True) as folder:
        lines = [f'user_pref("{name}", {value});\n' for name, value in {**PREFERENCES, **(preferences or {})}.items()]
        Path(folder, "user.js").write_text("".join(lines), "utf-8")
        process = await asyncio.create_subprocess_exec(
            program, "--headless", "--no-remote", "--profile", folder, "--remote-debugging-port=0", "about:blank",
            env={**os.environ, "HOME": folder}, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        # No TaskGroup: a fixture enters and leaves this in two tasks.
        readers: list[asyncio.Task[None]] = []
        try:
            async with aiohttp.ClientSession() as http:
                socket = await http.ws_connect(f"{await _address(process)}/session", max_msg_size=0)
                firefox = Firefox(socket)
                readers += [asyncio.create_task(_drain(process)), asyncio.create_task(firefox.listen())]
                await firefox.command("session.new", capabilities={"alwaysMatch": {}})
                await firefox.command("session.subscribe", events=list(EVENTS))
                await firefox.command("script.addPreloadScript", functionDeclaration=_REPORT_VIOLATIONS)
                yield firefox
                await socket.close()
        finally:
            if process.returncode is None:
                process.kill()  # its profile is thrown away
            await process.wait()
            await asyncio.gather(*readers)


async def _address(process: asyncio.subprocess.Process) -> str:
    """Return the WebSocket address that Firefox prints at its start."""
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        while line := await process.stderr.readline():
            if found := _LISTENING.search(line.decode(errors="replace")):
                return found[1]
    raise AssertionError("Firefox ended before it listened")


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read the log, so that a full pipe does not stop Firefox."""
    assert process.stderr is not None
    while await process.stderr.readline():
        pass


@asynccontextmanager
async def opened(firefox: Firefox, base_url: str, user: ConsoleUser | None = None) -> AsyncIterator[FirefoxTab]:
    """Open a tab with cookies of its own, signed in as `user`; fails at the end if a fault was noted."""
    made = await firefox.command("browser.createUserContext")
    container = made["userContext"]
    try:
        created = await firefox.command("browsingContext.create", type="tab", userContext=container)
        tab = firefox.tabs[created["context"]] = FirefoxTab(firefox, created["context"], base_url)
        if user is not None:
            host = urlsplit(base_url).hostname
            cookie = {
                "name": COOKIE, "value": {"type": "string", "value": user.person.secret}, "domain": host, "path": "/",
            }  # fmt: skip
            partition = {"type": "storageKey", "userContext": container}
            await firefox.command("storage.setCookie", cookie=cookie, partition=partition)
        await tab.resize(1280, 900)
        yield tab
        assert not tab.faults, tab.faults
    finally:
        await firefox.command("browser.removeUserContext", userContext=container)
