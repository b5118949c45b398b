// Broadcasts: the list, and one with its progress and controls. The editor is in broadcast_editor.js.
import { call, useAction, useCall, usePages } from "../core/api.js";
import { go, href, location, setQuery } from "../core/router.js";
import { Button, Card, Chip, Confirm, Dialog, Empty, ErrorNote, Facts, HeadActions, Menu, Notice, PageHead, SelectField, Skeleton, Time, toast } from "../core/ui.js";
import { isDark, Lazy } from "../core/shell.js";
import { Table } from "../core/table.js";
import { html, number, plural, useEffect, useState } from "../core/view.js";
import { SendDialog } from "../parts/broadcast_send.js";
import { Preview } from "../parts/preview.js";
import { ProgressBar } from "../parts/progress_bar.js";
import { TestDialog } from "../parts/test_dialog.js";

const loadProgress = () => import("../parts/broadcast_progress.js");
const loadReadiness = () => import("../parts/broadcast_readiness.js");
const loadNumbers = () => import("../parts/message_numbers.js");

const RUNNING = new Set(["sending", "paused"]);
const WATCH_MS = 3000; // between two looks at a broadcast that is sending
const ENDED = new Set(["sent", "stopped", "canceled"]);
const OPEN = new Set(["scheduled", "in_review", "sending", "paused"]);
const PAUSES = {
  user: "Someone on your team or an API key paused it. Nothing is sent until you resume it.",
  daily_limit: "You've reached today's sending limit. Resumes automatically after midnight UTC.",
  monthly_limit: "You've reached this month's sending limit. Resumes on the 1st, or as soon as you upgrade.",
  suspended: "The account is suspended. Resumes automatically when the suspension ends.",
  domain: "The sender's domain is no longer verified. Fix its DNS records; it resumes automatically once they are found.",
  stream: "Its stream was deleted. Create a stream with the same id to resume it, or cancel it.",
};
const STOPS = {
  bounce_rate: "More than 10% of at least 200 messages bounced. It was stopped permanently to protect your reputation. Check where the addresses come from.",
  complaint_rate: "More than 0.3% of at least 200 recipients reported spam. It was stopped permanently to protect your reputation. Check that they asked for this email.",
};
const WAITS = { pace: "It keeps to its pace (messages per minute).", platform_paused: "Broadcasts on this instance are paused for now." };

export function Broadcasts() {
  const state = usePages("GET /v1/broadcasts", {}, { pollMs: true });
  const create = html`<${Button} kind="primary" icon="plus" role="member" to="/broadcasts/new">New broadcast<//>`;
  const lists = useCall("GET /v1/lists", { query: { limit: 100 }, quiet: true });
  const segments = useCall("GET /v1/segments", { query: { limit: 100 }, quiet: true });
  const names = Object.fromEntries([...(lists.data?.data ?? []), ...(segments.data?.data ?? [])].map((one) => [one.id, one.name]));
  const columns = [
    { title: "Name", cell: (row) => row.name },
    { title: "Status", narrow: "aside", cell: (row) => html`<${Chip}>${row.status}<//>${RUNNING.has(row.status) ? html`<${RowProgress} key=${row.id} id=${row.id} />` : ""}` },
    { title: "Subject", narrow: "bare", cell: (row) => html`<span class="wrap">${row.subject ?? (row.template ? `from the template ${row.template}` : "–")}</span>` },
    { title: "Audience", narrow: "bare", cell: (row) => names[row.list ?? row.segment] ?? "–" },
    { title: "Sends", narrow: "bare", cell: (row) => (row.startedAt || row.scheduledAt ? html`<${Time} at=${row.startedAt ?? row.scheduledAt} minute />` : html`<span class="soft">not scheduled</span>`) },
  ];
  return html`<${PageHead} title="Broadcasts" lead="One message to everyone on a list or in a segment. Your transactional email always goes first." actions=${create} />
    <${Table} label="Broadcasts" columns=${columns} state=${state} rowTo=${(row) => `/broadcasts/${row.id}`} empty=${html`<${Empty} icon="megaphone" title="No broadcasts" action=${create} curl=${`curl ${window.location.origin}/v1/broadcasts -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\\n  -d '{"name": "News", "list": "lst_…", "from": "news@example.com", "subject": "News", "text": "Hello {{name}}"}'`}>Write once to a list of contacts. Each gets a copy with a one-click unsubscribe link.<//>`} />`;
}

/** How far a running broadcast of the list is. */
function RowProgress({ id }) {
  const { data } = useCall("GET /v1/broadcasts/{id}", { path: { id }, quiet: true }, { pollMs: true });
  if (!data) return null;
  const done = data.counts.accepted + data.counts.skipped;
  return html`<div class="row-progress"><${ProgressBar} label=${`Progress of ${data.name}`} value=${done} max=${data.counts.recipients} /><span class="soft small numeric">${number(done)} of ${number(data.counts.recipients)}</span></div>`;
}

