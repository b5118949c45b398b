// The client of the Waybill e-mail service for JavaScript: Node 18 and later, Deno, Bun, workers and browsers.
//
//   const client = new Waybill({ apiKey: "svc_live_…", baseUrl: "https://mail.example.com" }); // or WAYBILL_API_KEY and WAYBILL_URL
//   const { id } = await client.emails.send({ from: "hello@example.com", to: ["ann@example.net"], subject: "Hello", text: "It works." });
//
// A method takes the parameters of the path, then one object with the fields of body or query, then `{ signal }`.

export const VERSION = "{{version}}";

// Group, method, HTTP method, path, form of the answer, safe to repeat, idempotency key, cursor, names in the query.
const OPERATIONS = [
{{operations}}
];

const MAX_RETRY_WAIT_MS = 30_000; // a longer `Retry-After` is thrown to the caller at once
const MAX_RECONNECT_MS = 30_000;
const SILENCE_MS = 45_000; // three heartbeats of a tail: a connection that is silent for longer is dead
const REFUSED_FOR_NOW = new Set(["rate_limited", "platform_paused", "too_many_streams"]);
const FOR_NOW = new Set([502, 503, 504]);
const FINAL_REASONS = new Set(["unauthorized", "too_many_streams"]);

export class WaybillError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The request got no complete answer. Unless it is safe to repeat, the service may have carried it out. */
export class ConnectionFailedError extends WaybillError {}

/** The account log no longer holds all events between the last one of a tail and the present. */
export class EventsLostError extends WaybillError {}

/** The service closed the tail, and a new connection would not help. */
export class TailClosedError extends WaybillError {
  constructor(reason, message) {
    super(message);
    this.reason = reason;
  }
}

/** A refusal of the API: branch on `type`, or on the class. */
export class ApiError extends WaybillError {
  static TYPE = "";
  static FIELDS = [];

  constructor(message, { status, type = "", fields = {}, requestId = null, retryAfter = null }) {
    super(message);
    const own = Object.fromEntries(new.target.FIELDS.map((name) => [name, fields[name] ?? null]));
    Object.assign(this, { status, type, fields, requestId, retryAfter, docs: fields.docs ?? null }, own);
  }
}

{{errors}}

export class Waybill {
  #key;
  #base;
  #fetch;
  #timeoutMs;
  #maxRetries;

  constructor({ apiKey, baseUrl, timeoutMs = 30_000, maxRetries = 2, fetch = globalThis.fetch } = {}) {
    apiKey ??= setting("apiKey", "WAYBILL_API_KEY");
    baseUrl ??= setting("baseUrl", "WAYBILL_URL");
    if (!/^[\x21-\x7e]+$/.test(apiKey)) throw new TypeError("apiKey must be a key of the service, such as svc_live_…");
    if (!/^https?:\/\//.test(baseUrl)) throw new TypeError("baseUrl must begin with http:// or https://");
    this.#key = apiKey;
    this.#base = baseUrl.replace(/\/+$/, "");
    this.#fetch = fetch.bind(globalThis);
    this.#timeoutMs = timeoutMs;
    this.#maxRetries = maxRetries;
    for (const row of OPERATIONS) this.#add(described(row));
    this.events.catchUp = (...args) => this.#catchUp(...args);
  }

  async #catchUp(after, handler, { type, signal } = {}) {
    for (;;) {
      const page = await this.events.list({ after, limit: 1000, type }, { signal });
      const lost = page.purgedThroughSeq;
      if (after && lost > after) throw new EventsLostError(`The log has no events up to ${lost} any more, but \`after\` is ${after}.`);
      for (const { messageId, detail, ...event } of page.data) await handler({ ...event, data: { messageId, detail } });
      after = Number(page.nextCursor);
      if (!page.hasMore) return after;
    }
  }

