// Test an application in Node against the real server: an account for each test, the mail that left it, and a clock.
//
//   test("sign-up", async (t) => {
//     const twin = await openTwin(t);
//     await signUp("ann@example.com", { client: twin.client, sender: `hello@${twin.domain}` });
//     assert.match((await twin.waitForMail("ann@example.com")).subject, /Welcome/);
//   });

import { AssertionError } from "node:assert";

import { sendMail, TwinMail, written } from "./testing_mail.mjs";
import { runningService } from "./testing_service.mjs";
import { WebhookReceiver } from "./testing_webhooks.mjs";
import { Waybill } from "./waybill.mjs";

export { runningService, TwinMail, WebhookReceiver };

const WAIT_MS = 10_000;
const MOVE_S = 300;

// Open an account for one test. With the context of a test of `node:test`, it is closed after the test.
export async function openTwin(t) {
  const service = await runningService();
  const first = new Waybill({ apiKey: service.apiKey, baseUrl: service.baseUrl });
  const twin = new Twin(service, await first.localAccounts.create({ name: (t?.name || "Test").slice(0, 80) }));
  t?.after?.(() => twin.close());
  return twin;
}

// An account of its own on a service that runs here. Clock and service are shared with the tests of other processes;
// accounts, messages and events are not.
export class Twin {
  #mxPort;
  #faults = new Map();
  #webhooks = null;

  constructor(service, { accountId, apiKey, domain }) {
    Object.assign(this, { baseUrl: service.baseUrl, accountId, apiKey, domain });
    this.#mxPort = service.mxPort;
    const fetch = (url, options) => this.#fetch(url, options);
    this.client = new Waybill({ apiKey, baseUrl: service.baseUrl, timeoutMs: (MOVE_S + 10) * 1000, fetch });
  }

  // -- mail that was sent -------------------------------------------------------------------------------------

  // Return the newest mail to an address, if given with this text in its subject, as soon as it has arrived. Throws
  // AssertionError after `timeoutMs`, with what has happened to the messages of this account.
  async waitForMail(to, { subject = null, timeoutMs = WAIT_MS } = {}) {
    const ends = Date.now() + timeoutMs;
    let after;
    for (let left = timeoutMs; left > 0; left = ends - Date.now()) {
      const wait = Math.min(30, Math.max(1, Math.floor(left / 1000)));
      for (const row of await this.#arrived(to, { after, wait })) {
        if (subject === null || row.subject?.includes(subject)) return this.#read(row.id);
        after ??= row.id;
      }
    }
    const about = subject === null ? "" : ` with ${JSON.stringify(subject)} in its subject`;
    return failed(`no mail to ${to}${about} arrived within ${timeoutMs} ms. ${await this.#story()}`);
  }

  // Return the mails that have arrived, oldest first.
  async mails(to) {
    const found = [];
    for (const row of (await this.#arrived(to)).reverse()) found.push(await this.#read(row.id));
    return found;
  }

  // Check that no mail to an address has arrived, nor will before the clock moves; throws AssertionError.
  async noMail(to) {
    await this.settle();
    const rows = await this.#arrived(to);
    if (rows.length) failed(`${rows.length} mails to ${to} arrived: ${JSON.stringify(rows.map((row) => row.subject))}`);
  }

  // Return the events of this account, oldest first, all or of one type.
  async events(type) {
    const found = [];
    await this.client.events.catchUp(0, (event) => found.push(event));
    return found.filter((event) => type === undefined || event.type === type);
  }

  // -- the clock ----------------------------------------------------------------------------------------------

  // Wait until no delivery, post or job is due.
  async settle() {
    await this.client.localClock.settle({ timeoutS: MOVE_S });
  }

  // Let time pass; all that falls due happens in its order: retries, schedules, posts, expiries.
  async advance({ days = 0, hours = 0, minutes = 0, seconds = 0 }) {
    const by = Math.round(((days * 24 + hours) * 60 + minutes) * 60 + seconds);
    await this.client.localClock.move({ advance: `${by}s`, timeoutS: MOVE_S });
  }

  // Let time pass until a moment.
  async at(when) {
    await this.client.localClock.move({ to: new Date(when).toISOString(), timeoutS: MOVE_S });
  }

  // Return the time of the service.
  async now() {
    return new Date((await this.client.localClock.get()).serviceTime);
  }

  // -- mail from outside --------------------------------------------------------------------------------------

  // Send a mail to the service as another server does; return its Message-ID. `raw` is the whole mail, else it is
  // written from the rest. `replyTo` makes it an answer to a mail, `automatic` one of a program.
  async inject({ to, from = "ann@example.net", raw, ...rest }) {
    const { content, messageId } = written({ to, from, raw, ...rest });
    await sendMail(this.#mxPort, from, to, content);
    return messageId;
  }

  // Unsubscribe with one click, as the button of a mailbox provider does (RFC 8058).
  async unsubscribe(mail) {
    const urls = (mail.header("List-Unsubscribe") ?? "").split(",").map((one) => one.replace(/^[ <]+|[ >]+$/g, ""));
    const url = urls.find((one) => one.startsWith("http")) ?? failed("the mail has no List-Unsubscribe with a URL");
    // The header may not stand beside http, as here: RFC 8058 3.1.
    if (url.startsWith("https:") && !mail.header("List-Unsubscribe-Post")) failed("the mail has no List-Unsubscribe-Post");
    const response = await fetch(url, { method: "POST", body: new URLSearchParams({ "List-Unsubscribe": "One-Click" }) });
    if (!response.ok) throw new Error(`The page for unsubscribing answered ${response.status}: ${await response.text()}`);
    await response.arrayBuffer();
  }

  // -- webhooks and faults ------------------------------------------------------------------------------------

  // Return an endpoint that receives all events of this account; it exists from the first call on.
  webhooks() {
    this.#webhooks ??= this.#listening();
    return this.#webhooks;
  }

  // Let the next request of `client` to a path fail: with a 503, or with `afterCommit` by losing the response. The
  // client tries again, and its idempotency key keeps the message from being sent twice.
  failNext(path = "/v1/emails", { afterCommit = false } = {}) {
    this.#faults.set(path, afterCommit);
  }

  // Close the endpoint; the account stays, for looking at it.
  async close() {
    await (await this.#webhooks)?.close();
  }

  async #listening() {
    const receiver = await WebhookReceiver.open();
    receiver.secret = (await this.client.webhooks.create({ url: receiver.url })).signingSecret ?? "";
    return receiver;
  }

  async #fetch(url, options) {
    const path = new URL(url).pathname;
    const afterCommit = this.#faults.get(path);
    this.#faults.delete(path);
    if (afterCommit === undefined) return fetch(url, options);
    if (!afterCommit) return Response.json({ error: { type: "unavailable", message: "A test refused it." } }, { status: 503 });
    await (await fetch(url, options)).arrayBuffer();
    throw new TypeError("a test lost the response");
  }

  async #arrived(recipient, { after, wait = 0 } = {}) {
    return (await this.client.localSink.list({ limit: 100, recipient, after, wait })).data;
  }

  async #read(id) {
    const raw = await (await this.client.localSink.raw(id)).arrayBuffer();
    return new TwinMail(await this.client.localSink.get(id), new Uint8Array(raw));
  }

  async #story() {
    const rows = (await this.client.messages.list({ limit: 10 })).data;
    const told = rows.map((row) => `${row.id} to ${row.to.join(", ")} is ${row.status}`);
    return told.length ? `The newest messages: ${told.join("; ")}.` : "This account has sent nothing.";
  }
}

function failed(message) {
  throw new AssertionError({ message, stackStartFn: failed });
}
