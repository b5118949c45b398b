// Calls of the public API with the person's session, what is known of the session, and the calls behind a page.
//
// An operation is named as in the documentation: "GET /v1/messages/{id}". A test compares each such text in the
// console with the operations of the OpenAPI document.
import { setZone, signal, useCallback, useEffect, useRef, useState, undirected } from "./view.js";

/** The path of the service, "/" unless it is published below another path. */
export const BASE = new URL("../../../../", import.meta.url).pathname;
/** The path of the console, without a final slash. */
export const CONSOLE = `${BASE}console`;

const CSRF = "X-CSRF-Token";
const TIMEOUT_MS = 30_000;
const POLL_MS = 10_000;
const MAX_REMEMBERED = 20;

/** The session: undefined until known, null when signed out, else {csrfToken, user, account, …}. */
export const session = signal(undefined);
/** True while the sign-in form is shown over the page because the session ended. */
export const signInNeeded = signal(false);
/** The cell whose operations an operator calls; empty: the one of their session. */
export const operatorCell = signal("");
/** The calls that the current page made, newest last: {operation, url, method, body}. */
export const pageCalls = signal([]);
/** The notices of the account that the person has not dismissed; the shell keeps them fresh. */
export const NO_NOTICES = { data: [], unread: 0 };
export const notices = signal(NO_NOTICES);

/** Counts the changes that were not made because the session is of another person or account than the page. */
export const refusedAsOther = signal(0);
export const CHANGED_ELSEWHERE = "The account was changed in another tab, so nothing was saved. Check which account this page shows.";

let csrf = null;
let signedInAgain = null; // {promise, resolve} while a person signs in over the page

/** A refusal of the API, or a failure to reach it (`type` is "network" or "timeout", `status` 0). */
export class ApiError extends Error {
  constructor({ type, message, status = 0, details = {}, requestId = null, retryAfterS = null }) {
    super(message);
    this.type = type;
    this.status = status;
    this.details = details; // the other fields of the error object, such as `field` or `resource`
    this.requestId = requestId;
    this.retryAfterS = retryAfterS;
  }
}

/**
 * Call an operation and return its reply: parsed JSON, null without a body, or the Response with `raw`.
 *
 * `path` fills the braces, `query` the query (null and "" are left out, lists repeat the name), `body` is sent as JSON
 * (a Blob or string as it is, with `contentType`). Throws ApiError. A call with an ended session waits until the person
 * has signed in again, then is repeated; a call with an old CSRF token is repeated with the new one.
 */
export async function call(operation, options = {}) {
  const outcome = await attempt(operation, options);
  if (!(outcome instanceof ApiError)) return outcome;
  if (outcome.type === "csrf_failed" && !options.repeated) {
    const before = session.peek();
    await refreshSession();
    if (isOther(before, session.peek())) {
      refusedAsOther.value += 1;
      throw new ApiError({ type: "session_changed", message: CHANGED_ELSEWHERE });
    }
    return call(operation, { ...options, repeated: true });
  }
  if (outcome.type === "unauthorized" && session.value && !options.signingIn) { // a wrong password has another type
    await signInAgain();
    return call(operation, { ...options, signingIn: true });
  }
  throw outcome;
}

