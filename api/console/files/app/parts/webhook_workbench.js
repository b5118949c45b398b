// The workbench of one webhook endpoint: its settings, its deliveries, and the exact requests and answers.
import { call, useAction, useCall, usePages } from "../core/api.js";
import { go, location, setQuery } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Button, Card, Chip, CopyLine, Dialog, Empty, ErrorNote, Facts, fieldError, Figures, Form, Menu, Notice, PageHead, SelectField, Skeleton, TextField, Time, toast } from "../core/ui.js";
import { classes, html, instant, localTime, number, serviceNow, shortUrl, undirected, useRef, useState } from "../core/view.js";
import { EVENT_TYPES } from "./webhook_event_types.js";
import { DeliveryDetail } from "./webhook_exchange.js";
import { DeliveryChip, endpointFigures, FailingNotice } from "./webhook_health.js";
import { signsStandard } from "./webhook_options.js";
import { DeleteEndpoint, EndpointForm, RotateSecret, TestButton } from "./webhook_form.js";

const loadChecker = () => import("./signature_checker.js");

const STATES = [["", "Any state"], ["failed", "Failed"], ["pending", "Pending"], ["delivered", "Delivered"]];
const WINDOWS = [["", "Any time"], ["1", "Last hour"], ["24", "Last 24 hours"], ["168", "Last 7 days"], ["own", "From … until"]];
const HOUR_MS = 3_600_000;
const MAX_REPLAYS = 1000;

/** The page of one endpoint. */
export function Webhook({ id }) {
  const { data: row, error, reload } = useCall("GET /v1/webhooks/{id}", { path: { id } }, { pollMs: true });
  if (!row) return html`<${PageHead} title="Webhook endpoint" back=${["/webhooks", "Webhooks"]} />${error ? html`<${ErrorNote} error=${error} retry=${reload} />` : html`<${Skeleton} />`}`;
  return html`<${Workbench} row=${row} reload=${reload} />`;
}

