// The inbox: received mail with filters, and the mail that is open beside the list on wide screens.
import { call, useAction, useCall, usePages } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Button, Chip, Confirm, Empty, ErrorNote, Filters, PageHead, SearchField, Segments, SelectField, TextField, toast } from "../core/ui.js";
import { html, number, plural, startOfDay, useEffect, useState } from "../core/view.js";
import { useLive } from "../parts/live.js";
import { ReceivedList } from "../parts/received_list.js";

const loadViews = () => import("../parts/saved_views.js");

const PAGE = 25;
const loadDetail = () => import("../parts/received_detail.js");
const WIDE = matchMedia("(min-width: 1100px)");
const READ = [["", "All"], ["false", "Unread"]];
const SPAM = [["", "Without spam"], ["true", "Spam"], ["any", "With spam"]];
const ROUTED = [["", "In the mailbox"], ["webhook", "Routed only"], ["any", "All"]];
const FILTERS = ["search", "body", "address", "sender", "read", "spam", "routed", "from", "until"];

/** Return the filters of the address as those of the operation: by default, no spam. */
function filtersOf(query) {
  const given = Object.fromEntries(FILTERS.map((name) => [name, query.get(name)]));
  return { ...given, spam: given.spam === "any" ? null : given.spam ?? "false", from: startOfDay(given.from), until: startOfDay(given.until, 1) };
}

