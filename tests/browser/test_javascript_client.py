"""The JavaScript client and the webhook verifier in a browser, imported from the running instance."""

import time
import uuid

from engine.events.webhooks import rules, standard
from tests.harness.browser import ConsolePage, ConsoleUser

SCRIPT = """async ([base, key, sender, body, headers, secret]) => {
  const { Waybill } = await import(`${base}/sdk/waybill.mjs`);
  const { verify } = await import(`${base}/sdk/webhooks.mjs`);
  const client = new Waybill({ apiKey: key, baseUrl: base });
  const reply = await client.emails.send({ from: sender, to: ["ann@people.test"], subject: "Hello", text: "Hi" });
  const seen = [];
  for await (const event of client.messages.tail({ replay: 5 })) {
    seen.push(event.messageId);
    if (seen.includes(reply.id)) break;
  }
  const forged = await verify(body + " ", headers, secret).catch((error) => error.reason);
  return [(await client.messages.get(reply.id)).subject, (await verify(body, headers, secret)).id, forged];
}"""


async def test_the_client_sends_follows_and_verifies_in_a_browser(page: ConsolePage, user: ConsoleUser) -> None:
    body, secret = '{"id":"evt_1"}', standard.new_secret()
    headers = rules.headers(
        body.encode(), event_id=uuid.uuid4(), attempt=1, secret=secret, previous=None, at_s=int(time.time())
    )
    values = [user.base_url, user.access.key, f"hello@{user.domain}", body, headers, secret]
    await page.page.goto(f"{user.base_url}/docs")
    assert await page.page.evaluate(SCRIPT, values) == ["Hello", "evt_1", "signature_mismatch"]
