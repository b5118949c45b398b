// Emails that agents ask to send: a person looks at each one and approves or declines it.
import { call, useCall, usePages } from "../core/api.js";
import { href, location, setQuery } from "../core/router.js";
import { isDark, Lazy } from "../core/shell.js";
import { Button, Card, Chip, Code, Confirm, Empty, ErrorNote, Facts, Notice, PageHead, Skeleton, Tabs, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, useState } from "../core/view.js";

const STATES = [["pending", "Pending"], ["all", "All"]];
const TONES = { pending: "warn", approved: "warn", sent: "good", declined: "bad", expired: "" };

const StateChip = ({ state }) => html`<${Chip} tone=${TONES[state] ?? ""}>${state}<//>`;

const COLUMNS = [
  { title: "Subject", cell: (row) => html`<span class="strong wrap">${row.subject || "No subject"}</span>` },
  { title: "Recipients", cell: (row) => html`<span class="wrap">${named(row.recipients)}</span>` },
  { title: "Agent", cell: (row) => row.agent ?? html`<span class="soft">–</span>` },
  { title: "State", cell: (row) => html`<${StateChip} state=${row.state} />` },
  { title: "Requested", end: true, cell: (row) => html`<${Time} relative at=${row.createdAt} />` },
];

const named = (recipients) => (recipients.length > 3 ? `${recipients.slice(0, 3).join(", ")} and ${recipients.length - 3} more` : recipients.join(", "));

/** The sends that wait for a person, and those of the last weeks. */
export function Approvals() {
  const shown = location.value.query.get("state") === "all" ? "all" : "pending";
  const state = usePages("GET /v1/agent-sends", { query: { state: shown === "all" ? null : shown } }, { pollMs: true });
  const empty = html`<${Empty} icon="hand" title=${shown === "all" ? "No agent has asked yet" : "Nothing waits for approval"} action=${html`<${Button} to="/api-keys">API keys<//>`}>Emails of agents wait here if their API key requires approval. Choose that when you create the key.<//>`;
  return html`<${PageHead} title="Approvals" lead="Emails that agents ask to send. Each one waits for up to 24 hours until a person approves or declines it." />
    <${Tabs} label="Approvals" items=${STATES} current=${shown} onSelect=${(key) => setQuery({ state: key === "all" ? "all" : null })} />
    <${Table} label="Approvals" columns=${COLUMNS} state=${state} rowTo=${(row) => `/approvals/${row.id}`} empty=${empty} />`;
}

const loadFrame = () => import("../parts/mail_frame.js");

/** One send with the email as it would go out now. */
export function Approval({ id }) {
  const { data, error, reload } = useCall("GET /v1/agent-sends/{id}", { path: { id } });
  const [asked, ask] = useState(null);
  const back = ["/approvals", "Approvals"];
  const open = data && Date.parse(data.expiresAt) > Date.now();
  if (error && !data) return html`<${PageHead} title="Approval" back=${back} /><${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${PageHead} title="Approval" back=${back} /><${Skeleton} />`;
  const actions = [
    data.state === "pending" && html`<${Button} danger role="member" onClick=${() => ask("decline")}>Decline<//>`,
    open && ["pending", "approved"].includes(data.state) && html`<${Button} kind="primary" role="member" onClick=${() => ask("approve")}>Approve and send<//>`,
  ];
  const close = (done) => {
    ask(null);
    if (done) reload();
  };
  return html`<${PageHead} title=${data.subject || "No subject"} chip=${html`<${StateChip} state=${data.state} />`} back=${back} actions=${actions} />
    <div class="stack">${data.error && html`<${Notice} tone="warn" title="It can't be sent now:">${data.error.message}<//>`}
      ${data.state === "approved" && html`<${Notice} tone="warn">It was approved, but its sending was interrupted. ${open ? "Approve it again: it is sent once." : "Look for it in the messages before the agent asks again."}<//>`}
      <${Card} title="Email"><${Facts} items=${facts(data)} /><//>
      ${data.message && html`<${Content} message=${data.message} />`}</div>
    ${asked && html`<${Decision} kind=${asked} send=${data} onClose=${close} />`}`;
}

const facts = ({ message, ...one }) => [
  ["From", html`<span class="wrap">${one.from}</span>`],
  ...(message ? [["To", message.to], ["Cc", message.cc], ["Bcc", message.bcc]].map(([name, all]) => [name, all.length ? html`<span class="wrap">${all.join(", ")}</span>` : null]) : [["Recipients", html`<span class="wrap">${one.recipients.join(", ")}</span>`]]),
  ["Template", message?.template],
  ["Attachments", message?.attachments.length ? message.attachments.map((file) => file.filename).join(", ") : null],
  ["Scheduled", message?.scheduledAt && html`<${Time} at=${message.scheduledAt} />`],
  ["Agent", one.agent],
  ["API key", html`<code>${one.keyId}</code>`],
  ["Requested", html`<${Time} at=${one.createdAt} />`],
  one.decidedAt ? ["Decided", html`<${Time} at=${one.decidedAt} />`] : ["To decide until", html`<${Time} at=${one.expiresAt} />`],
  ["Message", one.messageId && html`<a href=${href(`/messages/${one.messageId}`)}>${one.messageId}</a>`],
];

function Content({ message: { subject, text, html: body } }) {
  const kinds = [body && ["html", "HTML"], text && ["text", "Plain text"]].filter(Boolean);
  const [kind, setKind] = useState(kinds[0]?.[0]);
  if (!kinds.length) return null;
  return html`<${Card} title="Content"><${Tabs} label="Content" items=${kinds} current=${kind} onSelect=${setKind} />
    ${kind === "html" ? html`<${Lazy} load=${loadFrame} name="MailFrame" html=${body} title=${`Content of ${subject}`} dark=${isDark()} remote=${false} width=${null} />` : html`<${Code} text=${text} label="Plain text" />`}<//>`;
}

function Decision({ kind, send, onClose }) {
  const path = { id: send.id };
  const subject = send.subject || "this email";
  if (kind === "approve") {
    const run = async () => {
      await call("POST /v1/agent-sends/{id}/approve", { path });
      toast(`${subject} is on its way`);
    };
    return html`<${Confirm} title=${`Send ${subject}?`} confirm="Approve and send" danger=${false} action=${run} onClose=${onClose}>It goes to ${named(send.recipients)}${send.message?.scheduledAt ? " at its scheduled time" : ""}.<//>`;
  }
  const run = async () => {
    await call("POST /v1/agent-sends/{id}/decline", { path });
    toast(`${subject} declined`);
  };
  return html`<${Confirm} title=${`Decline ${subject}?`} confirm="Decline" action=${run} onClose=${onClose}>Nothing is sent, and the email is deleted. The agent is told that it was declined.<//>`;
}