async function attempt(operation, { path = {}, query = {}, body, contentType, accept, raw = false, quiet = false, signal: abort, timeoutMs }) {
  const [method, template] = operation.split(" ");
  const url = address(template, path, query);
  const headers = { Accept: accept ?? "application/json" };
  if (csrf && method !== "GET") headers[CSRF] = csrf;
  if (operatorCell.value && template.startsWith("/v1/operator/")) headers["X-Waybill-Cell"] = operatorCell.value;
  const plain = typeof body === "string" || body instanceof Blob;
  if (body !== undefined) headers["Content-Type"] = contentType ?? "application/json";
  if (!quiet) remember({ operation, method, url, body: plain ? null : body });
  let answer;
  try {
    answer = await fetch(BASE.slice(0, -1) + url, {
      method,
      headers,
      body: body === undefined || plain ? body : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      signal: bounded(abort, timeoutMs ?? TIMEOUT_MS),
    });
  } catch (error) {
    if (abort?.aborted) throw error;
    return unreachable(error);
  }
  const fresh = answer.headers.get(CSRF);
  if (fresh) csrf = fresh;
  if (!answer.ok) return refused(answer);
  if (raw) return answer;
  if (answer.status === 204 || answer.headers.get("Content-Length") === "0") return null;
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

function bounded(abort, timeoutMs) {
  const late = AbortSignal.timeout(timeoutMs);
  return abort ? AbortSignal.any([abort, late]) : late;
}

function unreachable(error) {
  return error.name === "TimeoutError"
    ? new ApiError({ type: "timeout", message: "No response in time. Try again." })
    : new ApiError({ type: "network", message: "The service can't be reached. Check your connection. This page retries automatically." });
}

async function refused(answer) {
  const requestId = answer.headers.get("X-Request-Id");
  const retryAfterS = Number(answer.headers.get("Retry-After")) || null;
  try {
    const { type, message, ...details } = (await answer.json()).error;
    return new ApiError({ type, message, status: answer.status, details, requestId, retryAfterS });
  } catch {
    return new ApiError({ type: "unknown", message: `The service responded with ${answer.status}.`, status: answer.status, requestId, retryAfterS });
  }
}

/** Return the address of an operation below the service: "/v1/messages/msg_1?limit=50". */
export function address(template, path = {}, query = {}) {
  const filled = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(path[name]));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") search.append(name, String(one));
    }
  }
  const text = search.toString();
  return text ? `${filled}?${text}` : filled;
}

function remember(made) {
  if (made.url.startsWith("/v1/auth/")) return; // passwords and codes are not for display
  pageCalls.value = [...pageCalls.peek().filter((one) => one.url !== made.url || one.method !== made.method), made].slice(-MAX_REMEMBERED);
}

/** Read the session from the service; sets `session`. Returns it, or null when signed out. */
export async function refreshSession() {
  const answer = await attempt("GET /v1/auth/me", { quiet: true });
  if (answer instanceof ApiError) throw answer;
  setSession(answer);
  return session.value;
}

/** Return true if two sessions are of different persons or accounts. */
const isOther = (one, other) => one?.user.id !== other?.user.id || one?.account.id !== other?.account.id;

const tabs = "BroadcastChannel" in window ? new BroadcastChannel("waybill.session") : null;

/** Tell the other tabs who is signed in now, and on which account; nobody after a sign-out. */
const tellTabs = (known) => tabs?.postMessage(known && { user: { id: known.user.id }, account: { id: known.account.id } });

/**
 * Call `changed(signedIn, samePerson)` when another tab signed out, or in as another person, or changed the account.
 * A page for persons without a session takes the new session over.
 */
export function onOtherTab(changed) {
  tabs?.addEventListener("message", ({ data }) => {
    const shown = session.peek();
    if (shown === undefined || !isOther(shown, data)) return;
    if (shown === null) refreshSession().catch(() => {}); // a page that signs in anyway
    else changed(data !== null, shown.user.id === data?.user.id);
  });
}

/** Forget what this browser keeps of a person's work; how the console looks stays. */
export function forgetPerson() {
  for (const name of Object.keys(localStorage)) {
    if (/^waybill\.(samples|recent)\b/.test(name)) localStorage.removeItem(name);
  }
}

/** Take over the session that a sign-in or `GET /v1/auth/me` returned; null: signed out. */
export function setSession(value) {
  const known = value?.csrfToken ? value : null;
  csrf = known ? known.csrfToken : null;
  const before = session.peek();
  session.value = known;
  setZone(known?.user.timezone);
  if (before !== undefined && isOther(before, known)) tellTabs(known);
  if (known && signedInAgain) {
    signInNeeded.value = false;
    signedInAgain.resolve();
    signedInAgain = null;
  }
}

