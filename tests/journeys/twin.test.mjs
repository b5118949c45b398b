import assert from "node:assert/strict";
import test from "node:test";
import { openTwin } from "waybill-client/testing";
import { verify } from "waybill-client/webhooks";

const hello = (twin, more) => ({ from: `hello@${twin.domain}`, to: "ann@example.com", subject: "Hi", text: "Hi", ...more });

test("a lost response or a refusal sends nothing twice", async (t) => {
  const twin = await openTwin(t);
  twin.failNext("/v1/emails", { afterCommit: true });
  await twin.client.emails.send(hello(twin, { subject: "Once" }));
  twin.failNext();
  await twin.client.emails.send(hello(twin, { subject: "Twice" }));
  await twin.settle();
  const subjects = (await twin.mails("ann@example.com")).map((mail) => mail.subject);
  assert.deepEqual(subjects.sort(), ["Once", "Twice"]);
});

test("mail from outside is received and answered", async (t) => {
  const twin = await openTwin(t);
  const support = `support@${twin.domain}`;
  await twin.client.inboundAddresses.create({ address: support });
  await twin.client.emails.send(hello(twin, { from: support, subject: "Grüße, und noch viel mehr als ein Wort" }));
  const mail = await twin.waitForMail("ann@example.com");
  await twin.inject({ to: support, from: "ann@example.com", text: ".dot\nÄ", replyTo: mail, automatic: true });
  await twin.inject({ to: support, raw: "From: bob@example.net\nMessage-ID: <1@example.net>\nSubject: Raw\n\n.Hello\n" });
  await twin.settle();
  const { data } = await twin.client.inboundMessages.list();
  assert.deepEqual(data.map((row) => row.subject).sort(), ["Raw", "Re: Grüße, und noch viel mehr als ein Wort"]);
  const texts = await Promise.all(data.map(async (row) => (await twin.client.inboundMessages.get(row.id)).text.trim()));
  assert.deepEqual(texts.sort(), [".Hello", ".dot\nÄ"]);
  await assert.rejects(twin.inject({ to: "nobody@elsewhere.example" }), /refused the mail to nobody@elsewhere.example: 5/);
});

test("posts may be doubled and change places", async (t) => {
  const twin = await openTwin(t);
  const hook = await twin.webhooks();
  await twin.client.emails.send(hello(twin));
  await hook.waitFor("delivered");
  const seen = [];
  await hook.handTo((body) => seen.push(String(body)), { times: 2, seed: 1 });
  assert.equal(seen.length, 2 * hook.posts.length);
  assert.equal(new Set(seen).size, hook.posts.length);
  const body = JSON.stringify({ type: "delivered" });
  assert.equal((await verify(body, hook.signed(body), hook.secret)).type, "delivered");
  assert.equal((await fetch(hook.url, { method: "POST", body })).status, 400);
  await assert.rejects(hook.waitFor("complained", { timeoutMs: 10 }), /no complained was posted within 10 ms; what came: .*delivered/);
});

test("one click unsubscribes", async (t) => {
  const twin = await openTwin(t);
  await twin.client.streams.create({ id: "news" });
  await twin.client.emails.send(hello(twin, { stream: "news", listUnsubscribe: "auto" }));
  await twin.unsubscribe(await twin.waitForMail("ann@example.com"));
  assert.equal((await twin.client.suppressions.list()).data[0].reason, "unsubscribe");
});

test("a mail that does not come tells what happened", async (t) => {
  const twin = await openTwin(t);
  await twin.client.emails.send(hello(twin, { to: "unknown@gmail.sim" }));
  await assert.rejects(twin.waitForMail("unknown@gmail.sim", { timeoutMs: 3_000 }), /to unknown@gmail.sim is bounced/);
  await twin.client.emails.send(hello(twin));
  await twin.waitForMail("ann@example.com");
  await assert.rejects(twin.noMail("ann@example.com"), /1 mails to ann@example.com arrived/);
});