/** The page of a broadcast; `?open=test` opens it with the dialog of a test. */
export function Broadcast({ id }) {
  const [pollMs, setPollMs] = useState(true);
  const state = useCall("GET /v1/broadcasts/{id}", { path: { id } }, { pollMs });
  useEffect(() => setPollMs(state.data?.status === "sending" ? WATCH_MS : true), [state.data?.status]);
  const [dialog, setDialog] = useState(location.peek().query.get("open") === "test" ? "test" : null);
  useEffect(() => setQuery({ open: null }), []); // a reload asks for no second test
  const back = ["/broadcasts", "Broadcasts"];
  const one = state.data;
  const numbers = one?.startedAt && html`<${Lazy} load=${loadNumbers} name="BroadcastNumbers" broadcast=${one} />`;
  if (!one && state.error) return html`<${PageHead} title="Broadcast" back=${back} /><${ErrorNote} error=${state.error} retry=${state.reload} />`;
  if (!one) return html`<${PageHead} title="Broadcast" back=${back} /><${Skeleton} lines=${8} />`;
  const close = (changed) => {
    setDialog(null);
    if (changed) state.reload();
  };
  return html`<${PageHead} title=${one.name} back=${back} chip=${html`<${Chip}>${one.status}<//>`} actions=${html`<${Controls} broadcast=${one} onDialog=${setDialog} onChange=${state.reload} />`} />
    <div class="stack"><${ErrorNote} error=${state.error} /><${Situation} broadcast=${one} />
      ${one.status !== "draft" && html`<${Lazy} load=${loadProgress} name="Progress" broadcast=${one} audience=${html`<${Audience} broadcast=${one} />`} />`}
      ${!ENDED.has(one.status) && numbers}
      <div class="columns"><div class="stack"><${Settings} broadcast=${one} />${one.status === "draft" && html`<${Lazy} load=${loadReadiness} name="Readiness" key=${one.updatedAt} broadcast=${one} />`}</div><${Sample} id=${id} broadcast=${one} /></div>
      ${ENDED.has(one.status) && numbers}</div>
    ${dialog === "send" && html`<${SendDialog} broadcast=${one} onClose=${close} />`}
    ${dialog === "test" && html`<${TestDialog} title=${`Send a test of ${one.name}`} send=${({ to }) => call("POST /v1/broadcasts/{id}/test", { path: { id }, body: { to } })} next=${{ text: one.status === "draft" ? "Send or schedule" : "Change the time", onSelect: () => setDialog("send") }} onClose=${() => close(false)}><p class="soft">The unsubscribe link in a test has no effect. If a recipient is a contact, the contact's values are used.</p><//>`}
    ${dialog === "cancel" && html`<${Confirm} title=${one.counts.waiting && one.startedAt ? `Cancel ${one.name} for ${plural(one.counts.waiting, "person", "people")}?` : `Cancel the broadcast ${one.name}?`} confirm="Cancel broadcast" action=${() => call("POST /v1/broadcasts/{id}/cancel", { path: { id } })} onClose=${close}>Messages already accepted are still delivered. Nobody else gets it, and you can't resume it.<//>`}
    ${dialog === "delete" && html`<${Confirm} title=${`Delete the broadcast ${one.name}?`} confirm="Delete broadcast" action=${() => call("DELETE /v1/broadcasts/{id}", { path: { id } })} onClose=${(done) => { setDialog(null); if (done) { toast("Broadcast deleted"); go("/broadcasts"); } }}>Its content is deleted with it.<//>`}`;
}

function Controls({ broadcast, onDialog, onChange }) {
  const { id, status } = broadcast;
  const [pause, pausing] = useAction(() => call("POST /v1/broadcasts/{id}/pause", { path: { id } }));
  const [resume, resuming] = useAction(() => call("POST /v1/broadcasts/{id}/resume", { path: { id } }));
  const run = (action, text) => async () => {
    if ((await action()) === undefined) return;
    toast(text);
    onChange();
  };
  const items = [
    OPEN.has(status) && { text: "Cancel", icon: "circle-x", danger: true, onSelect: () => onDialog("cancel") },
    { text: "Copy to a new draft", icon: "copy", to: "/broadcasts/new", query: { copy: id } },
    !RUNNING.has(status) && broadcast.counts.accepted === 0 && { text: "Delete", icon: "trash-2", danger: true, onSelect: () => onDialog("delete") },
    broadcast.counts.accepted > 0 && { text: "Show messages", icon: "send", to: "/messages", query: { broadcast: id } },
  ].filter(Boolean);
  const editable = ["draft", "scheduled"].includes(status);
  return html`<${HeadActions}>${status === "draft" && html`<${Button} icon="pencil" role="member" to=${`/broadcasts/${id}/edit`}>Edit<//>`}${editable && html`<${Button} icon="mail" role="member" onClick=${() => onDialog("test")}>Send a test<//><${Button} kind="primary" icon="send" role="member" onClick=${() => onDialog("send")}>${status === "draft" ? "Send or schedule" : "Change the time"}<//>`}
    ${status === "sending" && html`<${Button} icon="pause" role="member" busy=${pausing.busy} onClick=${run(pause, "Paused")}>Pause<//>`}
    ${status === "paused" && html`<${Button} kind="primary" icon="play" role="member" busy=${resuming.busy} onClick=${run(resume, "Resumed")}>Resume<//>`}
    <${Menu} label="More" kind="plain" items=${items} /><//>
    ${(pausing.error || resuming.error) && html`<${Dialog} title="The broadcast was not changed" onClose=${() => { pausing.clear(); resuming.clear(); }}><${ErrorNote} error=${pausing.error ?? resuming.error} /><//>`}`;
}

/** Why it waits, pauses or stopped, and what goes on by itself. */
function Situation({ broadcast }) {
  const { status, pausedBecause, stoppedBecause, waitsFor, reviewNote, resumesAt, scheduledAt } = broadcast;
  const at = resumesAt && html` Resumes <${Time} at=${resumesAt} />.`;
  if (status === "in_review") return html`<${Notice} tone="warn" title="Waiting for review.">The operator reviews your first broadcast to more than 1,000 people in 24 hours. Once approved, it starts automatically. If it's rejected, it is canceled and you see the reason.<//>`;
  if (status === "paused") return html`<${Notice} tone="warn" title="Paused.">${PAUSES[pausedBecause] ?? ""}${at}<//>`;
  if (status === "stopped") return html`<${Notice} tone="bad" title="Stopped.">${STOPS[stoppedBecause] ?? ""}<//>`;
  if (status === "canceled") return reviewNote ? html`<${Notice} tone="bad" title="Rejected in review:">${reviewNote}<//>` : html`<${Notice}>This broadcast was canceled.<//>`;
  if (status === "scheduled") return html`<${Notice} title="Scheduled.">Starts <${Time} at=${scheduledAt} />. It goes to the contacts on the list at that time.<//>`;
  if (status === "sending" && waitsFor) return html`<${Notice} title="Sending.">${WAITS[waitsFor] ?? ""}${at}<//>`;
  return null;
}

