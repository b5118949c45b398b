// Live events for all pages and all tabs: one connection a browser, shared over a BroadcastChannel.
//
// A visible tab that listens waits for a lock; its holder follows the events (live_stream.js) and tells the other tabs.
// The lock is given up soon after the tab is hidden, so that there is no connection while all tabs are hidden. Each tab
// remembers up to which `seq` it has seen events, and goes on behind it: no event is missed or seen twice.
import { session } from "../core/api.js";
import { effect, signal, useEffect, useRef } from "../core/view.js";

const RELEASE_AFTER_MS = 3_000; // a tab that is hidden, or shows no live page, for less keeps the connection
const MAX_KEPT = 5_000; // events that the leading tab keeps for tabs that were late

/** The types of the events of messages. */
export const MESSAGE_EVENTS = ["accepted", "queued", "attempted", "delivered", "deferred", "bounced", "complained", "failed", "rejected", "suppressed", "scheduled", "schedule_canceled", "schedule_failed"];

/** How events arrive: off, connecting, live, polling (every 5 s) or offline. */
export const liveMode = signal("off");

const me = Math.random().toString(36).slice(2);
const listeners = new Set();
let account = null;
let channel = null;
let at = null; // seq up to which this tab has seen the events; null: none yet
let kept = []; // batches, newest last, while this tab leads
let keptCount = 0;
let leading = null; // AbortController of the lock that this tab holds or waits for
let hiding = 0;

/**
 * Call `onEvents` with {events, gap} as events happen, while the component is shown.
 *
 * `types`: MESSAGE_EVENTS, names of types, beginnings ("inbound.") or null for all. `gap` is true if events may be
 * missing, also once when listening begins: read the page's data again. Events of messages have status, addresses and
 * subject only while no tab listens to events of the account and nothing is pulled.
 */
export function useLive(types, onEvents) {
  const latest = useRef(onEvents);
  latest.current = onEvents;
  const key = types?.join(" ") ?? "";
  const id = session.value?.account.id;
  useEffect(() => listen(types, (batch) => latest.current(batch)), [key, id]);
}

/** Listen outside a component; returns a function that ends it. */
export function listen(types, onEvents) {
  const listener = { types, onEvents, fresh: at === null };
  listeners.add(listener);
  update();
  if (leads()) refit();
  else if (needsAll()) tell({ kind: "need" });
  return () => {
    listeners.delete(listener);
    update();
  };
}

const wanted = (types, type) => types === null || types === undefined || types.some((one) => (one.endsWith(".") ? type.startsWith(one) : one === type));

function deliverTo(listener, { events, gap }) {
  const chosen = events.filter((one) => wanted(listener.types, one.type));
  const missing = gap || listener.fresh;
  listener.fresh = false;
  if (chosen.length || missing) listener.onEvents({ events: chosen, gap: missing });
}

/** Take the events of a batch that this tab has not seen; returns false if there is a hole before it. */
function take({ after, upTo, events, gap }) {
  if (at !== null && after !== null && after > at && !gap) return false;
  const seen = at ?? -1;
  if (at !== null && upTo <= at) return true;
  at = upTo;
  const fresh = events.filter((one) => one.seq > seen);
  for (const listener of [...listeners]) deliverTo(listener, { events: fresh, gap });
  return true;
}

// --- the tabs ---------------------------------------------------------------------------------------------------

function tell(message) {
  channel?.postMessage({ from: me, ...message });
}

function heard({ data }) {
  if (data.to && data.to !== me) return;
  if (data.kind === "batch" && !leads()) {
    liveMode.value = data.mode;
    if (!take(data.batch)) tell({ kind: "ask", at });
  } else if (data.kind === "mode" && !leads()) {
    liveMode.value = data.mode;
  } else if (data.kind === "ask" && leads()) {
    answer(data);
  } else if (data.kind === "need" && leads()) {
    othersNeed = true;
    refit();
  } else if (data.kind === "needs" && needsAll()) {
    tell({ kind: "need" });
  }
}

