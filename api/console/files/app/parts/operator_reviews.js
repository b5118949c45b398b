// Broadcasts that wait for the operator's review.
import { call, useCall, usePages } from "../core/api.js";
import { href } from "../core/router.js";
import { isDark, Lazy } from "../core/shell.js";
import { Button, Card, Chip, Code, Confirm, Empty, ErrorNote, Facts, Figures, Notice, PageHead, Skeleton, Tabs, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { date, html, number, percent, useState } from "../core/view.js";
import { ActionDialog } from "./operator_queue.js";

const COLUMNS = [
  { title: "Broadcast", cell: (row) => row.name },
  { title: "Account", cell: (row) => row.account },
  { title: "From", cell: (row) => html`<span class="wrap">${row.from}</span>` },
  { title: "Subject", cell: (row) => row.subject ?? (row.template ? html`<span class="soft">template ${row.template}</span>` : "–") },
  { title: "Recipients", end: true, cell: (row) => number(row.recipients) },
  { title: "Scheduled", end: true, cell: (row) => html`<${Time} at=${row.scheduledAt} />` },
];

/** The broadcasts that wait, oldest first. */
export function OperatorReviews() {
  const state = usePages("GET /v1/operator/reviews", {}, { cursorField: "after", limit: 20, pollMs: true });
  return html`<${Table} label="Broadcasts in review" columns=${COLUMNS} state=${state} rowTo=${(row) => `/operator/reviews/${row.id}`} empty=${html`<${Empty} icon="circle-check" title="No broadcast is waiting for review">Broadcasts of new accounts and to large audiences wait here until an operator approves them.<//>`} />`;
}

const loadFrame = () => import("./mail_frame.js");

/** One broadcast with its content and the record of its account. */
export function OperatorReview({ id }) {
  const { data, error, reload } = useCall("GET /v1/operator/reviews/{id}", { path: { id } });
  const [asked, ask] = useState(null);
  const back = ["/operator/reviews", "Reviews"];
  if (error && !data) return html`<${PageHead} title="Review" back=${back} /><${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${PageHead} title="Review" back=${back} /><${Skeleton} />`;
  const waits = data.status === "in_review";
  const actions = waits && html`<${Button} danger onClick=${() => ask("reject")}>Reject<//><${Button} kind="primary" onClick=${() => ask("approve")}>Approve<//>`;
  const close = (done) => {
    ask(null);
    if (done) reload();
  };
  return html`<${PageHead} title=${data.name} chip=${html`<${Chip}>${data.status}<//>`} back=${back} actions=${actions} />
    <div class="stack">${data.reviewNote && html`<${Notice} title="Note:">${data.reviewNote}<//>`}
      <${Figures} items=${figures(data)} />
      <${Card} title="Broadcast"><${Facts} items=${facts(data)} /><//>
      <${Content} review=${data} /></div>
    ${asked && html`<${Decision} kind=${asked} review=${data} onClose=${close} />`}`;
}

function figures({ recipients, delivered30Days: delivered, bounced30Days: bounced, complained30Days: complained }) {
  const settled = delivered + bounced;
  const share = (count) => (settled ? percent(count / settled, 2) : null);
  return [["Recipients", number(recipients)], ["Delivered in 30 days", number(delivered)], ["Bounced", number(bounced), share(bounced)], ["Complained", number(complained), share(complained)]];
}

const facts = (one) => [
  ["Account", html`<a href=${href(`/operator/accounts/${one.accountId}`)}>${one.account}</a>, plan ${one.plan}, since ${date(one.accountSince)}`],
  ["From", one.from],
  ["Subject", one.subject],
  ["Template", one.template],
  ["Scheduled", one.scheduledAt && html`<${Time} at=${one.scheduledAt} />`],
  ["Attachments", one.attachments.length ? one.attachments.join(", ") : null],
  ["Consents", Object.entries(one.consents).map(([name, count]) => `${name}: ${number(count)}`).join(", ") || "none recorded"],
];

function Content({ review: { name, text, html: body } }) {
  const kinds = [body && ["html", "HTML"], text && ["text", "Plain text"]].filter(Boolean);
  const [kind, setKind] = useState(kinds[0]?.[0]);
  if (!kinds.length) return null;
  return html`<${Card} title="Content"><${Tabs} label="Content" items=${kinds} current=${kind} onSelect=${setKind} />
    ${kind === "html" ? html`<${Lazy} load=${loadFrame} name="MailFrame" html=${body} title=${`Content of ${name}`} dark=${isDark()} remote=${false} width=${null} />` : html`<${Code} text=${text} label="Plain text" />`}<//>`;
}

function Decision({ kind, review, onClose }) {
  const [note, setNote] = useState("");
  const path = { id: review.id };
  if (kind === "approve") {
    const run = async () => {
      await call("POST /v1/operator/reviews/{id}/approve", { path });
      toast(`${review.name} approved`);
    };
    return html`<${Confirm} title=${`Approve ${review.name}?`} confirm="Approve broadcast" danger=${false} action=${run} onClose=${onClose}>It goes out to ${number(review.recipients)} recipients ${review.scheduledAt ? "at its scheduled time" : "at once"}.<//>`;
  }
  const run = async () => {
    await call("POST /v1/operator/reviews/{id}/reject", { path, body: { note: note.trim() } });
    toast(`${review.name} rejected`);
  };
  return html`<${ActionDialog} title=${`Reject ${review.name}?`} verb="Reject broadcast" danger lead="The broadcast is canceled." run=${run} onClose=${onClose}><${TextField} label="Note" rows=${3} required maxlength="500" value=${note} onValue=${setNote} hint="The author sees it. Say what to change." /><//>`;
}
