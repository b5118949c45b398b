// Every component of the console in its states: for people who work on it.
import { ApiError } from "../core/api.js";
import { Button, Card, CheckField, Chip, Code, Confirm, CopyLine, Dialog, Empty, ErrorNote, Facts, Field, Figures, Form, Icon, Menu, Meter, Notice, PageHead, SearchField, SecretDialog, Segments, SelectField, Skeleton, Tabs, TextField, Time, toast } from "../core/ui.js";
import ICONS from "../core/icons.js";
import { Lazy } from "../core/shell.js";
import { Table } from "../core/table.js";
import { html, number, useState, zone } from "../core/view.js";
import { NoticeLine } from "../parts/notices.js";
import { HealthChip, LastResponse } from "../parts/webhook_health.js";

const loadPlot = () => import("../parts/plot.js");
const loadComposer = () => import("../parts/composer.js");
const EMAIL = { version: 1, theme: {}, blocks: [{ id: "b1", type: "heading", text: "Hello {{name}}" }, { id: "b2", type: "text", text: "Your order is on its **way**." }, { id: "b3", type: "button", text: "Track the parcel", url: "https://shop.example/orders" }, { id: "b4", type: "columns", columns: [{ blocks: [{ id: "b5", type: "list", items: ["One lamp", "Two bulbs"] }] }, { blocks: [] }] }, { id: "b6", type: "divider" }, { id: "b7", type: "footer", text: "Shop Ltd. · [Unsubscribe]({{unsubscribe_url}})" }] };
const WORDS = ["delivered", "bounced", "deferred", "queued", "canceled", "verified", "in_review", "firing"];
const ROWS = [{ id: "msg_1", subject: "Receipt", status: "delivered", octets: 12_345 }, { id: "msg_2", subject: "A subject that is rather long, as subjects of mails tend to be when people write them", status: "bounced", octets: 987 }];
const COLUMNS = [{ title: "Subject", cell: (row) => row.subject }, { title: "Status", cell: (row) => html`<${Chip}>${row.status}<//>` }, { title: "Octets", end: true, cell: (row) => number(row.octets) }];
const REFUSED = new ApiError({ type: "daily_limit_reached", message: "100 messages were sent today, the limit of the plan Free. Send again after midnight UTC, or upgrade.", status: 429, retryAfterS: 3600, requestId: "01jx0000000000000000000000" });
const CHOICES = [["a", "First"], ["b", "Second"]];
const BUTTONS = [["Default", {}], ["Disabled", { disabled: true }], ["Not allowed", { why: "Only the owner can do this." }], ["Busy", { busy: true }]];
const TOKENS = ["ground", "sheet", "raised", "sunken", "hover", "line", "edge", "ink", "soft", "accent", "accent-soft", "good", "good-soft", "warn", "warn-soft", "bad", "bad-soft"];
const HOURS = Array.from({ length: 24 }, (_, at) => `2026-11-28T${String(at).padStart(2, "0")}:00:00.000Z`);
const NOTICES = ["bad", "warn", "info"].map((severity) => ({ id: severity, severity, kind: "limit_near", objectId: null, since: "2026-11-23T10:00:00.000Z", unread: severity === "bad", message: "80 of the 100 emails of today are sent." }));
const FAILING = { state: "failing", failingSince: "2026-11-23T10:00:00.000Z", lastResponse: { at: "2026-11-23T10:05:00.000Z", statusCode: 503, milliseconds: 14, error: "answered 503" } };
const DAYS = Array.from({ length: 14 }, (_, at) => `2026-11-${String(at + 1).padStart(2, "0")}`);

