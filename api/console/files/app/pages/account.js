// The account: name, plan and limits, usage by month, whether its log is intact, deletion.
import { call, refreshSession, saveFile, useAction, useCall, whyNot } from "../core/api.js";
import { go, href, location, setQuery } from "../core/router.js";
import { Button, Card, Chip, CopyLine, ErrorNote, Facts, fieldError, Figures, Form, Notice, PageHead, SelectField, Skeleton, Tabs, TextField, Time, toast } from "../core/ui.js";
import { html, number, percent, plural, useState } from "../core/view.js";
import { AccountDeletion } from "../parts/account_deletion.js";
import { CapMeter, resourceName } from "../parts/caps.js";
import { Erasures } from "../parts/erasures.js";

const TABS = [["general", "General"], ["limits", "Limits and usage"], ["data", "Data and deletion"]];

/** The page of the account. */
export function Account({ part = "general" }) {
  const me = useCall("GET /v1/me", {}, { pollMs: true });
  const { data } = me;
  const View = { __proto__: null, general: General, limits: LimitsAndUsage, data: Data }[part] ?? General;
  const plan = data && html`<a class="chip accent" href=${href("/billing")}>${`${data.plan[0].toUpperCase()}${data.plan.slice(1)} plan`}</a>${data.status !== "active" && html`<${Chip}>${data.status}<//>`}`;
  return html`<${PageHead} title="Account" lead="Name, limits and data of the account you're working in." chip=${plan} />
    <${Tabs} label="Account" items=${TABS} current=${part} onSelect=${(key) => go(key === "general" ? "/account" : `/account/${key}`)} />
    <div class="stack">
      ${me.error && html`<${ErrorNote} error=${me.error} retry=${me.reload} />`}
      ${data ? html`<${View} me=${data} />` : !me.error && html`<div class="card card-body"><${Skeleton} lines=${8} /></div>`}
    </div>`;
}

const General = ({ me }) => html`<div class="columns even"><${Name} key=${me.id} me=${me} /><${Sending} me=${me} /></div>`;
const LimitsAndUsage = ({ me }) => html`<${Limits} me=${me} /><${Usage} />`;
const Data = () => html`<${LogCheck} /><${Erasures} /><${AccountDeletion} />`;

function Name({ me }) {
  const [name, setName] = useState(me.name);
  const [rename, { busy, error }] = useAction(async () => {
    const fresh = await call("PATCH /v1/account", { body: { name } });
    setName(fresh.name);
    await refreshSession();
    toast("Account renamed");
  });
  const why = whyNot("admin") ?? undefined;
  return html`<${Card}><div class="stack"><${Form} onSubmit=${() => !why && rename()}><div class="account-name">
      <${TextField} label="Account name" hint=${why ?? "Shown in the account switcher and in emails about this account."} required maxlength="120" readonly=${Boolean(why)} value=${name} onValue=${setName} error=${fieldError(error, "name")} />
      <${Button} type="submit" why=${why} busy=${busy} disabled=${name === me.name}>Rename<//></div>
      <${ErrorNote} error=${error} fields=${["name"]} /><//>
    <${Facts} items=${[["Id", html`<${CopyLine} text=${me.id} />`], me.parentId && ["Parent account", html`<${CopyLine} text=${me.parentId} />`], ["Open since", html`<${Time} at=${me.createdAt} />`]]} /></div><//>`;
}

function Sending({ me }) {
  const { sending } = me;
  return html`<${Card} title="Sending" actions=${html`<a href=${href("/account/limits")}>All limits</a>`}><div class="stack">
    <${CapMeter} label="Messages today" used=${sending.sentToday} limit=${sending.dailyLimit} note="Days are UTC days. New accounts start with a small daily limit, which rises as you deliver successfully." />
    <${CapMeter} label="Messages this month" used=${sending.sentThisMonth} limit=${sending.monthlyLimit} note=${`${number(sending.remainingThisMonth)} left until the 1st of next month (UTC).`} />
    <${Facts} items=${[["Requests", `${number(me.requestsPerSecond)} per second for each API key`]]} />
  </div><//>`;
}

function Limits({ me }) {
  const periods = [["Messages and log kept", plural(me.retentionDays, "day")], ["Scheduling ahead", plural(me.scheduleDays, "day")], ["Delivery analytics", plural(me.analyticsDays, "day")]];
  return html`<${Card} title="Plan limits" actions=${!me.parentId && html`<${Button} to="/billing">Compare plans<//>`}><div class="stack">
    <div class="caps">${me.limits.map((cap) => html`<${CapMeter} key=${cap.resource} label=${resourceName(cap.resource)} used=${cap.used} limit=${cap.limit} />`)}</div>
    <${Facts} items=${periods} /></div><//>`;
}

const MONTHS = 12;

/** Return the last months as [["2026-11", "November 2026"], …]. */
function months(now = new Date()) {
  const names = new Intl.DateTimeFormat("en-GB", { month: "long", year: "numeric", timeZone: "UTC" });
  return Array.from({ length: MONTHS }, (_, back) => {
    const first = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1));
    return [first.toISOString().slice(0, 7), names.format(first)];
  });
}

function Usage() {
  const all = months();
  const month = location.value.query.get("month") ?? all[0][0];
  const { data, error, reload } = useCall("GET /v1/usage", { query: { month } });
  const choose = (value) => setQuery({ month: value === all[0][0] ? null : value });
  const share = (count) => (data.accepted ? percent(count / data.accepted) : undefined);
  const save = () => {
    const lines = data.data.map((day) => [day.date, day.accepted, day.delivered, day.bounced, day.complained, day.failed].join(","));
    saveFile(new Blob([["date,accepted,delivered,bounced,complained,failed", ...lines, ""].join("\r\n")], { type: "text/csv" }), `usage-${data.month}.csv`);
  };
  const actions = html`<${SelectField} label="Month" hideLabel value=${month} options=${all} onValue=${choose} /><${Button} icon="download" disabled=${!data} onClick=${save}>Save as CSV<//>`;
  return html`<${Card} title="Usage" actions=${actions}>
    ${error && html`<${ErrorNote} error=${error} retry=${reload} />`}
    ${data ? html`<${Figures} items=${[["Accepted", number(data.accepted)], ["Delivered", number(data.delivered), share(data.delivered)], ["Bounced", number(data.bounced), share(data.bounced)], ["Complained", number(data.complained), share(data.complained)], ["Failed", number(data.failed), share(data.failed)]]} />` : !error && html`<${Skeleton} lines=${2} />`}
  <//>`;
}

function LogCheck() {
  const [verdict, setVerdict] = useState(null);
  const [check, { busy, error }] = useAction(async () => setVerdict({ ...(await call("GET /v1/account/verify")), at: new Date().toISOString() }));
  return html`<${Card} title="Account log" actions=${html`<${Button} to="/audit">Show the log<//>`}><div class="stack">
    <p>Each log entry contains the hash of the previous one, so any change or gap breaks the chain.</p>
    <div role="status">${verdict && (verdict.intact ? html`<${Notice} tone="good" title="The log is intact.">Every entry matches the previous one. Checked <${Time} at=${verdict.at} />.<//>` : html`<${Notice} tone="bad" title=${`The log is broken at entry ${verdict.brokenAt}.`}>${verdict.problem}<//>`)}</div>
    <${ErrorNote} error=${error} />
    <div class="row"><${Button} icon="shield-check" busy=${busy} onClick=${check}>Check the log<//></div></div><//>`;
}