function signInAgain() {
  if (!signedInAgain) {
    let resolve;
    const promise = new Promise((done) => (resolve = done));
    signedInAgain = { promise, resolve };
    signInNeeded.value = true;
  }
  return signedInAgain.promise;
}

const RANKS = { member: 0, admin: 1, owner: 2 };

/** Return true if the person has `role` or a higher one on the account. */
export const hasRole = (role) => RANKS[session.value?.account.role ?? "member"] >= RANKS[role ?? "member"];

/** Return the sentence why the person can't do a change that needs `role`, or null if they can. */
export function whyNot(role = "member") {
  const account = session.value?.account;
  if (!account) return "Sign in first.";
  if (account.status === "suspended") return "The account is suspended and read-only. Ask the operator.";
  if (!hasRole(role)) return `Only ${role === "owner" ? "the owner" : "admins and the owner"} of the account can do this; your role is ${account.role}.`;
  return null;
}

/** Call the operation of a list page by page; returns the first page with the rows of all of them in `field`. */
async function callWhole(operation, options, field) {
  const read = (before) => call(operation, { ...options, query: { ...options.query, limit: 100, before } });
  const whole = await read(null);
  for (let cursor = whole.nextCursor; cursor; ) {
    const page = await read(cursor);
    whole[field].push(...page[field]);
    cursor = page.nextCursor;
  }
  return whole;
}

/**
 * Read `operation` and keep the reply: {data, error, loading, reload}. `whole` names the list whose pages are all read.
 *
 * Reads again when `options` change (compared as JSON), and every `pollMs` while the page is visible (false: never).
 * Old data stays while new data loads. `skip` reads nothing.
 */
export function useCall(operation, options = {}, { pollMs = false, skip = false, whole = null } = {}) {
  const [state, setState] = useState({ data: null, error: null, loading: !skip });
  const key = `${operation} ${JSON.stringify(options)} ${skip}`;
  const current = useRef(null);
  const reload = useCallback(async () => {
    if (skip) return null;
    current.current?.abort();
    const abort = new AbortController();
    current.current = abort;
    setState((old) => ({ ...old, loading: true }));
    try {
      const told = { ...options, signal: abort.signal };
      const data = await (whole ? callWhole(operation, told, whole) : call(operation, told));
      if (!abort.signal.aborted) setState({ data, error: null, loading: false });
      return data;
    } catch (error) {
      if (abort.signal.aborted) return null;
      if (!(error instanceof ApiError)) throw error;
      setState((old) => ({ data: old.data, error, loading: false }));
      return null;
    }
  }, [key]);
  useEffect(() => {
    reload();
    return () => current.current?.abort();
  }, [reload]);
  useInterval(reload, skip ? false : pollMs);
  return { ...state, reload };
}

/**
 * Read a list page by page: {rows, more, error, loading, reload, next}. `next` reads the next page, null at the end.
 *
 * `rowsOf` takes the rows out of a reply (default: `data`), the cursor is `nextCursor` and goes into `before`.
 */
