// The command palette: pages, actions, any pasted id or address, and the documentation. A combobox (ARIA) in a dialog.
import { BASE, session, whyNot } from "../core/api.js";
import { go } from "../core/router.js";
import { Icon, useModal } from "../core/ui.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "../core/view.js";
import { placesOf, score } from "./places.js";

const RECENT = "waybill.recent";
const MAX_RECENT = 5;
const MAX_SHOWN = 12;
const MAX_DOCS = 5;

const ACTIONS = [
  ["Send a message", "/messages/new", "send"],
  ["New template", "/templates/new", "plus"],
  ["New layout", "/layouts/new", "plus"],
  ["New broadcast", "/broadcasts/new", "plus"],
  ["Import contacts", "/contacts/import", "upload"],
  ["Create an API key", "/api-keys?new=1", "key", "admin"],
  ["Add a domain", "/domains?new=1", "globe"],
  ["Add a webhook", "/webhooks?new=1", "webhook"],
  ["SMTP settings", "/smtp", "plug"],
  ["Claim an inbound address", "/receiving/addresses?new=1", "at-sign"],
  ["Check addresses", "/codes/checks", "badge-check"],
  ["Waiting times", "/deliverability/waits", "clock"],
  ["DMARC sources", "/deliverability/dmarc", "shield-check"],
  ["How providers treat mail now", "/receivers", "gauge"],
  ["Invite a person", "/team?new=1", "user-plus", "admin"],
  ["Your profile", "/profile", "user-round"],
  ["Your sessions", "/profile/sessions", "monitor"],
  ["All components", "/components", "layers"],
];

/** The palette; `groups` are those of the navigation. */
export function Palette({ groups, onClose }) {
  const dialog = useRef(null);
  const list = useId();
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  useModal(dialog);
  const [search, setSearch] = useState(null);
  const wanted = typed.trim() !== "";
  useEffect(() => {
    if (wanted && !search) documentation().then((made) => setSearch(() => made));
  }, [wanted]);
  const entries = useMemo(() => [...found(groups, typed), ...guides(search, typed)], [groups, typed, search]);
  useEffect(() => setAt(0), [typed]);
  const open = (entry) => {
    if (!entry) return;
    if (entry.docs) {
      onClose();
      window.open(entry.path, "_blank", "noopener");
      return;
    }
    remember(entry);
    onClose();
    const [path, search = ""] = entry.path.split("?");
    go(path, { query: Object.fromEntries(new URLSearchParams(search)) });
  };
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && entries.length) {
      event.preventDefault();
      const next = (at + step + entries.length) % entries.length;
      setAt(next);
      dialog.current.querySelector(`#${list}-${next}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(entries[at]);
    }
  };
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${dialog} class="palette" aria-label="Search and commands" onCancel=${cancel} onMouseDown=${(event) => { if (event.target === dialog.current) onClose(); }}>
    <input class="input" role="combobox" aria-label="Page, action, id or address" aria-expanded="true" aria-controls=${list} aria-autocomplete="list" aria-activedescendant=${entries.length ? `${list}-${at}` : undefined} placeholder="Page, action, id or address" autocomplete="off" spellcheck=${false} autofocus value=${typed} onInput=${(event) => setTyped(event.currentTarget.value)} onKeyDown=${keys} />
    <ul id=${list} role="listbox" aria-label="Results">
      ${entries.map((entry, place) => html`<li id=${`${list}-${place}`} key=${entry.path + entry.text} role="option" aria-selected=${place === at ? "true" : "false"} onMouseMove=${() => setAt(place)} onClick=${() => open(entry)}><${Icon} name=${entry.icon} /><span class="cut">${entry.text}</span><span class="soft small">${entry.kind}</span></li>`)}
    </ul>
    ${entries.length === 0 && html`<p class="card-body soft" role="status">Nothing found. Paste an id (msg_…), an address, or type the name of a page or a word of the documentation.</p>`}
  </dialog>`;
}

function found(groups, typed) {
  const pages = groups.flatMap(([, routes]) => routes).map((route) => ({ text: route.title, path: route.path, icon: route.icon, kind: "Page" }));
  const actions = ACTIONS.filter(([, , , role]) => !role || !whyNot(role)).map(([text, path, icon]) => ({ text, path, icon, kind: "Action" }));
  if (!typed.trim()) return [...recent(), ...pages].slice(0, MAX_SHOWN + pages.length);
  const named = [...pages, ...actions].map((entry) => ({ entry, fit: score(entry.text, typed) })).filter(({ fit }) => fit > 0);
  named.sort((one, other) => other.fit - one.fit);
  const places = placesOf(typed).map(([path, text]) => ({ text, path, icon: "search", kind: "Go to" }));
  const exact = /^[a-z]{3,4}_|@/.test(typed.trim());
  const all = exact ? [...places, ...named.map(({ entry }) => entry)] : [...named.map(({ entry }) => entry), ...places];
  return all.slice(0, MAX_SHOWN);
}

let loading;
/** Return the search of the documentation, which loads once with the first word typed; null if it can't be loaded. */
function documentation() {
  loading ??= Promise.all([import(`${BASE}docs-files/search.js`), fetch(`${BASE}docs/search.json`).then((reply) => reply.json())])
    .then(([{ searcher }, index]) => searcher(index))
    .catch(() => (loading = null));
  return loading;
}

function guides(search, typed) {
  const isId = /^[a-z]{3,4}_|@/.test(typed.trim());
  if (!search || !typed.trim() || isId) return [];
  return search(typed, MAX_DOCS).map(({ address, title, place }) => ({ text: title, path: address, icon: "book-open", kind: `${place} · Docs`, docs: true }));
}

/** Recent places are kept for each account, by text and path only. */
const recentKey = () => `${RECENT}.${session.value.account.id}`;
function recent() {
  try {
    const kept = JSON.parse(localStorage.getItem(recentKey()) ?? "[]");
    return kept.filter((one) => typeof one.path === "string" && typeof one.text === "string").map((one) => ({ ...one, icon: "clock", kind: "Recent" }));
  } catch {
    return [];
  }
}
function remember({ text, path }) {
  const kept = [{ text, path }, ...recent().map((one) => ({ text: one.text, path: one.path }))].filter((one, place, all) => all.findIndex((other) => other.path === one.path) === place);
  localStorage.setItem(recentKey(), JSON.stringify(kept.slice(0, MAX_RECENT)));
}
