// Receive the webhook posts of a service under test, and hand them on to the code under test.

import { AssertionError } from "node:assert";
import { createHmac } from "node:crypto";
import { createServer } from "node:http";

import { verify } from "./webhooks.mjs";

const MAX_BODY = 1024 * 1024;
const WAIT_MS = 10_000;

// A webhook endpoint on this machine. Its posts are checked, kept, and answered with 204.
export class WebhookReceiver {
  secret = "";
  #posts = [];
  #waiting = new Set();
  #paused = false;
  #server = createServer((request, response) => this.#answer(request, response));

  // Return an endpoint that listens.
  static async open() {
    const receiver = new WebhookReceiver();
    await new Promise((resolve, reject) => receiver.#server.once("error", reject).listen(0, "127.0.0.1", resolve));
    return receiver;
  }

  // The address to post to.
  get url() {
    return `http://127.0.0.1:${this.#server.address().port}/`;
  }

  // The posts that were accepted, in their order of arrival: `{ headers, body, event }`.
  get posts() {
    return [...this.#posts];
  }

  // Return the first event of a type for which `where` is true; throws AssertionError after `timeoutMs`.
  async waitFor(type, { where = () => true, timeoutMs = WAIT_MS } = {}) {
    const ends = Date.now() + timeoutMs;
    for (;;) {
      const found = this.#posts.find(({ event }) => event.type === type && where(event));
      if (found) return found.event;
      if (!(await this.#next(ends - Date.now()))) break;
    }
    const came = this.#posts.map(({ event }) => event.type).join(", ") || "nothing";
    throw new AssertionError({ message: `no ${type} was posted within ${timeoutMs} ms; what came: ${came}` });
  }

  // Answer posts with 503, as an application does that is down. The service tries again later.
  pause() {
    this.#paused = true;
  }

  // Accept posts again.
  resume() {
    this.#paused = false;
  }

  // Call the code under test with body and headers of each accepted post: `times` times, and in the order that `seed`
  // draws. Posts may be doubled and change places; a handler must bear both.
  async handTo(handler, { times = 1, seed = null } = {}) {
    const posts = Array.from({ length: times }, () => this.#posts).flat();
    if (seed !== null) shuffle(posts, seed);
    for (const { body, headers } of posts) await handler(body, headers);
  }

  // Return the headers of a post with this body, signed with the secret of this endpoint; nothing is sent.
  signed(body) {
    const at = Math.floor(Date.now() / 1000);
    const code = createHmac("sha256", this.secret).update(`${at}.`).update(body).digest("hex");
    return { "content-type": "application/json", "service-signature": `t=${at},v1=${code}` };
  }

  // Stop listening.
  async close() {
    this.#server.closeAllConnections?.();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request, response) {
    try {
      response.writeHead(await this.#take(request.headers, await read(request))).end();
    } catch (error) {
      response.writeHead(400, { "Content-Type": "text/plain" }).end(error.message);
    }
  }

  async #take(headers, body) {
    if (body === null) return 413;
    if (this.#paused) return 503;
    const event = await verify(body, headers, this.secret);
    this.#posts.push({ headers, body, event });
    for (const wake of this.#waiting) wake(true);
    return 204;
  }

  #next(timeoutMs) {
    return new Promise((resolve) => {
      const wake = (came) => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve(came);
      };
      const timer = setTimeout(() => wake(false), Math.max(0, timeoutMs));
      this.#waiting.add(wake);
    });
  }
}

async function read(request) {
  const parts = [];
  let size = 0;
  for await (const part of request) {
    size += part.length;
    if (size <= MAX_BODY) parts.push(part);
  }
  return size > MAX_BODY ? null : Buffer.concat(parts);
}

// Shuffle in place; mulberry32 gives the same order for the same seed.
function shuffle(items, seed) {
  let state = seed >>> 0;
  for (let last = items.length - 1; last > 0; last -= 1) {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    const other = Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * (last + 1));
    [items[last], items[other]] = [items[other], items[last]];
  }
}
