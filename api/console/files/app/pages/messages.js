// Messages: the list with filters, live rows, export and sending again.
import { download, useAction, useCall } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Button, Chip, ErrorNote, Filters, Menu, PageHead, SelectField, Skeleton, toast } from "../core/ui.js";
import { classes, html, number, percent, plural, serviceNow, shortNumber, useCallback, useMemo, useRef, useState } from "../core/view.js";
import { liveMode } from "../parts/live.js";
import { apiQuery, chipsOf, FILTERS, filtersOf, RANGES } from "../parts/message_filters.js";
import { useMessageRows } from "../parts/message_rows.js";
import { MessageSearch } from "../parts/message_search.js";
import { VirtualRows } from "../parts/virtual_rows.js";

const TOP_PX = 160; // scrolled less, the list counts as at its top
const loadViews = () => import("../parts/saved_views.js");
const loadRange = () => import("../parts/custom_range.js");
const loadEmpty = () => import("../parts/no_messages.js");
const loadResend = () => import("../parts/resend_dialog.js");

/** The name of a recipient with the address, or the address alone. */
function recipient(to) {
  const [, name, address] = /^(.+?) <(.+)>$/.exec(to) ?? [];
  return name ? html`${name} <span class="soft">${address}</span>` : to;
}

const COLUMNS = [
  { key: "status", title: "Status", width: "104px", cell: (row) => html`<${Chip}>${row.status}<//>` },
  { key: "to", title: "Recipient", width: "minmax(7rem, 1.6fr)", cell: (row) => (row.more ? html`<span class="names"><span class="cut">${recipient(row.to)}</span><span class="soft">+${row.more}</span></span>` : recipient(row.to) || html`<span class="soft">Address not stored</span>`) },
  { key: "subject", title: "Subject", width: "minmax(7rem, 2fr)", cell: (row) => html`${row.subject || html`<em>No subject</em>`}${row.reason && html`<span class="soft small">${`  ${row.reason}`}</span>`}` },
  { key: "tags", title: "Tags", width: "minmax(3.5rem, 1fr)", cell: (row) => row.tags?.join(", ") ?? "" },
  { key: "at", title: "Accepted", width: "6.5rem", end: true, time: (row) => row.at },
];