  #add(operation) {
    const group = (this[operation.group] ??= {});
    const call = (args) => this.#arguments(operation, args);
    if (operation.kind === "tail") group[operation.name] = (...args) => this.#tail(call(args));
    else if (operation.kind === "export") {
      group[operation.name] = (...args) => this.#records(call(args));
      group[`${operation.name}File`] = (...args) => this.#file(call(args), { format: "csv" });
    } else if (operation.kind === "download") group[operation.name] = (...args) => this.#file(call(args), {});
    else group[operation.name] = (...args) => this.#json(operation, call(args));
    if (operation.cursor) group[iteratorName(operation.name)] = (...args) => this.#pages(operation, call(args));
  }

  #arguments(operation, args) {
    const names = [...operation.path.matchAll(/\{(\w+)\}/g)];
    const values = args.slice(0, names.length).map(segment);
    if (values.length < names.length) throw new TypeError(`${operation.group}.${operation.name} needs ${names.length} ids`);
    const path = names.reduce((text, [found], number) => text.replace(found, () => values[number]), operation.path);
    const [fields = {}, { signal } = {}] = args.slice(names.length);
    const inQuery = (name) => operation.query.includes(name) || operation.method === "GET" || operation.method === "DELETE";
    const query = Object.fromEntries(Object.entries(fields).filter(([name]) => inQuery(name)));
    const body = Object.fromEntries(Object.entries(fields).filter(([name]) => !inQuery(name)));
    return { operation, path, query, body, signal };
  }

  async #json(operation, { path, query, body, signal }) {
    const sent = operation.method === "GET" || operation.method === "DELETE" ? null : keyed(operation, body);
    const response = await this.#send(operation.method, path, { query, body: sent, repeatable: operation.repeatable, signal });
    const text = await this.#read(() => response.text());
    return text === "" ? null : parse(text, response.status);
  }

  async *#pages(operation, call) {
    for (let cursor = null; ; ) {
      const page = await this.#json(operation, { ...call, query: cursor ? { ...call.query, [operation.cursor]: cursor } : call.query });
      yield* page.data;
      if (!page.nextCursor || page.nextCursor === cursor || page.hasMore === false) return;
      cursor = page.nextCursor;
    }
  }

  async *#records({ path, query, signal }) {
    const response = await this.#send("GET", path, { query, repeatable: true, signal, stream: true });
    for await (const line of lines(response.body, (read) => this.#read(read))) if (line) yield JSON.parse(line);
  }

  /** Return the response, whose body holds the file. */
  #file({ path, query, signal }, defaults) {
    return this.#send("GET", path, { query: { ...defaults, ...query }, repeatable: true, signal, stream: true });
  }

  async *#tail({ path, query, signal }) {
    let seen = null;
    let failures = 0;
    for (;;) {
      const silence = new AbortController();
      let timer;
      const awake = () => {
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_MS);
      };
      try {
        const headers = { Accept: "text/event-stream", ...(seen === null ? {} : { "Last-Event-ID": String(seen) }) };
        const { replay, after, ...rest } = query;
        const wanted = seen === null ? query : rest;
        const response = await this.#send("GET", path, { query: wanted, headers, repeatable: true, signal: either(signal, silence.signal), stream: true });
        awake();
        for await (const event of events(response.body, awake)) {
          if (event.name === "bye") closing(JSON.parse(event.data));
          if (!/^[0-9]+$/.test(event.id ?? "")) continue;
          const seq = Number(event.id);
          if (event.name === "ready") {
            failures = 0;
            const asked = seen ?? after ?? null;
            if (asked !== null && Number(asked) !== seq) throw new EventsLostError(`The tail asked for the events after ${asked}, but the log continues after ${seq}.`);
            seen = seq;
            continue;
          }
          const fresh = seen === null || seq > seen;
          seen = Math.max(seq, seen ?? 0);
          if (fresh && (event.name === "message" || event.name === "event")) yield JSON.parse(event.data);
        }
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        const foreign = !(error instanceof WaybillError); // of fetch: the connection broke off
        const passes = foreign || error instanceof ConnectionFailedError || (error instanceof ApiError && (error.status >= 500 || REFUSED_FOR_NOW.has(error.type)));
        if (!passes || (seen === null && !foreign)) throw error;
      } finally {
        clearTimeout(timer);
        silence.abort();
      }
      failures += 1;
      await pause(Math.min(MAX_RECONNECT_MS, backoff(failures)), signal);
    }
  }

  async #send(method, path, { query = {}, body = null, headers = {}, repeatable = false, signal, stream = false }) {
    const url = `${this.#base}${path}${written(query)}`;
    const sent = { Authorization: `Bearer ${this.#key}`, ...headers, ...(body === null ? {} : { "Content-Type": "application/json" }) };
    let lost = false;
    for (let tries = 1; ; tries += 1) {
      let wait;
      let timer;
      try {
        const limit = new AbortController();
        timer = setTimeout(() => limit.abort(new DOMException("The service did not answer in time.", "TimeoutError")), this.#timeoutMs);
        const response = await this.#fetch(url, {
          method,
          headers: sent,
          body: body === null ? undefined : JSON.stringify(body),
          signal: either(signal, limit.signal),
          redirect: "error",
          credentials: "omit",
          cache: "no-store",
        }).finally(() => stream && clearTimeout(timer));
        if (response.ok) {
          if (!stream) return buffered(response, await response.arrayBuffer().finally(() => clearTimeout(timer)));
          return response;
        }
        const text = await response.text().catch(() => "").finally(() => clearTimeout(timer));
        if (method === "DELETE" && response.status === 404 && lost) return new Response(null, { status: 204 });
        const refusal = apiError(response, text);
        wait = afterAnswer(refusal, tries, this.#maxRetries, repeatable);
        if (wait === null) throw refusal;
      } catch (error) {
        clearTimeout(timer); // it would keep Node from ending
        if (error instanceof WaybillError) throw error;
        if (signal?.aborted) throw signal.reason;
        // fetch does not say whether the request left: only requests that are safe to repeat are sent again.
        if (!repeatable || tries > this.#maxRetries) throw new ConnectionFailedError(`The connection failed: ${error.message}`, { cause: error });
        lost = true;
        wait = backoff(tries);
      }
      await pause(wait, signal);
    }
  }

  async #read(read) {
    try {
      return await read();
    } catch (error) {
      throw new ConnectionFailedError(`The connection failed: ${error.message}`, { cause: error });
    }
  }
}

