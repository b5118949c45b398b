// One connection that follows the account's events: the live tail, or pulling every few seconds where there is none.
// Used by live.js alone, which decides which tab of the browser has it.
import { address, ApiError, BASE, call, session, setSession } from "../core/api.js";

const MESSAGES = "GET /v1/messages/tail"; // with status, addresses and subject of the message of each event
const ALL = "GET /v1/events/tail"; // with the events of the account too, without those fields
const PULL_MS = 5_000;
const MAX_RETRY_MS = 30_000;
const PULL_FOR_MS = 120_000; // until the next try of the tail, after the service refused it
const FLUSH_MS = 200; // events are handed on together, so that a busy account does not draw the page for each
const PULL_LIMIT = 1000;
const MAX_PULLS = 10; // in a row; whoever is further behind gets a gap
const SILENT_FACTOR = 3; // heartbeats missed until the connection counts as lost

const wait = (ms, abort) => new Promise((done) => {
  if (abort.aborted) {
    done();
    return;
  }
  const end = () => { clearTimeout(timer); done(); };
  const timer = setTimeout(end, ms);
  abort.addEventListener("abort", end, { once: true });
});
const jittered = (ms) => ms * (0.7 + 0.6 * Math.random());

/**
 * Follow the events after `at` (a seq; null: from now on) until `abort` fires: those of messages, or with `all` all.
 *
 * `onBatch` gets {after, upTo, events, gap}: all events after `after` up to `upTo`, in order; `gap` is true if some are
 * lost because the service no longer has them or there were too many. `onMode` gets connecting, live, polling or offline.
 */
export async function follow({ at, all, abort, onBatch, onMode }) {
  const state = { at, tail: all ? ALL : MESSAGES, pullUntil: 0, failures: 0 };
  const take = (batch) => {
    state.at = batch.upTo;
    onBatch(batch);
  };
  onMode("connecting");
  while (!abort.aborted) {
    try {
      await checkSession();
      if (abort.aborted) return;
      if (Date.now() < state.pullUntil) {
        onMode("polling");
        await pull(state, abort, take);
        state.failures = 0;
        await wait(jittered(PULL_MS), abort);
        continue;
      }
      await nextConnection(await stream(state, abort, take, onMode), state, abort);
    } catch (error) {
      if (abort.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      state.failures += 1;
      onMode(error.status === 0 || error.status >= 500 ? "offline" : "polling");
      await wait(jittered(error.retryAfterS ? error.retryAfterS * 1000 : backOff(state.failures)), abort);
    }
  }
}

const backOff = (failures) => Math.min(MAX_RETRY_MS, 1000 * 2 ** failures);

/** Make sure that the cookie still belongs to the account that is shown: another tab may have switched or signed out. */
async function checkSession() {
  const known = await call("GET /v1/auth/me", { quiet: true });
  if (!known.csrfToken) {
    await call("GET /v1/events", { query: { limit: 1 }, quiet: true }); // 401: asks the person to sign in, then goes on
    return;
  }
  if (known.account?.id !== session.peek()?.account.id) setSession(known); // draws the page anew and ends this connection
}

/** Decide how to go on after a connection ended for `reason`. */
async function nextConnection(reason, state, abort) {
  if (reason === "aborted" || reason === "idle" || reason === "too_slow" || reason === "unauthorized") return;
  if (reason === "too_many_streams" || reason === "refused") {
    state.pullUntil = Date.now() + jittered(PULL_FOR_MS);
    return;
  }
  state.failures += 1;
  await wait(jittered(backOff(state.failures - 1)), abort);
}

/** Follow the tail until it ends; returns the reason: that of `bye`, "refused", "lost", or "aborted". */
function stream(state, abort, take, onMode) {
  return new Promise((done) => {
    const query = state.at === null ? { replay: 0 } : { after: state.at };
    const source = new EventSource(BASE.slice(0, -1) + address(state.tail.split(" ")[1], {}, query));
    let buffer = [];
    let flushing = 0;
    let silence = 0;
    let heartbeatMs = 15_000;
    const flush = (upTo) => {
      clearTimeout(flushing);
      flushing = 0;
      const events = buffer;
      buffer = [];
      if (upTo > state.at) take({ after: state.at, upTo, events, gap: false });
    };
    const end = (reason) => {
      if (buffer.length) flush(buffer.at(-1).seq);
      clearTimeout(flushing);
      clearTimeout(silence);
      source.close();
      abort.removeEventListener("abort", aborted);
      done(reason);
    };
    const aborted = () => end("aborted");
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => end("lost"), heartbeatMs * SILENT_FACTOR);
    };
    abort.addEventListener("abort", aborted);
    heard();
    source.addEventListener("ready", (event) => {
      const { after, firstSeq, heartbeatSeconds } = JSON.parse(event.data);
      heartbeatMs = heartbeatSeconds * 1000;
      state.failures = 0;
      heard();
      onMode("live");
      const asked = state.at;
      state.at = after;
      if (asked === null) take({ after: null, upTo: after, events: [], gap: false });
      else if (after > asked || firstSeq > asked + 1) take({ after: asked, upTo: Math.max(after, firstSeq - 1), events: [], gap: true });
    });
    const event = ({ data }) => {
      heard();
      const one = JSON.parse(data);
      if (one.seq <= (buffer.at(-1)?.seq ?? state.at)) return;
      buffer.push(one);
      flushing ||= setTimeout(() => flush(buffer.at(-1).seq), FLUSH_MS);
    };
    source.addEventListener("message", event); // of the tail of messages
    source.addEventListener("event", event); // of the tail of all events
    source.addEventListener("heartbeat", (event) => {
      heard();
      flush(Math.max(JSON.parse(event.data).seq, state.at));
    });
    source.addEventListener("bye", (event) => end(JSON.parse(event.data).reason));
    source.onerror = () => end(source.readyState === EventSource.CLOSED ? "refused" : "lost");
  });
}

/** Pull the events after `state.at`; those of a pull have no status, addresses and subject. */
async function pull(state, abort, take) {
  if (state.at === null) {
    take({ after: null, upTo: await latestSeq(abort), events: [], gap: false });
    return;
  }
  for (let turn = 0; turn < MAX_PULLS && !abort.aborted; turn += 1) {
    const page = await call("GET /v1/events", { query: { after: state.at, limit: PULL_LIMIT }, quiet: true, signal: abort });
    const upTo = Number(page.nextCursor);
    if (page.purgedThroughSeq > state.at) take({ after: state.at, upTo: page.purgedThroughSeq, events: [], gap: true });
    if (upTo > state.at) take({ after: state.at, upTo, events: page.data.filter((one) => one.seq > state.at), gap: false });
    if (!page.hasMore) return;
  }
}

/** Return the seq of an event near the end of the log: the last one of the newest message, or 0 without messages. */
async function latestSeq(abort) {
  const { data } = await call("GET /v1/messages", { query: { limit: 1 }, quiet: true, signal: abort });
  if (!data.length) return 0;
  const { waybill } = await call("GET /v1/messages/{id}", { path: { id: data[0].id }, quiet: true, signal: abort });
  return Math.max(0, ...waybill.map((one) => one.seq));
}