/** Send a late tab what this tab has kept behind `asked`, or a gap if that is not all. */
function answer({ from, at: asked }) {
  if (at === null) return;
  tell({ kind: "mode", to: from, mode: liveMode.peek() });
  if (asked === null) {
    tell({ kind: "batch", to: from, mode: liveMode.peek(), batch: { after: null, upTo: at, events: [], gap: false } });
    return;
  }
  const first = kept.length ? kept[0].after : at;
  const events = kept.flatMap((batch) => batch.events).filter((one) => one.seq > asked);
  const gap = asked < first || kept.some((batch) => batch.gap && batch.upTo > asked);
  tell({ kind: "batch", to: from, mode: liveMode.peek(), batch: { after: gap ? asked : Math.min(asked, at), upTo: at, events, gap } });
}

function keep(batch) {
  if (batch.after === null) return;
  kept.push(batch);
  keptCount += batch.events.length;
  while (keptCount > MAX_KEPT || kept.length > MAX_KEPT) keptCount -= kept.shift().events.length;
}

// --- leading ----------------------------------------------------------------------------------------------------

let holds = false;
let othersNeed = false; // another tab listens to events of the account
let connection = null; // {all, abort} while this tab leads
const leads = () => holds;
const needsAll = () => [...listeners].some(({ types }) => !types || types.some((one) => one.includes(".")));

/** Connect to the other tail if listeners need the events of the account, which that of messages lacks, or no longer do. */
function refit() {
  if (connection && connection.all !== (othersNeed || needsAll())) connection.abort.abort();
}

/** Begin or end waiting for the connection, as listeners, visibility and session demand. */
function update() {
  const visible = document.visibilityState === "visible";
  clearTimeout(hiding);
  if (!account || listeners.size === 0 || !visible) {
    hiding = setTimeout(stop, RELEASE_AFTER_MS);
    return;
  }
  openChannel();
  start();
}

function openChannel() {
  if (channel || !("BroadcastChannel" in window) || !navigator.locks) return; // without locks each tab is for itself
  channel = new BroadcastChannel(`waybill.live.${account}`);
  channel.onmessage = heard;
}

function start() {
  if (leading) return;
  const mine = new AbortController();
  leading = mine;
  tell({ kind: "ask", at }); // if another tab leads, it answers
  if (!navigator.locks) {
    lead(mine);
    return;
  }
  navigator.locks.request(`waybill.live.${account}`, { signal: mine.signal }, () => lead(mine)).catch((error) => {
    if (error.name !== "AbortError") throw error;
  });
}

async function lead(mine) {
  if (mine.signal.aborted) return;
  holds = true;
  kept = [];
  keptCount = 0;
  othersNeed = false;
  tell({ kind: "needs" });
  const onMode = (mode) => {
    if (mine.signal.aborted) return;
    liveMode.value = mode;
    tell({ kind: "mode", mode });
  };
  const onBatch = (batch) => {
    if (mine.signal.aborted) return;
    keep(batch);
    take(batch);
    tell({ kind: "batch", mode: liveMode.peek(), batch });
  };
  try {
    while (!mine.signal.aborted) {
      const abort = new AbortController();
      connection = { all: othersNeed || needsAll(), abort };
      const end = () => abort.abort();
      mine.signal.addEventListener("abort", end);
      const { follow } = await import("./live_stream.js"); // only in the tab that leads
      await follow({ at, all: connection.all, abort: abort.signal, onBatch, onMode });
      mine.signal.removeEventListener("abort", end);
    }
  } finally {
    connection = null;
    if (leading === mine || leading === null) holds = false;
  }
}

function stop() {
  leading?.abort();
  leading = null;
  holds = false;
  if (listeners.size === 0 || !account) {
    channel?.close();
    channel = null;
    at = null; // events meanwhile are of no interest: pages read their data when they open
    liveMode.value = "off";
  }
}

document.addEventListener("visibilitychange", update);
effect(() => {
  const id = session.value?.account.id ?? null;
  if (id === account) return;
  account = null;
  stop();
  at = null;
  for (const listener of listeners) listener.fresh = true;
  account = id;
  queueMicrotask(update);
});
