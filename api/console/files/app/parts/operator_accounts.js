// The operator's accounts: search, one account, suspension and plan.
import { call, useCall, usePages } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Button, Card, Chip, Confirm, CopyLine, Empty, ErrorNote, Facts, PageHead, SearchField, Segments, SelectField, Skeleton, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, number, useState } from "../core/view.js";
import { ActionDialog } from "./operator_queue.js";

const STATES = [["", "All"], ["active", "Active"], ["suspended", "Suspended"], ["closing", "Closing"]];
const PLANS = ["free", "starter", "growth", "scale", "enterprise"].map((one) => [one, one[0].toUpperCase() + one.slice(1)]);

const COLUMNS = [
  { title: "Name", cell: (row) => html`<span class="wrap">${row.name ?? "Erased account"}</span>` },
  { title: "Status", cell: (row) => html`<${Chip}>${row.status}<//>` },
  { title: "Plan", cell: (row) => row.plan ?? "–" },
  { title: "Id", cell: (row) => html`<code>${row.id}</code>` },
  { title: "Sub-account of", cell: (row) => (row.parentId ? html`<code>${row.parentId}</code>` : html`<span class="soft">–</span>`) },
  { title: "Opened", end: true, cell: (row) => html`<${Time} relative at=${row.createdAt} />` },
];

/** The list of all accounts of the service. */
export function OperatorAccounts() {
  const { query } = location.value;
  const search = query.get("search");
  const status = search ? null : query.get("status");
  const state = usePages("GET /v1/operator/accounts", { query: { search, status } });
  return html`<div class="toolbar"><${SearchField} label="Id, address of a member, domain or name" value=${search} onValue=${(value) => setQuery({ search: value.trim() || null })} />
      ${!search && html`<${Segments} label="Status" options=${STATES} value=${status ?? ""} onValue=${(value) => setQuery({ status: value })} />`}</div>
    <${Table} label="Accounts" columns=${COLUMNS} state=${state} rowTo=${(row) => `/operator/accounts/${row.id}`} empty=${html`<${Empty} icon="building-2" title="No account found">Search by the account's id, the address of a member, a domain of the account, or the beginning of its name.<//>`} />`;
}

