// The rows of the list of messages: read page by page, changed by live events, 100,000 of them in little memory.
import { ApiError, call } from "../core/api.js";
import { useCallback, useEffect, useRef, useState, undirected } from "../core/view.js";
import { MESSAGE_EVENTS, useLive } from "./live.js";
import { matches } from "./message_filters.js";

const PAGE = 100;
const MAX_PENDING = 10_000; // new rows that wait; beyond, the list is read again when they are asked for
const REFRESH_MS = 2_000;
const SOON_MS = 200;
const MAX_REFRESH_PAGES = 5;

const words = new Map(); // one copy of each short text that repeats
const shared = (text) => {
  if (text == null) return text;
  const known = words.get(text);
  if (known !== undefined) return known;
  if (words.size < 5_000) words.set(text, text);
  return text;
};

/** Return what the list shows of a message. */
export function rowOf(message) {
  const { to, cc = [], bcc = [] } = message;
  return {
    id: message.id,
    status: shared(message.status),
    from: shared(message.from),
    to: to[0] ?? cc[0] ?? bcc[0] ?? "",
    more: Math.max(0, to.length + cc.length + bcc.length - 1),
    subject: undirected(message.subject) ?? "",
    stream: shared(message.stream),
    tags: message.tags?.length ? message.tags.map(shared) : null,
    at: Date.parse(message.createdAt),
    changes: 0,
    reason: shared(reasonOf(message)),
  };
}

const reasonOf = (message) => message.recipients?.find((one) => one.lastResponse && !["delivered", "complained"].includes(one.status))?.lastResponse ?? null;
const rowOfEvent = (event) => rowOf({ ...event, id: event.messageId });
const emptyStore = () => ({ rows: [], byId: new Map(), pending: [], pendingIds: new Set(), overflow: false, cursor: null });

/**
 * The list of messages that `query` selects: {rows, pending, more, loading, error, gap, reload, next, showPending}.
 *
 * `rows` is one array that grows; `version` changes with each change. New messages wait in `pending` unless `atTop()`.
 */
export function useMessageRows({ query, filters, paused, atTop }) {
  const key = JSON.stringify(query);
  const store = useRef(emptyStore());
  const turn = useRef(0);
  const reading = useRef(false);
  const [state, setState] = useState({ version: 0, loading: true, error: null, total: 0 });
  const changed = useCallback((more = {}) => setState((old) => ({ ...old, ...more, version: old.version + 1 })), []);

  const read = useCallback(async (before, limit = PAGE) => {
    const page = await call("GET /v1/messages", { query: { ...query, limit, before } });
    return { rows: page.data.map(rowOf), cursor: page.nextCursor };
  }, [key]);

  const reload = useCallback(async () => {
    const now = (turn.current += 1);
    reading.current = true;
    changed({ loading: true, error: null });
    try {
      const page = await read(null);
      if (now !== turn.current) return;
      const { early } = store.current;
      store.current = emptyStore();
      append(store.current, page);
      for (const event of early ?? []) takeEvent(store.current, event, filters, false);
      showAll(store.current);
      changed({ loading: false });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (now === turn.current) changed({ loading: false, error });
    } finally {
      if (now === turn.current) reading.current = false;
    }
  }, [read]);

  const next = useCallback(async () => {
    if (reading.current || store.current.cursor === null) return;
    const now = turn.current;
    reading.current = true;
    changed({ loading: true });
    try {
      const page = await read(store.current.cursor);
      if (now !== turn.current) return;
      append(store.current, page);
      changed({ loading: false, error: null });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (now === turn.current) changed({ loading: false, error });
    } finally {
      if (now === turn.current) reading.current = false;
    }
  }, [read]);

  useEffect(() => {
    store.current.early = [];
    reload();
    return () => { turn.current += 1; };
  }, [reload]);

  const refresh = useRefresh(async () => {
    const now = turn.current;
    let cursor = null;
    for (let pages = 0; pages < MAX_REFRESH_PAGES; pages += 1) {
      const page = await read(cursor);
      if (now !== turn.current) return;
      const met = merge(store.current, page.rows);
      cursor = page.cursor;
      if (met || cursor === null) break;
      if (pages === MAX_REFRESH_PAGES - 1) store.current.overflow = true; // more new messages lie between
    }
    if (atTop() && !paused) showAll(store.current);
    changed();
  });

  useLive(MESSAGE_EVENTS, ({ events, gap }) => {
    const held = store.current;
    if (reading.current && held.rows.length === 0) held.early?.push(...events);
    let ask = gap && !reading.current;
    let touched = false;
    for (const event of events) {
      if (!event.messageId) continue;
      const outcome = takeEvent(held, event, filters, true);
      ask ||= outcome === "ask";
      touched ||= outcome === "changed";
    }
    if (touched && atTop() && !paused) showAll(held);
    if (touched) changed();
    if (ask) refresh();
  });

  const showPending = useCallback(() => {
    if (store.current.overflow) return reload();
    showAll(store.current);
    return changed();
  }, [reload]);
  const { rows, pending, overflow, cursor, byId } = store.current;
  return { ...state, rows, byId, pending: pending.length, overflow, more: cursor !== null, reload, next, showPending };
}