function Workbench({ row, reload }) {
  const [open, setOpen] = useState(null);
  const close = (changed) => {
    setOpen(null);
    if (changed) reload();
  };
  const filters = filtersOf(location.value.query);
  const deliveries = usePages("GET /v1/webhooks/{id}/deliveries", { path: { id: row.id }, query: { state: filters.state, type: filters.type, from: filters.from, until: filters.until } }, { pollMs: true, limit: 25 });
  const [preselects, setPreselects] = useState(true);
  const failed = useRef(null); // the newest at the first look: a later one doesn't replace what is being read
  failed.current ??= deliveries.rows.find((one) => one.state === "failed" || (one.state === "pending" && one.attempt > 0))?.id ?? null;
  const chosen = location.value.query.get("delivery") ?? (preselects ? failed.current : null);
  const closeDelivery = () => {
    setPreselects(false);
    setQuery({ delivery: null });
  };
  const items = [
    { text: "Rotate the secret", icon: "rotate-ccw", onSelect: () => setOpen("rotate") },
    { text: "Check a signature", icon: "shield-check", onSelect: () => setOpen("check") },
    { text: "Delete endpoint", icon: "trash-2", danger: true, onSelect: () => setOpen("delete") },
  ];
  const tested = (reply) => {
    setQuery({ delivery: reply.id });
    deliveries.reload({ keep: true });
  };
  const failing = row.health.state === "failing"; // then the notice below has the button of the test
  const actions = html`${!failing && html`<${TestButton} row=${row} onDone=${tested} />`}<${Button} icon="pencil" role="member" onClick=${() => setOpen("edit")}>Edit<//><${Menu} label="More actions" items=${items} />`;
  return html`<${PageHead} title=${shortUrl(row.url, 60)} lead=${row.description || undefined} back=${["/webhooks", "Webhooks"]} chip=${html`<${Chip}>${row.health.state}<//>`} actions=${actions} />
    <div class="stack">
      <${FailingNotice} health=${row.health}><${TestButton} row=${row} onDone=${tested} /><${Button} icon="rotate-ccw" role="member" onClick=${() => setOpen("replay failed")}>Replay failed<//><//>
      ${row.status === "disabled" && html`<${Notice} tone="warn" title="The endpoint is disabled.">Someone on your team or an API key disabled it. It gets no new events. Edit it to activate it again, then fetch what it missed from <code>GET /v1/events</code>.<//>`}
      <${Figures} items=${endpointFigures(row)} />
      ${row.warnings.map((one) => html`<p class="warn small" key=${one.field}>${one.message}</p>`)}
      <section class="stack-tight" aria-label="Deliveries"><div class="row-wide"><h2>Deliveries</h2><${Button} icon="rotate-ccw" role="member" onClick=${() => setOpen("replay")}>Replay several<//></div>
        <${Filters} filters=${filters} />
        <div class="workbench"><${DeliveryList} state=${deliveries} chosen=${chosen} filtered=${filters.any} row=${row} onTested=${tested} />
          ${chosen ? html`<${DeliveryDetail} key=${chosen} endpoint=${row} id=${chosen} onReplayed=${() => deliveries.reload({ keep: true })} onClose=${closeDelivery} />` : html`<div class="card workbench-empty"><${Empty} icon="route" title="Choose a delivery">Its exact requests and responses appear here.<//></div>`}</div>
      </section>
      <${Card} title="Endpoint"><${Facts} items=${factsOf(row)} /><//>
    </div>
    ${open === "edit" && html`<${EndpointForm} row=${row} onClose=${close} />`}
    ${open === "rotate" && html`<${RotateSecret} row=${row} onClose=${() => close(false)} />`}
    ${open === "check" && html`<${Lazy} load=${loadChecker} name="SignatureChecker" onClose=${() => close(false)} />`}
    ${open?.startsWith("replay") && html`<${ReplayWindow} row=${row} filters=${open === "replay" ? filters : NO_FILTERS} onClose=${() => { close(false); deliveries.reload({ keep: true }); }} />`}
    ${open === "delete" && html`<${DeleteEndpoint} row=${row} onClose=${(done) => (done ? go("/webhooks") : close(false))} />`}`;
}

/** Return the facts of an endpoint that its figures don't show. */
function factsOf(row) {
  return [
    ["URL", html`<${CopyLine} text=${row.url} />`],
    row.domains.length > 0 && ["Domains", html`<span class="wrap">${row.domains.join(", ")}</span>`],
    row.streams.length > 0 && ["Streams", html`<span class="wrap">${row.streams.join(", ")}</span>`],
    row.headerNames.length > 0 && ["Headers", html`<span class="wrap mono">${row.headerNames.join(", ")}</span>`],
    row.includeMetadata && ["Body", "With tags and metadata"],
    ["Signatures", signsStandard(row) ? "Service-Signature and Standard Webhooks" : "Service-Signature"],
    row.honorRetryAfter && ["Retries", "Honor Retry-After"],
    ["Events", html`<span class="wrap">${row.eventTypes.length ? row.eventTypes.join(", ") : "all"}</span>`],
    ["Id", html`<${CopyLine} text=${row.id} />`],
    ["Created", html`<${Time} at=${row.createdAt} />`],
  ];
}

const NO_FILTERS = {};

/** Return the filters that the address names; `from` and `until` are times of the API. */
function filtersOf(query) {
  const hours = query.get("window") ?? "";
  // To the minute, so that the same filters give the same call until a minute has passed.
  const from = hours === "own" ? instant(query.get("from")) : hours ? new Date(Math.floor((serviceNow() - Number(hours) * HOUR_MS) / 60_000) * 60_000).toISOString() : null;
  const until = hours === "own" ? instant(query.get("until")) : null;
  const [state, type] = [query.get("state"), query.get("type")];
  return { state, type, hours, from, until, any: Boolean(state || type || from || until) };
}

function Filters({ filters }) {
  const query = location.value.query;
  const types = [["", "Any event"], ["webhook.test", "webhook.test"], ...EVENT_TYPES.map((type) => [type, type])];
  const set = (name) => (value) => setQuery({ [name]: value || null });
  return html`<div class="toolbar">
    <${SelectField} label="State" hideLabel value=${filters.state ?? ""} onValue=${set("state")} options=${STATES} />
    <${SelectField} label="Event type" hideLabel value=${filters.type ?? ""} onValue=${set("type")} options=${types} />
    <${SelectField} label="Time" hideLabel value=${filters.hours} onValue=${set("window")} options=${WINDOWS} />
    ${filters.hours === "own" && html`<${TextField} label="From" hideLabel type="datetime-local" value=${query.get("from")} onValue=${set("from")} /><${TextField} label="Until" hideLabel type="datetime-local" value=${query.get("until")} onValue=${set("until")} />`}
  </div>`;
}

function DeliveryList({ state, chosen, filtered, row, onTested }) {
  const { rows, loading, error, next, reload } = state;
  if (error && rows.length === 0) return html`<div class="card card-body"><${ErrorNote} error=${error} retry=${reload} /></div>`;
  if (rows.length === 0 && loading) return html`<div class="card card-body"><${Skeleton} /></div>`;
  if (rows.length === 0 && !next) {
    return html`<div class="card"><${Empty} icon="webhook" title=${filtered ? "No delivery matches" : "No deliveries yet"} action=${!filtered && html`<${TestButton} row=${row} onDone=${onTested} />`}>${filtered ? "Choose another state, event or time." : "Send a test event to see the exact request and your server's response."}<//></div>`;
  }
  return html`<div class="card">
    <${ErrorNote} error=${error} retry=${reload} />
    <ul aria-label="Deliveries">${rows.map((one) => html`<li key=${one.id}><button type="button" class="delivery-pick" aria-current=${one.id === chosen ? "true" : undefined} onClick=${() => setQuery({ delivery: one.id })}>
      <span class="row-wide"><span class="strong">${one.type ?? "event no longer stored"}</span><${DeliveryChip} delivery=${one} /></span>
      <span class="row-wide soft small"><${Time} at=${one.createdAt} /><span class=${classes("numeric", one.state === "failed" && "bad")}>${outcome(one)}</span></span>
      ${one.recipient && html`<span class="cut small" title=${`${one.recipient}: ${one.subject}`}>${one.recipient}<span class="soft"> · ${undirected(one.subject) || "(no subject)"}</span></span>`}</button></li>`)}</ul>
    <div class="table-foot"><span>${number(rows.length)} shown</span>${next && html`<${Button} busy=${loading} onClick=${next}>Show more<//>`}</div>
  </div>`;
}

function outcome(one) {
  const attempts = one.attempt > 1 ? `attempt ${one.attempt}, ` : "";
  if (one.attempt === 0) return "not tried yet";
  return one.statusCode !== null ? `${attempts}${one.statusCode} in ${one.milliseconds ?? 0} ms` : `${attempts}no response`;
}

/** The dialog that queues the deliveries of a window again, call by call. */
function ReplayWindow({ row, filters, onClose }) {
  const [state, setState] = useState(filters.state === "delivered" ? "delivered" : "failed");
  const [type, setType] = useState(filters.type ?? "");
  const [from, setFrom] = useState(filters.from ? localTime(filters.from) : "");
  const [until, setUntil] = useState(filters.until ? localTime(filters.until) : "");
  const [done, setDone] = useState(null); // {queued, nextCursor}
  const [replay, { busy, error }] = useAction((before) => call("POST /v1/webhooks/{id}/replay", { path: { id: row.id }, body: bodyOf({ state, type, from, until, before }), timeoutMs: 60_000 }));
  const submit = async () => {
    const reply = await replay(done?.nextCursor);
    if (reply === undefined) return;
    const queued = (done?.queued ?? 0) + reply.queued;
    setDone({ queued, nextCursor: reply.nextCursor });
    if (!reply.nextCursor) toast(`${number(queued)} queued again`);
  };
  const finished = done !== null && done.nextCursor === null;
  const foot = html`<${Button} onClick=${onClose}>${done ? "Close" : "Cancel"}<//>${!finished && html`<${Button} kind="primary" role="member" busy=${busy} onClick=${submit}>${done ? "Queue the next ones" : "Replay deliveries"}<//>`}`;
  return html`<${Dialog} title="Replay several deliveries" onClose=${onClose} foot=${foot}>
    <p>Each is posted again to <span class="wrap mono">${row.url}</span> with the same delivery id and new retries. A receiver that compares <code>Service-Delivery-Id</code> processes each once. Pending deliveries are left as they are.</p>
    ${done === null ? html`<${Form} onSubmit=${submit}>
      <${SelectField} label="State" value=${state} onValue=${setState} options=${[["failed", "All that failed"], ["delivered", "Those that were delivered"]]} />
      <${SelectField} label="Event type" value=${type} onValue=${setType} options=${[["", "Any event"], ["webhook.test", "webhook.test"], ...EVENT_TYPES.map((one) => [one, one])]} />
      <${TextField} label="Events from" type="datetime-local" step="1" value=${from} onValue=${setFrom} error=${fieldError(error, "from")} hint="In your time zone. Leave blank to start 30 days ago, when the oldest stored attempts were made." />
      <${TextField} label="Events until" type="datetime-local" step="1" value=${until} onValue=${setUntil} error=${fieldError(error, "until")} hint="Leave blank to end now." />
    <//>` : html`<${Notice} tone="good">${number(done.queued)} queued again. ${done.nextCursor ? `One call queues at most ${number(MAX_REPLAYS)}. Older ones may be left.` : "Nothing else in this period is left."}<//>`}
    <${ErrorNote} error=${error} fields=${["from", "until"]} />
  <//>`;
}

function bodyOf({ state, type, from, until, before }) {
  return { state, ...(type && { type }), ...(from && { from: instant(from) }), ...(until && { until: instant(until) }), ...(before && { before }) };
}