export function Components() {
  const [open, setOpen] = useState(null);
  const [text, setText] = useState("");
  const [tab, setTab] = useState("one");
  const [chosen, setChosen] = useState(new Set());
  const [email, setEmail] = useState(EMAIL);
  const close = () => setOpen(null);
  const empty = { rows: [], loading: false, error: null };
  return html`<${PageHead} title="Components" lead="Every part that pages are made of, in its states." actions=${html`<${Button}>Action<//><${Button} kind="primary" icon="plus">Main action<//>`} />
  <div class="stack">
    <${Card} title="Type"><div class="stack-tight"><p class="title-text">Page title, 20 px, 650</p><h2>Section, 15 px, 650</h2><h3>Part, 14 px, 650</h3><p>Text in Inter, 14 px, 450. <strong>Strong, 650.</strong> <a href="#main">A link.</a> <code>code, 13 px</code></p><p class="soft">Soft text, for what explains.</p><p class="small">Small text, 13 px.</p>
      <p class="numeric">1,111,111.11<br />8,888,888.88</p></div><//>
    <${Card} title="Colours"><ul class="row">${TOKENS.map((token) => html`<li class="row small" key=${token}><span class="swatch" aria-hidden="true" style=${{ color: `var(--${token})` }}></span>${token}</li>`)}</ul><//>
    <${Card} title="Buttons"><div class="stack">${BUTTONS.map(([name, state]) => html`<div class="row" key=${name}><span class="state soft small">${name}</span><${Button} kind="primary" icon="send" ...${state}>Primary<//><${Button} ...${state}>Plain<//><${Button} kind="quiet" ...${state}>Quiet<//><${Button} danger ...${state}>Danger<//><${Button} kind="primary" danger ...${state}>Delete<//><${Button} icon="copy" label="Copy" ...${state} /></div>`)}
      <p class="small soft">Hover darkens the ground; focus by keyboard draws a line around: press Tab.</p></div><//>
    <${Card} title="Menu"><div class="row"><${Menu} label="More" items=${[{ text: "Edit", icon: "pencil", onSelect: () => toast("Edited") }, { text: "Delete", icon: "trash-2", danger: true, onSelect: () => setOpen("confirm") }]} /></div><//>
    <${Card} title="Fields"><${Form} onSubmit=${() => toast("Sent")}>
      <${TextField} label="Text" value=${text} onValue=${setText} hint="A hint below the field." />
      <${TextField} label="Text with an error" value="ann@" onValue=${setText} error="“ann@” is not an address. Write it as name@domain." />
      <${TextField} label="Several lines" rows=${3} value=${text} onValue=${setText} />
      <${SelectField} label="Choice" value="b" onValue=${setText} options=${CHOICES} />
      <${SelectField} label="Choice with an error" value="a" onValue=${setText} options=${CHOICES} error="Choose the second." />
      <div class="columns"><${TextField} label="Day" type="date" value="2026-11-23" onValue=${() => {}} /><${TextField} label="Day and time" type="datetime-local" value="2026-11-23T14:05" onValue=${() => {}} hint=${`In ${zone.value}.`} /></div>
      <${Field} label="File">${(attributes) => html`<input ...${attributes} type="file" />`}<//>
      <${CheckField} label="Checkbox" hint="With a hint." checked onChecked=${() => {}} />
      <${SearchField} label="Search things" value=${text} onValue=${setText} />
      <${CheckField} label="Checkbox that can't be changed" disabled onChecked=${() => {}} />
      <div class="columns"><${TextField} label="Text that can't be changed" value="ann@example.com" disabled onValue=${() => {}} /><${SelectField} label="Choice that can't be changed" value="a" disabled onValue=${() => {}} options=${CHOICES} /></div>
      <${Segments} label="Segments" options=${[["a", "Plot"], ["b", "Table"]]} value="a" onValue=${() => {}} />
    <//><//>
    <${Card} title="Chips and times"><div class="row">${WORDS.map((word) => html`<${Chip} key=${word}>${word}<//>`)}<${Chip} tone="accent" onRemove=${() => {}} removeLabel="Remove the filter">tag: receipt<//><${Time} at="2026-11-23T10:00:00.000Z" /><${Time} at=${new Date(Date.now() - 240_000).toISOString()} relative /></div><//>
    <${Card} title="Notices"><div class="stack"><${Notice} title="Information.">It says what is so.<//><${Notice} tone="good">It worked.<//><${Notice} tone="warn">Something needs attention.<//><${ErrorNote} error=${REFUSED} retry=${() => {}} /></div><//>
    <${Card} title="Lines of the bell, health of a webhook"><ul>${NOTICES.map((one) => html`<${NoticeLine} key=${one.id} notice=${one} unread=${one.unread} />`)}</ul><div class="row"><${HealthChip} health=${FAILING} /><${LastResponse} last=${FAILING.lastResponse} /><${HealthChip} health=${{ state: "healthy" }} /><${HealthChip} health=${{ state: "idle" }} /></div><//>
    <${Card} title="Facts, figures, code"><div class="stack"><${Facts} items=${[["Id", html`<${CopyLine} text="msg_01jx0000000000000000000000" />`], ["Status", html`<${Chip}>delivered<//>`]]} /><${Figures} items=${[["Messages", "12.3K", "7 days: +4%"], ["Delivered", "99.1%"], ["Median", "46 ms"]]} /><${Meter} label="Use" value=${83} max=${100} /><${Code} text=${'curl https://mail.example/v1/me -H "Authorization: Bearer $KEY"'} /></div><//>
    <${Card} title="Tabs"><${Tabs} label="Example" items=${[["one", "Waybill"], ["two", "Preview"], ["three", "Source"]]} current=${tab} onSelect=${setTab} /><${Skeleton} /><//>
    <section class="stack"><h2>Tables</h2>
      <${Table} label="Rows" columns=${COLUMNS} state=${{ rows: ROWS, loading: false, error: null, next: () => {} }} rowTo=${(row) => `/messages/${row.id}`} selection=${{ chosen, onChange: setChosen }} />
      <${Table} label="No rows" columns=${COLUMNS} state=${empty} empty=${html`<${Empty} icon="inbox" title="Nothing here yet" action=${html`<${Button} kind="primary">Begin<//>`} curl="curl …">A sentence that teaches what this is for.<//>`} />
      <${Table} label="Rows that load" columns=${COLUMNS} state=${{ ...empty, loading: true }} />
      <${Table} label="Failed" columns=${COLUMNS} state=${{ ...empty, error: REFUSED, reload: () => {} }} />
    </section>
    <${Card} title="Plot"><${Lazy} load=${loadPlot} name="Plot" label="Messages by day" times=${DAYS} series=${[{ label: "Delivered", colour: "good", values: DAYS.map((_, at) => 100 + at * at) }, { label: "Bounced", colour: "bad", values: DAYS.map((_, at) => at) }]} rates=${[{ label: "Bounce rate", colour: "bad", values: DAYS.map((_, at) => at / (100 + at * at + at)), limit: 0.05 }]} /><//>
    <${Card} title="Plot by hour, without figures"><${Lazy} load=${loadPlot} name="Plot" label="Messages by hour" times=${HOURS} series=${[{ label: "Delivered", colour: "good", values: HOURS.map(() => 0) }]} /><//>
    <${Card} title="Skeleton"><${Skeleton} /><//>
    <${Card} title="Composer"><${Lazy} load=${loadComposer} name="Composer" doc=${email} onDoc=${setEmail} fields=${["name", "unsubscribe_url"]} /><//>
    <${Card} title="Dialogs"><div class="row"><${Button} onClick=${() => setOpen("dialog")}>Dialog<//><${Button} onClick=${() => setOpen("confirm")}>Confirm<//><${Button} onClick=${() => setOpen("secret")}>Secret<//><${Button} onClick=${() => toast("Saved")}>Toast<//></div><//>
    <${Card} title="Icons"><ul class="row">${Object.keys(ICONS).map((name) => html`<li title=${name} key=${name}><${Icon} name=${name} size=${20} /></li>`)}</ul><//>
  </div>
  ${open === "dialog" && html`<${Dialog} title="A dialog" onClose=${close} foot=${html`<${Button} onClick=${close}>Cancel<//><${Button} kind="primary" onClick=${close}>Save<//>`}><p>Content.</p><//>`}
  ${open === "confirm" && html`<${Confirm} title="Delete the domain hello.test?" typed="hello.test" confirm="Delete domain" action=${async () => {}} onClose=${close}>Email from it is rejected immediately.<//>`}
  ${open === "secret" && html`<${SecretDialog} title="Your new key" secret="svc_live_…" onClose=${close} />`}`;
}