// Without `process` (browsers, workers) both must be passed.
function setting(name, variable) {
  const found = globalThis.process?.env?.[variable];
  if (!found) throw new TypeError(`pass ${name}, or set the environment variable ${variable}`);
  return found;
}

function described([group, name, method, path, kind, repeatable, key, cursor, query]) {
  return { group, name, method, path, kind, repeatable: repeatable === 1, key, cursor, query };
}

function iteratorName(name) {
  return name === "list" ? "iterate" : `iterate${name[0].toUpperCase()}${name.slice(1)}`;
}

function segment(value) {
  if (typeof value !== "string" || value === "" || value === "." || value === "..") throw new TypeError(`${JSON.stringify(value)} is not an id`);
  return encodeURIComponent(value);
}

function keyed({ key }, body) {
  if (key === "body") return withKey(body);
  return key ? { ...body, [key]: (body[key] ?? []).map(withKey) } : body;
}

function withKey(body) {
  return body.idempotencyKey == null ? { ...body, idempotencyKey: `auto-${unique()}` } : body;
}

function unique() {
  // Not randomUUID: browsers have it in secure contexts only.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (octet) => octet.toString(16).padStart(2, "0")).join("");
}

function written(query) {
  const pairs = Object.entries(query).flatMap(([name, value]) => [value].flat().filter((one) => one != null).map((one) => [name, String(one)]));
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

function buffered(response, content) {
  const isEmpty = response.status === 204 || response.status === 304;
  return new Response(isEmpty ? null : content, { status: response.status, headers: response.headers });
}

function parse(text, status) {
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError("The server answered with a body that is not JSON. Is baseUrl the address of the service?", { status });
  }
}

function apiError(response, text) {
  const requestId = response.headers.get("X-Request-Id");
  const retryAfter = secondsUntil(response.headers.get("Retry-After"));
  let error = null;
  try {
    error = JSON.parse(text).error;
  } catch {
    // A proxy answered: the status is all there is.
  }
  if (!error || typeof error !== "object") return new ApiError(`The server answered ${response.status} without an error object.`, { status: response.status, requestId, retryAfter });
  const { type, message, ...fields } = error;
  return new (CLASSES[type] ?? ApiError)(message, { status: response.status, type, fields, requestId, retryAfter });
}

// The seconds in a `Retry-After` header: a number, or the time until a date (RFC 9110 10.2.3).
function secondsUntil(stated) {
  if (stated === null) return null;
  if (/^[0-9]+$/.test(stated)) return stated.length <= 9 ? Number(stated) : null;
  const until = Date.parse(stated);
  return Number.isNaN(until) ? null : Math.max(0, (until - Date.now()) / 1000);
}

function afterAnswer(refusal, tries, retries, repeatable) {
  const forNow = (refusal.status === 429 && REFUSED_FOR_NOW.has(refusal.type)) || (repeatable && FOR_NOW.has(refusal.status));
  if (!forNow || tries > retries) return null;
  if (refusal.retryAfter === null) return backoff(tries);
  return refusal.retryAfter * 1000 <= MAX_RETRY_WAIT_MS ? refusal.retryAfter * 1000 : null;
}

function backoff(tries) {
  return Math.min(8_000, 500 * 2 ** Math.min(tries - 1, 10)) * (0.5 + 0.5 * Math.random());
}

function closing({ reason, message }) {
  if (FINAL_REASONS.has(reason)) throw new TailClosedError(reason, message);
}

function either(first, second) {
  if (!first) return second;
  const both = new AbortController();
  for (const one of [first, second]) {
    if (one.aborted) both.abort(one.reason);
    else one.addEventListener("abort", () => both.abort(one.reason), { once: true, signal: both.signal });
  }
  return both.signal;
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

// Yield the lines of a stream. Only LF and CRLF end a line: JSON may hold U+2028 and its like.
async function* lines(stream, guarded = (read) => read()) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let parts = [];
  try {
    for (;;) {
      const { done, value } = await guarded(() => reader.read());
      const text = done ? decoder.decode() : decoder.decode(value, { stream: true });
      const [first, ...rest] = text.split("\n");
      parts.push(first);
      if (rest.length) {
        yield parts.join("").replace(/\r$/, "");
        for (const line of rest.slice(0, -1)) yield line.replace(/\r$/, "");
        parts = [rest.at(-1)];
      }
      if (done) break;
    }
    if (parts.join("")) yield parts.join("");
  } finally {
    await reader.cancel().catch(() => {});
  }
}

async function* events(stream, awake) {
  let event = { name: "message", id: null, data: [] };
  for await (const line of lines(stream)) {
    awake();
    if (line === "") {
      if (event.data.length) yield { ...event, data: event.data.join("\n") };
      event = { name: "message", id: null, data: [] };
      continue;
    }
    const cut = line.indexOf(":");
    const field = cut < 0 ? line : line.slice(0, cut);
    const value = cut < 0 ? "" : line.slice(cut + 1).replace(/^ /, "");
    if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
    else if (field === "data") event.data.push(value);
  }
}