/** Wait until the tab is visible. */
const shown = () => new Promise((done) => {
  const look = () => {
    if (document.visibilityState !== "visible") return;
    document.removeEventListener("visibilitychange", look);
    done();
  };
  document.addEventListener("visibilitychange", look);
  look();
});

/** Return a function that runs `action` at most every 2 s while the tab is visible; refusals are left to the next run. */
function useRefresh(action) {
  const latest = useRef(action);
  latest.current = action;
  const timer = useRef(0);
  const last = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    timer.current ||= setTimeout(async () => {
      await shown();
      timer.current = 0;
      last.current = Date.now();
      try {
        await latest.current();
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
      }
    }, Math.max(SOON_MS, REFRESH_MS - (Date.now() - last.current)));
  }, []);
}

function append(store, { rows, cursor }) {
  for (const row of rows) {
    if (store.byId.has(row.id)) continue;
    store.byId.set(row.id, row);
    store.rows.push(row);
  }
  store.cursor = cursor ?? null;
}

const update = (known, row) => Object.assign(known, row, { changes: known.changes + 1 });

/** Take over a page of the newest messages: known rows change, unknown ones wait. Returns true if it met a listed row. */
function merge(store, rows) {
  let met = store.rows.length === 0;
  for (const row of rows) {
    const known = store.byId.get(row.id);
    met ||= Boolean(known) && !store.pendingIds.has(row.id);
    if (known) update(known, row);
    else addPending(store, row);
  }
  return met;
}

// The status of a message with one recipient after an event that was pulled, and so lacks it.
const AFTER = { attempted: "sending", deferred: "sending", delivered: "delivered", bounced: "bounced", complained: "complained", failed: "failed", rejected: "rejected", suppressed: "rejected", scheduled: "scheduled", schedule_canceled: "canceled", schedule_failed: "rejected", accepted: "queued" };

/** Apply an event of the tail: "changed", "ask" if the list must be read to know, or null. */
function takeEvent(store, event, filters, mayAsk) {
  const known = store.byId.get(event.messageId);
  if (known) {
    const status = event.status ?? (known.more === 0 ? AFTER[event.type] : null);
    if (!status) return mayAsk ? "ask" : null;
    if (known.status === status) return null;
    known.status = shared(status);
    known.changes += 1;
    if (event.detail?.diagnostic) known.reason = event.detail.diagnostic;
    return "changed";
  }
  const fits = event.from ? matches(filters, event) : null;
  if (fits === null) return mayAsk ? "ask" : null;
  if (!fits || event.type !== "accepted" && event.type !== "scheduled" && !filters.status) return null;
  addPending(store, rowOfEvent(event));
  return "changed";
}

function addPending(store, row) {
  if (store.pendingIds.has(row.id)) {
    const waiting = store.byId.get(row.id);
    if (waiting) update(waiting, row);
    return;
  }
  if (store.pending.length >= MAX_PENDING) {
    store.overflow = true;
    return;
  }
  store.pending.push(row);
  store.pendingIds.add(row.id);
  store.byId.set(row.id, row);
}

/** Put the waiting rows on top, newest first. */
function showAll(store) {
  if (store.pending.length === 0 || store.overflow) return;
  store.rows.unshift(...store.pending.sort((one, other) => other.at - one.at));
  store.pending = [];
  store.pendingIds = new Set();
}
