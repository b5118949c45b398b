"""Make the pictures of the console in the README: `python -m loadtests.console_screenshots`.

A service of its own sends some mail; the list of messages is then photographed in light and dark colours.
"""

import asyncio
import json
import os
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.response import addinfourl

from engine.people.sessions.rules import COOKIE
from loadtests.kit.service import Service, temporary
from ops.host import chromium
from ops.host.process_specs import ROOT

if TYPE_CHECKING:
    from playwright.async_api import Browser

FOLDER: Final = ROOT / "ops" / "runbooks"
SIZE: Final = (1280, 760)
MAX_BYTES: Final = 150 * 1024
SETTLE_MS: Final = 3000
SUBJECTS: Final = (
    ("Your receipt for order {n}", "receipt"),
    ("Order {n} is on its way", "shipping"),
    ("Confirm your address", "sign-up"),
    ("Reset your password", "security"),
    ("Invoice {n} for November", "billing"),
    ("Ann commented on your document", "notice"),
)
NAMES: Final = ("ann", "bob", "carla", "dmitri", "eva", "farid", "grace", "hiro", "ines", "jonas")
DOMAINS: Final = ("example.com", "example.org", "example.net")
SIMULATED: Final = ("bounced", "deferred", "complained")


def main() -> None:
    """Start a service, send mail, and write both pictures."""
    program = chromium.find(os.environ)
    if program is None:
        raise SystemExit(f"No pictures were made: {chromium.MISSING}.")
    with temporary() as service:
        for number in range(36):
            _send(service, number)
        secret = _sign_in(service)
        asyncio.run(_photograph(program, service, secret))


def _post(service: Service, path: str, body: object, headers: dict[str, str]) -> addinfourl:
    request = urllib.request.Request(  # noqa: S310 - our own service
        service.base_url + path, json.dumps(body).encode(), {"Content-Type": "application/json", **headers}
    )
    answer: addinfourl = urllib.request.urlopen(request, timeout=30)  # noqa: S310
    return answer


def _send(service: Service, number: int) -> None:
    subject, tag = SUBJECTS[number % len(SUBJECTS)]
    to = f"{NAMES[number % len(NAMES)]}@{DOMAINS[number % len(DOMAINS)]}"
    if number % 12 == 5:
        to = f"{SIMULATED[number // 12]}@simulator.{service.settings.mail_host}"
    body = {
        "from": f"Shop <shop@{service.first_run['domain']}>", "to": [to], "tags": [tag],
        "subject": subject.format(n=1000 + number), "text": "Thank you.",
    }  # fmt: skip
    _post(service, "/v1/emails", body, {"Authorization": f"Bearer {service.first_run['apiKey']}"}).close()


def _sign_in(service: Service) -> str:
    """Return the secret of a new session of the first owner."""
    known = service.first_run
    answer = _post(service, "/v1/auth/login", {"email": known["email"], "password": known["password"]}, {})
    cookie: str = answer.headers["Set-Cookie"]
    answer.close()
    return cookie.partition(f"{COOKIE}=")[2].partition(";")[0]


async def _photograph(program: str, service: Service, secret: str) -> None:
    from playwright.async_api import async_playwright  # noqa: PLC0415 - part of the packages for browser tests

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for theme in ("light", "dark"):
            await _picture(browser, service, secret, theme)
        await browser.close()


async def _picture(browser: "Browser", service: Service, secret: str, theme: str) -> None:
    width, height = SIZE
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if theme == "dark" else "light"
    )
    await context.add_cookies([{"name": COOKIE, "value": secret, "url": service.base_url}])
    page = await context.new_page()
    await page.goto(f"{service.base_url}/console/messages")
    await page.wait_for_timeout(SETTLE_MS)
    path = FOLDER / f"console-{theme}.png"
    with tempfile.TemporaryDirectory() as folder:
        taken = Path(folder) / "taken.png"
        await page.screenshot(path=str(taken))
        _write_small(taken, path)
    await context.close()


def _write_small(taken: Path, path: Path) -> None:
    """Write the picture with 256 colours, and fail if it is still larger than MAX_BYTES."""
    from PIL import Image  # noqa: PLC0415 - slow to import

    with Image.open(taken) as picture:
        picture.convert("RGB").quantize(256).save(path, optimize=True)
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{path.name} has {size:,} bytes; at most {MAX_BYTES:,} are allowed.")
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")


if __name__ == "__main__":
    main()