/** One account, with what an operator may do. */
export function OperatorAccount({ id }) {
  const { data, error, reload } = useCall("GET /v1/operator/accounts/{id}", { path: { id } }, { pollMs: true });
  const [asked, ask] = useState(null);
  if (error && !data) return html`<${PageHead} title="Account" back=${["/operator/accounts", "Accounts"]} /><${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${PageHead} title="Account" back=${["/operator/accounts", "Accounts"]} /><${Skeleton} />`;
  const close = (done) => {
    ask(null);
    if (done) reload();
  };
  const suspended = data.suspensions?.some((one) => one.cause === "operator");
  const actions = data.status !== "erased" && html`<${Button} onClick=${() => ask("plan")}>Change the plan<//><${Button} onClick=${() => ask("agreement")}>Agreement<//>
    ${suspended ? html`<${Button} icon="play" onClick=${() => ask("resume")}>Resume<//>` : html`<${Button} danger icon="ban" onClick=${() => ask("suspend")}>Suspend<//>`}`;
  return html`<${PageHead} title=${data.name ?? "Erased account"} chip=${html`<${Chip}>${data.status}<//>`} back=${["/operator/accounts", "Accounts"]} actions=${actions} />
    <div class="stack"><${Card} title="Account"><${Facts} items=${accountFacts(data)} /><//>
      ${data.suspensions?.length > 0 && html`<${Suspensions} rows=${data.suspensions} />`}
      ${data.subAccounts?.length > 0 && html`<div class="stack-tight"><h2>Sub-accounts</h2><${Table} label="Sub-accounts" columns=${COLUMNS.slice(0, 2).concat(COLUMNS[3])} state=${{ rows: data.subAccounts }} rowTo=${(row) => `/operator/accounts/${row.id}`} /></div>`}
    </div>
    ${asked && html`<${AccountChange} kind=${asked} account=${data} onClose=${close} />`}`;
}

const accountFacts = (one) => [
  ["Id", html`<${CopyLine} text=${one.id} />`],
  ["Plan", one.plan],
  ...Object.entries(AGREED).map(([name, label]) => [`${label}, agreed`, one.agreedCaps?.[name] && number(one.agreedCaps[name])]),
  ["Owners", one.owners?.join(", ") || null],
  ["Opened", html`<${Time} at=${one.createdAt} />`],
  ["Sub-account of", one.parentId && html`<a href=${`./${encodeURIComponent(one.parentId)}`}>${one.parentId}</a>`],
  ["Deletion", one.deletionScheduledFor && html`<${Time} at=${one.deletionScheduledFor} />`],
  ["Erasure requested", one.erasure && html`<${Time} at=${one.erasure.requestedAt} />`],
  ["Erased", one.erasure && html`<${Time} at=${one.erasure.erasedAt} />`],
  ["Events erased", one.erasure && number(one.erasure.events)],
  ["Last hash of its log", one.erasure?.lastHash && html`<code class="wrap">${one.erasure.lastHash}</code>`],
];

const CAUSES = { rates: "Bounce or complaint rate", operator: "Operator", parent: "Its parent account", inherited: "Suspension of its parent account" };

function Suspensions({ rows }) {
  const columns = [
    { title: "Cause", cell: (row) => CAUSES[row.cause] ?? row.cause },
    { title: "Reason", cell: (row) => row.reason },
    { title: "Since", end: true, cell: (row) => html`<${Time} at=${row.since} />` },
  ];
  return html`<div class="stack-tight"><h2>Suspensions</h2><${Table} label="Suspensions" columns=${columns} rowKey=${(row) => row.cause + row.since} state=${{ rows }} /></div>`;
}

function AccountChange({ kind, account, onClose }) {
  const [reason, setReason] = useState("");
  const [plan, setPlan] = useState(account.plan);
  const path = { id: account.id };
  const done = (text) => toast(`${account.name}: ${text}`);
  if (kind === "resume") {
    const run = async () => {
      await call("POST /v1/operator/accounts/{id}/resume", { path });
      done("resumed");
    };
    return html`<${Confirm} title=${`Resume ${account.name}?`} confirm="Resume account" danger=${false} action=${run} onClose=${onClose}>The suspension by the operator ends; the account can send again unless another suspension remains.<//>`;
  }
  if (kind === "suspend") {
    const run = async () => {
      await call("POST /v1/operator/accounts/{id}/suspend", { path, body: { reason: reason.trim() } });
      done("suspended");
    };
    return html`<${ActionDialog} title=${`Suspend ${account.name}?`} verb="Suspend account" danger lead="Sends are rejected and pending messages wait. Members can still read the account and see the reason." run=${run} onClose=${onClose}><${TextField} label="Reason" required maxlength="200" value=${reason} onValue=${setReason} hint="Members of the account see it." /><//>`;
  }
  if (kind === "plan") {
    const run = async () => {
      await call("POST /v1/operator/accounts/{id}/plan", { path, body: { plan } });
      done(`plan is now ${plan}`);
    };
    return html`<${ActionDialog} title=${`Plan of ${account.name}`} verb="Change plan" lead="For accounts without a subscription. Limits apply immediately." run=${run} onClose=${onClose}><${SelectField} label="Plan" value=${plan} onValue=${setPlan} options=${PLANS} /><//>`;
  }
  return html`<${Agreement} account=${account} onClose=${onClose} />`;
}

const AGREED = {
  monthlyEmails: "Emails per month",
  retentionDays: "Record history (days)",
  scheduleDays: "Schedule ahead (days)",
  inboundAddresses: "Inbound addresses",
  monthlyVerifications: "Verification codes per month",
  monthlyAddressChecks: "Address checks per month",
  analyticsDays: "Delivery analytics (days)",
  requestsPerSecond: "Requests per second",
};

function Agreement({ account, onClose }) {
  const [plan, setPlan] = useState("enterprise");
  const [caps, setCaps] = useState(() => ({ ...account.agreedCaps }));
  const run = async () => {
    const body = plan ? { plan, caps: Object.fromEntries(Object.keys(AGREED).map((name) => [name, Number(caps[name]) || null])) } : { plan: null };
    await call("POST /v1/operator/accounts/{id}/agreement", { path: { id: account.id }, body });
    toast(`${account.name}: ${plan ? `agreement on ${plan}` : "the agreement has ended"}`);
  };
  const limit = ([name, label]) => html`<${TextField} label=${label} type="number" min="1" value=${caps[name] ?? ""} onValue=${(value) => setCaps({ ...caps, [name]: value })} />`;
  return html`<${ActionDialog} title=${`Agreement with ${account.name}`} verb="Save" lead="A plan that is billed outside of Waybill, in place of any subscription." run=${run} onClose=${onClose}><${SelectField} label="Plan" value=${plan} onValue=${setPlan} options=${[...PLANS, ["", "No agreement (end it)"]]} />
    ${plan && html`<p class="hint">Leave a limit blank to use the plan's. Raised limits end with the agreement.</p>${Object.entries(AGREED).map(limit)}`}<//>`;
}