export function Messages() {
  const { query } = location.value;
  const text = query.toString();
  const filters = useMemo(() => filtersOf(query), [text]);
  const wanted = useMemo(() => apiQuery(query), [text]);
  const [paused, setPaused] = useState(false);
  const [chosen, setChosen] = useState(new Set());
  const [resending, setResending] = useState(null);
  const list = useRef(null);
  const atTop = useCallback(() => !list.current || list.current.getBoundingClientRect().top > -TOP_PX, []);
  const state = useMessageRows({ query: wanted, filters, paused, atTop });
  const filtered = chipsOf(filters).length > 0 || Boolean(query.get("range"));
  const showNew = () => {
    state.showPending();
    if (!atTop()) list.current.scrollIntoView({ block: "start", behavior: "instant" });
  };
  const actions = html`<${Menu} label="Export these messages" kind="plain" ...${useExport(wanted)} /><${Button} kind="primary" icon="send" to="/messages/new" role="member">Send a message<//>`;
  return html`<${PageHead} title="Messages" actions=${actions} />
    <${Strip} wanted=${wanted} filters=${filters} />
    <div class="toolbar">
      <${MessageSearch} search=${filters.search ?? ""} />
      <${Filters} used=${filters.status || query.get("range")}><${SelectField} label="Status" hideLabel value=${filters.status ?? ""} onValue=${(value) => setQuery({ status: value })} options=${[["", "Any status"], ...FILTERS[0].values.map((one) => [one, one])]} />
      <${SelectField} label="Time" hideLabel value=${query.get("range") ?? ""} onValue=${(value) => setQuery({ range: value, from: null, until: null })} options=${RANGES} />
      <${Lazy} load=${loadViews} name="SavedViews" page="messages" /><//><span class="grow"></span><${LiveButton} paused=${paused} onPaused=${setPaused} state=${state} />
    </div>
    <${Chips} filters=${filters} custom=${query.get("range") === "custom"} query=${query} />
    ${chosen.size > 0 && html`<div class="toolbar selection-bar" role="region" aria-label="Selected messages"><span>${plural(chosen.size, "message")} selected</span><${Button} icon="rotate-ccw" role="member" onClick=${() => setResending([...chosen])}>Send again<//><${Button} kind="quiet" onClick=${() => setChosen(new Set())}>Clear selection<//></div>`}
    <div class="message-list" ref=${list}>
      <div class="new-rows" role="status">${(state.pending > 0 || state.overflow) && html`<${Button} kind="primary" icon="arrow-up" onClick=${showNew}>${state.overflow ? "Many new messages" : `${number(state.pending)} new`}<//>`}</div>
      <${Rows} state=${state} filtered=${filtered} selection=${{ chosen, onChange: setChosen }} />
    </div>
    ${resending && html`<${Lazy} load=${loadResend} name="ResendDialog" ids=${resending} onClose=${(done) => { setResending(null); if (done) setChosen(new Set()); }} />`}`;
}

function Rows({ state, filtered, selection }) {
  const { rows, loading, error, reload } = state;
  if (error && rows.length === 0) return html`<div class="card card-body"><${ErrorNote} error=${error} retry=${reload} /></div>`;
  if (rows.length === 0) return html`<div class="card">${loading ? html`<div class="card-body"><${Skeleton} lines=${8} /></div>` : html`<${Lazy} load=${loadEmpty} name=${filtered ? "NoMatch" : "NoMessages"} />`}</div>`;
  return html`<div class="card"><${VirtualRows} label="Messages" rows=${rows} columns=${COLUMNS} linkKey="to" rowTo=${(row) => `/messages/${row.id}`} more=${state.more} loading=${loading || Boolean(error)} onMore=${state.next} selection=${selection} />
    ${error && html`<div class="card-body"><${ErrorNote} error=${error} retry=${state.next} /></div>`}
    <div class="table-foot"><span>${number(rows.length)}${state.more ? " shown; older ones load as you scroll" : rows.length === 1 ? " message" : " messages"}</span>${state.more && html`<${Button} busy=${loading} onClick=${state.next}>Show more<//>`}</div></div>`;
}

function Chips({ filters, custom, query }) {
  const chips = chipsOf(filters);
  const remove = ({ name, value }) => setQuery({ [name]: Array.isArray(filters[name]) ? filters[name].filter((one) => one !== value) : null });
  if (!chips.length && !custom) return null;
  return html`<div class="toolbar">
    ${chips.map((one) => html`<${Chip} key=${one.name + one.value} tone="accent" onRemove=${() => remove(one)} removeLabel=${`Remove the filter ${one.text}`}><span>${one.text}</span><//>`)}
    ${custom && html`<${Lazy} load=${loadRange} name="CustomRange" query=${query} />`}
    ${chips.length > 1 && html`<${Button} kind="quiet" onClick=${() => setQuery(Object.fromEntries(FILTERS.map((one) => [one.name, null])))}>Clear filters<//>`}
  </div>`;
}

const MODES = {
  off: ["", "Live updates are off"],
  connecting: ["warn", "Connecting"],
  live: ["good", "Live"],
  polling: ["warn", "Every 5 s"],
  offline: ["bad", "Offline"],
};
const MODE_HINTS = { polling: "The account has reached its limit of live connections, so this page fetches new events every 5 seconds.", offline: "The service can't be reached. The page continues where it was as soon as it responds.", live: "New messages and status changes appear as they happen." };

function LiveButton({ paused, onPaused }) {
  const [tone, text] = MODES[liveMode.value];
  return html`<span class="row" title=${MODE_HINTS[liveMode.value]}><span class=${classes("live-dot", paused ? "" : tone)} aria-hidden="true"></span><span class="small soft" role="status">${paused ? "Paused" : text}</span>
    <${Button} icon=${paused ? "play" : "pause"} label=${paused ? "Resume live updates" : "Pause live updates"} onClick=${() => onPaused(!paused)} /></span>`;
}

/** Messages by status in the last 24 hours, as links to the filter. */
function Strip({ filters }) {
  const { data } = useCall("GET /v1/stats/messages", { query: { bucket: "hour", from: quarterBefore(24), domain: filters.domain } }, { pollMs: true });
  const totals = data?.totals;
  const part = (status, label, tone, note) => html`<button type="button" class=${classes("figure", filters.status === status && "chosen")} aria-pressed=${filters.status === status ? "true" : "false"} onClick=${() => setQuery({ status: filters.status === status ? null : status })}><span class="label">${label}</span><span class=${classes("value", totals?.[status] > 0 && tone)}>${totals ? shortNumber(totals[status]) : "–"}</span><span class="soft small">${note ?? "\u00a0"}</span></button>`;
  return html`<section class="figures message-strip" aria-label="Messages of the last 24 hours">
    <div class="figure"><div class="label">Last 24 hours</div><div class="value">${totals ? shortNumber(totals.total) : "–"}</div><div class="soft small">messages</div></div>
    ${part("delivered", "Delivered", "good", totals?.settled ? percent(totals.deliveryRate) : null)}
    ${part("sending", "Sending", "")}
    ${part("bounced", "Bounced", "bad", totals?.settled ? percent(totals.bounceRate) : null)}
    ${part("complained", "Complained", "bad", totals?.settled ? percent(totals.complaintRate, 2) : null)}
    ${part("failed", "Failed", "bad")}
  </section>`;
}

function quarterBefore(hours) {
  const quarter = 900_000;
  return new Date(Math.floor(serviceNow() / quarter) * quarter - hours * 3_600_000).toISOString();
}

/** Return the text and the items of the menu that saves all messages of the list. */
function useExport(wanted) {
  const [save, { busy }] = useAction(async (format) => {
    try {
      await download("GET /v1/messages/export", { query: { ...wanted, format } }, `messages.${format}`);
    } catch (error) {
      if (!error.type) throw error;
      toast(`The export failed: ${error.message}`, { tone: "bad" });
    }
  });
  const items = [{ text: "CSV, for spreadsheets", icon: "download", onSelect: () => save("csv") }, { text: "NDJSON, one message per line", icon: "download", onSelect: () => save("ndjson") }];
  return { text: busy ? "Exporting" : "Export", items };
}