export function usePages(operation, options = {}, { pollMs = false, limit = 50, rowsOf = (page) => page.data, cursorField = "before" } = {}) {
  const [state, setState] = useState({ rows: [], cursor: null, error: null, loading: true, first: null });
  const key = `${operation} ${JSON.stringify(options)}`;
  const current = useRef(0);
  const read = useCallback((before) => call(operation, { ...options, query: { limit, ...options.query, [cursorField]: before } }), [key]);
  const reload = useCallback(async ({ keep = false } = {}) => {
    const turn = (current.current += 1);
    setState((old) => ({ ...old, rows: keep ? old.rows : [], loading: true }));
    try {
      const page = await filled(read, null, rowsOf);
      if (turn !== current.current) return;
      setState({ rows: rowsOf(page), cursor: page.nextCursor ?? null, error: null, loading: false, first: page });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (turn === current.current) setState((old) => ({ ...old, error, loading: false }));
    }
  }, [read]);
  const next = useCallback(async () => {
    const turn = current.current;
    setState((old) => ({ ...old, loading: true }));
    try {
      const page = await filled(read, state.cursor, rowsOf);
      if (turn !== current.current) return;
      setState((old) => ({ ...old, rows: [...old.rows, ...rowsOf(page)], cursor: page.nextCursor ?? null, error: null, loading: false }));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (turn === current.current) setState((old) => ({ ...old, error, loading: false }));
    }
  }, [read, state.cursor]);
  useEffect(() => {
    reload();
    return () => { current.current += 1; };
  }, [reload]);
  const again = useCallback(() => reload({ keep: true }), [reload]); // rows that stay keep the focus
  const poll = useCallback(() => (state.rows.length <= limit ? again() : null), [again, state.rows.length]);
  useInterval(poll, pollMs);
  const setRows = useCallback((change) => setState((old) => ({ ...old, rows: change(old.rows) })), []);
  return { ...state, reload: again, next: state.cursor ? next : null, setRows };
}

/** Call `action` every `ms` while the page is visible, and when it becomes visible again; false: never. */
export function useInterval(action, ms) {
  const latest = useRef(action);
  latest.current = action;
  useEffect(() => {
    if (!ms) return undefined;
    const run = () => document.visibilityState === "visible" && latest.current();
    const timer = setInterval(run, ms === true ? POLL_MS : ms);
    document.addEventListener("visibilitychange", run);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", run);
    };
  }, [ms]);
}

const MAX_EMPTY = 10;

/** Read pages from `cursor` on until one has rows: a list that is filtered may have empty pages before them. */
async function filled(read, cursor, rowsOf) {
  let page = await read(cursor);
  for (let empty = 0; rowsOf(page).length === 0 && page.nextCursor && empty < MAX_EMPTY; empty += 1) page = await read(page.nextCursor);
  return page;
}

/**
 * Run a change: [run, {busy, error, clear}]. `run` returns the reply, or undefined when the API refused, and then
 * `error` holds the ApiError.
 */
export function useAction(action) {
  const [state, setState] = useState({ busy: false, error: null });
  const latest = useRef(action);
  latest.current = action;
  const alive = useRef(true);
  useEffect(() => {
    alive.current = true;
    return () => { alive.current = false; };
  }, []);
  const run = useCallback(async (...values) => {
    setState({ busy: true, error: null });
    try {
      const reply = await latest.current(...values);
      if (alive.current) setState({ busy: false, error: null });
      return reply === undefined ? null : reply;
    } catch (error) {
      if (!(error instanceof ApiError)) {
        if (alive.current) setState({ busy: false, error: null });
        throw error;
      }
      if (alive.current) setState({ busy: false, error });
      return undefined;
    }
  }, []);
  const clear = useCallback(() => setState({ busy: false, error: null }), []);
  return [run, { ...state, clear }];
}

/** Save the reply of an operation as a file, named by the service or `fallback`. */
export async function download(operation, options, fallback) {
  const answer = await call(operation, { ...options, raw: true, accept: options.accept ?? "*/*", timeoutMs: 600_000 });
  saveFile(await answer.blob(), fileName(answer.headers.get("Content-Disposition") ?? "") ?? fallback);
}

/** Return the name that a Content-Disposition gives, the exact one (RFC 6266 4.3) before the plain one; null without. */
function fileName(disposition) {
  const exact = /filename\*=UTF-8''([^;]+)/i.exec(disposition);
  return exact ? decodeURIComponent(exact[1]) : (/filename="?([^";]+)"?/.exec(disposition)?.[1] ?? null);
}

/** Save a Blob as a file of the person. */
export function saveFile(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = undirected(name);
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