function Settings({ broadcast }) {
  const one = broadcast;
  return html`<${Card} title="Settings"><${Facts} items=${[["From", html`<span class="wrap">${one.from}</span>`], one.replyTo && ["Reply to", one.replyTo], ["Audience", html`<${Audience} broadcast=${one} counted />`], ["Stream", one.stream], one.template && ["Template", html`<a href=${href(`/templates/${one.template}`)}>${one.template}</a>${one.templateVersion ? ` version ${one.templateVersion}` : ", the latest version when it is sent"}`], one.perMinute && ["Pace", `at most ${number(one.perMinute)} per minute`], one.attachments.length > 0 && ["Attachments", one.attachments.map((file) => file.filename).join(", ")], broadcast.subject && ["Subject", html`<span class="wrap">${one.subject}</span>`], ["Created", html`<${Time} at=${one.createdAt} />`], one.startedAt && ["Started", html`<${Time} at=${one.startedAt} />`], one.finishedAt && ["Finished", html`<${Time} at=${one.finishedAt} />`]]} /><//>`;
}

function Audience({ broadcast, counted }) {
  const list = useCall("GET /v1/lists/{id}", { path: { id: broadcast.list }, quiet: true }, { skip: !broadcast.list });
  const segment = useCall("GET /v1/segments/{id}", { path: { id: broadcast.segment }, quiet: true }, { skip: !broadcast.segment });
  const found = list.data ?? segment.data;
  if (broadcast.list === null && broadcast.segment === null) return html`<span class="soft">${counted ? "deleted" : "a deleted list"}</span>`;
  const to = broadcast.list ? `/lists/${broadcast.list}` : `/segments/${broadcast.segment}`;
  return html`<a href=${href(to)}>${found?.name ?? broadcast.list ?? broadcast.segment}</a>${counted && found?.contacts != null ? `, ${plural(found.contacts, "contact")}` : ""}`;
}

/** The message as one contact gets it: the first of the list, until another one is chosen. */
function Sample({ id, broadcast }) {
  const [chosen, setContact] = useState(null);
  const contacts = useCall("GET /v1/contacts", { query: { limit: 20, list: broadcast.list }, quiet: true });
  const contact = chosen ?? contacts.data?.data[0]?.id ?? "";
  const state = useCall("GET /v1/broadcasts/{id}/preview", { path: { id }, query: { contact } }, { skip: contacts.loading && !contacts.data });
  const options = [["", "No contact (fields stay empty)"], ...(contacts.data?.data ?? []).map((one) => [one.id, one.email])];
  return html`<${Card} title="Preview for a contact"><div class="stack">
    <${SelectField} label="Contact" value=${contact} onValue=${setContact} options=${options} />
    <${ErrorNote} error=${state.error} retry=${state.reload} />
    ${state.data ? html`<p class="strong wrap">${state.data.subject}</p><${Preview} html=${state.data.html} text=${state.data.text} dark=${isDark()} title="The broadcast for one contact" />` : !state.error && html`<${Skeleton} lines=${6} />`}
  </div><//>`;
}
