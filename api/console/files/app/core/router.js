// The address of the page, and moving between pages without loading a document.
import { BASE, CONSOLE, pageCalls, whyNot } from "./api.js";
import { computed, signal, useEffect } from "./view.js";

const HANDED = ["token", "ticket", "error"];

/** What a link in a mail or a redirect handed over in the fragment (#token=…): taken out of the address at once. */
export const handed = signal(takeHanded());

function takeHanded() {
  const parts = new URLSearchParams(window.location.hash.slice(1));
  if (!HANDED.some((name) => parts.has(name))) return new URLSearchParams();
  history.replaceState(null, "", window.location.pathname + window.location.search);
  return parts;
}

/** The current address: {path (below the console, "/messages"), query (URLSearchParams), hash}. */
export const location = signal(read());
/** The path alone: changes of the query do not change it. */
export const path = computed(() => location.value.path);

function read() {
  const { pathname, search, hash } = window.location;
  const below = pathname.startsWith(CONSOLE) ? pathname.slice(CONSOLE.length) : pathname.slice(BASE.length - 1); // links in mails lead to /verify-email
  return { path: below.replace(/\/+$/, "") || "/", query: new URLSearchParams(search), hash: hash.slice(1) };
}

/** Return the address of a page for a link: href("/messages", {status: "bounced"}). */
export function href(to, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") search.append(name, String(one));
    }
  }
  const text = search.toString();
  return `${CONSOLE}${to === "/" ? "/" : to}${text ? `?${text}` : ""}`;
}

/** Show the page at `to`; `replace` leaves no entry in the browser's history. */
export function go(to, { query = {}, replace = false } = {}) {
  const target = href(to, query);
  const before = path.peek();
  history[replace ? "replaceState" : "pushState"](null, "", target);
  location.value = read();
  if (location.value.path !== before) arrived();
}

/** Change parts of the query of the current page; null takes a part out. Leaves no entry in the history. */
export function setQuery(changes, { push = false } = {}) {
  const query = new URLSearchParams(location.peek().query);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "" && one !== false) query.append(name, String(one));
    }
  }
  const text = query.toString();
  history[push ? "pushState" : "replaceState"](null, "", `${window.location.pathname}${text ? `?${text}` : ""}`);
  location.value = read();
}

/** Call `open` where an address asks for a new thing (`?new=1`) and the person's role may make it; the address loses that part. */
export function useAskedForNew(role, open) {
  const asked = location.value.query.has("new");
  useEffect(() => {
    if (!asked) return;
    setQuery({ new: null });
    if (!whyNot(role)) open();
  }, [asked]);
}

/** Called with a text while a page has unsaved changes; returns a function that ends the guard. */
let guard = null;
export function guardLeaving(text) {
  guard = text;
  return () => { if (guard === text) guard = null; };
}

/** Load a document of the console in place of this page and all it shows; `ask` first if there are unsaved changes. */
export function replacePage(to, { ask = false } = {}) {
  if (!ask) guard = null;
  window.location.replace(href(to));
}

function mayLeave() {
  return guard === null || window.confirm(guard);
}

function arrived() {
  guard = null;
  handed.value = new URLSearchParams();
  pageCalls.value = [];
  window.scrollTo(0, 0);
  queueMicrotask(() => document.getElementById("main")?.focus({ preventScroll: true }));
}

/** Follow links of the console, back and forward, without loading a document. */
export function startRouter() {
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("a[href]");
    const other = event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
    if (!link || other || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href);
    if (url.origin !== window.location.origin || !(url.pathname === CONSOLE || url.pathname.startsWith(`${CONSOLE}/`))) return;
    event.preventDefault();
    if (url.href === window.location.href || !mayLeave()) return;
    const before = path.peek();
    history.pushState(null, "", url.href);
    location.value = read();
    if (location.value.path !== before) arrived();
  });
  addEventListener("popstate", () => {
    const before = path.peek();
    location.value = read();
    if (location.value.path !== before) arrived();
  });
  addEventListener("hashchange", () => {
    const parts = takeHanded();
    if (parts.size) handed.value = parts;
  });
  addEventListener("beforeunload", (event) => { if (guard !== null) event.preventDefault(); });
}

/** Return the route whose pattern ("/messages/:id") matches, with its parameters, or null. */
export function matched(routes, current) {
  const parts = current.split("/");
  for (const route of routes) {
    const pattern = route.path.split("/");
    if (pattern.length !== parts.length) continue;
    const parameters = {};
    const fits = pattern.every((piece, at) => {
      if (!piece.startsWith(":")) return piece === parts[at];
      parameters[piece.slice(1)] = safeDecode(parts[at]);
      return parts[at] !== "";
    });
    if (fits) return { route, parameters };
  }
  return null;
}

function safeDecode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