export function Inbox() {
  const { query } = location.value;
  const filters = filtersOf(query);
  const state = usePages("GET /v1/inbound/messages", { query: filters }, { pollMs: true, limit: PAGE, rowsOf });
  const unread = useCall("GET /v1/inbound/messages/count", { query: { read: false, spam: false, address: filters.address } }, { pollMs: true });
  const addresses = useCall("GET /v1/inbound/addresses", { query: { limit: 100 } });
  const [chosen, setChosen] = useState(new Set());
  const wide = useWide();
  const open = wide ? query.get("open") : null;
  const changed = () => {
    state.reload();
    unread.reload();
  };
  useLive(["inbound."], () => (state.rows.length > PAGE ? unread.reload() : changed()));
  const follow = (id, event) => {
    if (!wide || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    setQuery({ open: id }, { push: true });
  };
  const read = (id) => {
    state.setRows((rows) => rows.map((row) => (row.id === id ? { ...row, read: true } : row)));
    unread.reload();
  };
  const count = unread.data?.count;
  return html`<${PageHead} title="Inbox" lead="Email received at your claimed addresses." chip=${count > 0 && html`<${Chip} tone="accent">${`${number(count)} unread`}<//>`} actions=${html`<${Button} icon="at-sign" to="/receiving">Addresses and routes<//>`} />
    <${InboxFilters} query=${query} addresses=${addresses.data?.data ?? []} />
    <div class="inbox"><div class="inbox-list">
      <${ReceivedList} head=${html`<${Bulk} rows=${state.rows} chosen=${chosen} onChosen=${setChosen} onDone=${changed} />`} state=${state} open=${open} onOpen=${follow} chosen=${chosen} onChosen=${setChosen} empty=${html`<${NoMail} query=${query} addresses=${addresses.data?.data} />`} /></div>
      ${wide && html`<div class="inbox-detail">${open
        ? html`<${Lazy} load=${loadDetail} name="ReceivedDetail" key=${open} id=${open} onRead=${read} onChanged=${changed} onGone=${() => { setQuery({ open: null }); changed(); }} />`
        : state.rows.length > 0 && html`<div class="card inbox-none"><${Empty} icon="mail" title="No message selected">Choose a message from the list. The keys <kbd>j</kbd> and <kbd>k</kbd> move through the list, <kbd>Enter</kbd> opens, <kbd>x</kbd> selects.<//></div>`}</div>`}
    </div>`;
}

/** Return the rows of a page; the last page has a cursor too, which would show that more follow. */
function rowsOf(page) {
  if (!page.hasMore) page.nextCursor = null;
  return page.data;
}

function useWide() {
  const [wide, setWide] = useState(WIDE.matches);
  useEffect(() => {
    const change = () => setWide(WIDE.matches);
    WIDE.addEventListener("change", change);
    return () => WIDE.removeEventListener("change", change);
  }, []);
  return wide;
}

function InboxFilters({ query, addresses }) {
  const [more, setMore] = useState(["body", "sender", "routed", "from", "until"].some((name) => query.get(name)));
  const used = FILTERS.some((name) => query.get(name));
  const field = (name) => ({ value: query.get(name) ?? "", onValue: (value) => setQuery({ [name]: value }) });
  return html`<div class="stack-tight inbox-filters"><div class="toolbar">
      <${SearchField} label="Search subject, sender, recipient" ...${field("search")} />
      <${Segments} label="Read" options=${READ} ...${field("read")} />
      <${Filters} used=${["spam", "address", "body", "sender", "routed", "from", "until"].some((name) => query.get(name))}><div class="toolbar-select"><${SelectField} label="Spam" hideLabel options=${SPAM} ...${field("spam")} /></div>
      <div class="toolbar-select"><${SelectField} label="Address" hideLabel options=${[["", "All addresses"], ...addresses.map((one) => [one.address, one.label ? `${one.address} (${one.label})` : one.address])]} ...${field("address")} /></div>
      <${Button} kind="quiet" icon="list-filter" aria-expanded=${more ? "true" : "false"} onClick=${() => setMore(!more)}>More filters<//>
      <${Lazy} load=${loadViews} name="SavedViews" page="inbox" /><//>
      ${used && html`<${Button} kind="quiet" icon="x" onClick=${() => setQuery(Object.fromEntries(FILTERS.map((name) => [name, null])))}>Clear<//>`}</div>
    ${more && html`<div class="filter-grid">
      <div class="field"><span class="label">In the text</span><${SearchField} label="Search message text" ...${field("body")} /></div>
      <${SettledField} label="Sender's address" type="email" placeholder="ann@example.com" ...${field("sender")} />
      <${SelectField} label="Route" options=${ROUTED} ...${field("routed")} />
      <${TextField} label="From day" type="date" ...${field("from")} /><${TextField} label="To day" type="date" ...${field("until")} /></div>`}</div>`;
}

/** A text field that reports its value when the person leaves it or presses Enter. */
function SettledField({ value, onValue, ...rest }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const settle = () => { if (text.trim() !== value) onValue(text.trim()); };
  return html`<${TextField} value=${text} onValue=${setText} onBlur=${settle} onKeyDown=${(event) => event.key === "Enter" && settle()} ...${rest} />`;
}

function Bulk({ rows, chosen, onChosen, onDone }) {
  const [deleting, setDeleting] = useState(false);
  const ids = [...chosen];
  const change = async (action) => {
    for (let at = 0; at < ids.length; at += 100) await call("POST /v1/inbound/messages/bulk", { body: { ids: ids.slice(at, at + 100), action } });
  };
  const [run, { busy, error }] = useAction(change);
  const press = async (action, text) => {
    if ((await run(action)) === undefined) return;
    toast(`${plural(ids.length, "message")} ${text}`);
    onChosen(new Set());
    onDone();
  };
  const all = rows.every((row) => chosen.has(row.id));
  return html`<div class="row bulk"><label class="check"><input type="checkbox" checked=${all} onChange=${() => onChosen(all ? new Set() : new Set(rows.map((row) => row.id)))} /><span>${chosen.size ? `${number(chosen.size)} selected` : "Select all"}</span></label>
    ${chosen.size > 0 && html`<${Button} role="member" busy=${busy} onClick=${() => press("read", "marked read")}>Mark read<//><${Button} role="member" onClick=${() => press("unread", "marked unread")}>Mark unread<//><${Button} role="member" onClick=${() => press("spam", "marked as spam")}>Spam<//><${Button} role="member" onClick=${() => press("not_spam", "marked as not spam")}>Not spam<//><${Button} role="member" danger icon="trash-2" onClick=${() => setDeleting(true)}>Delete<//>`}
    <${ErrorNote} error=${error} />
    ${deleting && html`<${Confirm} title=${`Delete ${plural(ids.length, "message")}?`} confirm="Delete" action=${() => change("delete")} onClose=${(done) => { setDeleting(false); if (done) { toast(`${plural(ids.length, "message")} deleted`); onChosen(new Set()); onDone(); } }}>The messages and their attachments are deleted for everyone in the account.<//>`}</div>`;
}

function NoMail({ query, addresses }) {
  if (FILTERS.some((name) => query.get(name))) return html`<${Empty} icon="search" title="No message matches" action=${html`<${Button} onClick=${() => setQuery(Object.fromEntries(FILTERS.map((name) => [name, null])))}>Clear filters<//>`}>Spam and messages that a route only forwarded are hidden unless you filter for them.<//>`;
  const curl = `curl ${window.location.origin}/v1/inbound/addresses -H "Authorization: Bearer $KEY" \\\n  -H "Content-Type: application/json" -d '{"address": "support@example.com"}'`;
  return html`<${Empty} icon="inbox" title="No messages yet" curl=${curl} action=${html`<${Button} kind="primary" icon="at-sign" to="/receiving">${addresses?.length ? "Show addresses" : "Claim an address"}<//>`}>${addresses?.length ? "Email to your addresses appears here within a second." : "Claim an address at a verified domain, or use your managed receiving domain, which works immediately."}<//>`;
}
