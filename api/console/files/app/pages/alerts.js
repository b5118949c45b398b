// Alerts: rules, whether they fire, and the history of firings.
import { call, notices, useAction, useCall, usePages, whyNot } from "../core/api.js";
import { href, location, setQuery } from "../core/router.js";
import { Button, Card, CheckField, Chip, Confirm, Dialog, Empty, ErrorNote, fieldError, Form, Menu, Notice, PageHead, SelectField, Skeleton, Tabs, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { ago, classes, duration, html, number, plural, shortPercent, useState } from "../core/view.js";
import { NoticeLine } from "../parts/notices.js";

const TEXTS = {
  bounce_rate: ["Bounce rate", "Share of recipients that bounced permanently. Mailbox providers limit senders above a few percent."],
  complaint_rate: ["Complaint rate", "Share of recipients who reported spam. Gmail and Yahoo block senders above 0.3%."],
  quota_usage: ["Monthly limit", "Share of this month's messages you have used."],
  dns_drift: ["Changed DNS records", "Records of your domains that were correct before and are now missing or wrong."],
  blocklist: ["Blocklists", "Blocklists that contain an IP address or domain your email is sent from."],
  webhook_failing: ["Failing webhooks", "Active webhook endpoints whose posts fail."],
};
export const ruleName = (kind) => TEXTS[kind]?.[0] ?? kind;
const MIN_SETTLED = 50; // finished recipients from which a rate counts (engine/accounts/alerts/types.py)
const TABS = [["rules", "Rules"], ["history", "History"]];

/** Return a value of a rule with its unit: 0.3%, 2 records. */
export function ruleValue(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "fraction") return shortPercent(value);
  return plural(value, { lists: "list", endpoints: "endpoint" }[unit] ?? "record");
}

export function Alerts() {
  const rules = useCall("GET /v1/alerts/rules", {}, { pollMs: true });
  const tab = location.value.query.get("tab") ?? "rules";
  const units = Object.fromEntries((rules.data?.vocabulary ?? []).map((one) => [one.kind, one]));
  return html`<${PageHead} title="Alerts" lead="Rules are checked every minute. When one fires, owners and admins get an email and webhooks get alert.fired and alert.ended." actions=${rules.data && html`<${AddRule} rules=${rules} />`} />
    <${FiringNow} />
    <${Tabs} label="Alerts" items=${TABS} current=${tab} onSelect=${(key) => setQuery({ tab: key === "rules" ? null : key })} />
    ${tab === "rules" ? html`<${Rules} rules=${rules} units=${units} />` : html`<${History} units=${units} />`}`;
}

/** The notices of the bell about alerts and webhooks, with what can be done on their pages. */
function FiringNow() {
  const firing = notices.value.data.filter(({ kind }) => kind === "alert_firing" || kind.startsWith("webhook_"));
  if (firing.length === 0) return null;
  return html`<div class="firing"><${Card} title="Firing now"><ul aria-label="Firing now">${firing.map((one) => html`<${NoticeLine} key=${one.id} notice=${one} unread=${one.unread} />`)}</ul><//></div>`;
}

/** Return a function that creates the rule of a kind, without one the missing default rules, and its state. */
function useCreation(rules) {
  const [create, state] = useAction((one) => call("POST /v1/alerts/rules", one && { body: { kind: one.kind, threshold: one.defaults.threshold } }));
  const run = async (one) => {
    const made = await create(one);
    if (made === undefined) return;
    toast(one ? `“${ruleName(one.kind)}” created` : `${plural(made.data.length, "rule")} created`);
    rules.reload();
  };
  return [run, state];
}

/** The menu of the kinds without a rule, and of the default rules if several are missing. */
function AddRule({ rules }) {
  const [run, { error, clear }] = useCreation(rules);
  const lacking = rules.data.vocabulary.filter((one) => !rules.data.data.some((rule) => rule.kind === one.kind));
  const why = whyNot("member");
  const items = [
    rules.data.data.length > 0 && lacking.filter((one) => one.preset).length > 1 && { text: "All missing default rules", icon: "list", why, onSelect: () => run() },
    ...lacking.map((one) => ({ text: ruleName(one.kind), icon: "plus", why, onSelect: () => run(one) })),
  ];
  if (lacking.length === 0) return null;
  return html`<${Menu} label="Add rule" text="Add rule" kind="plain" items=${items} />
    ${error && html`<${Dialog} title="The rule was not created" onClose=${clear}><${ErrorNote} error=${error} /><//>`}`;
}

/** The button of an empty page. */
function DefaultRules({ rules }) {
  const [run, { busy, error }] = useCreation(rules);
  return html`<div class="stack-tight"><div><${Button} kind="primary" icon="plus" role="member" busy=${busy} onClick=${() => run()}>Create the default rules<//></div><${ErrorNote} error=${error} /></div>`;
}

function Rules({ rules, units }) {
  const [editing, setEditing] = useState(null);
  const [removing, setRemoving] = useState(null);
  const [testing, setTesting] = useState(null);
  if (rules.error && !rules.data) return html`<${ErrorNote} error=${rules.error} retry=${rules.reload} />`;
  if (!rules.data) return html`<${Skeleton} />`;
  if (rules.data.data.length === 0) {
    return html`<div class="card"><${Empty} icon="bell" title="No alert rules" action=${html`<${DefaultRules} rules=${rules} />`} curl=${`curl -X POST ${window.location.origin}/v1/alerts/rules -H "Authorization: Bearer $KEY"`}>Rules warn you early about rising bounces or complaints, a nearly used-up limit, a changed DNS record or a blocklist.<//></div>`;
  }
  const done = () => {
    setEditing(null);
    setRemoving(null);
    rules.reload();
  };
  const rows = [...rules.data.data].sort((one, other) => (other.state === "firing") - (one.state === "firing"));
  const unitOf = (rule) => units[rule.kind]?.unit;
  const columns = [
    { title: "Rule", width: "34%", cell: (rule) => html`<div><div class="strong">${ruleName(rule.kind)}</div><div class="small soft">${TEXTS[rule.kind]?.[1]}</div></div>` },
    { title: "Now", width: "9rem", cell: (rule) => html`<${Value} rule=${rule} unit=${unitOf(rule)} />` },
    { title: "Fires at", cell: (rule) => html`<div class="nowrap">${ruleValue(rule.threshold, unitOf(rule))}${isRate(rule) && html`<div class="small soft">in ${rule.windowDays === 1 ? "24 hours" : plural(rule.windowDays, "day")}</div>`}</div>` },
    { title: "State", narrow: "aside", cell: (rule) => html`<div><${State} rule=${rule} unit=${unitOf(rule)} />${rule.firingSince && html`<div class="small soft nowrap">since <${Time} at=${rule.firingSince} minute /></div>`}</div>` },
    { title: "Alerts", narrow: "bare", cell: (rule) => html`<span class="small">${channels(rule)}</span>` },
    { title: "Actions", hideTitle: true, cell: (rule) => html`<${RuleMenu} rule=${rule} onEdit=${() => setEditing(rule)} onRemove=${() => setRemoving(rule)} onTest=${() => setTesting(rule)} onDone=${rules.reload} />` },
  ];
  return html`<${Table} label="Rules" columns=${columns} state=${{ ...rules, rows }} />
    ${rows.some(isRate) && html`<p class="small soft note">Rates count finished recipients in their period, from ${MIN_SETTLED} on, without email to simulator addresses, which <a href=${href("/messages")}>Messages</a> includes.</p>`}
    ${editing && html`<${EditRule} rule=${editing} vocabulary=${units[editing.kind]} onClose=${done} />`}
    ${testing && html`<${TestRule} rule=${testing} unit=${units[testing.kind]?.unit} onClose=${() => setTesting(null)} />`}
    ${removing && html`<${Confirm} title=${`Delete the rule “${ruleName(removing.kind)}”?`} confirm="Delete rule" action=${() => call("DELETE /v1/alerts/rules/{id}", { path: { id: removing.id } })} onClose=${done}>You won't be alerted about this any more. Past alerts are kept.<//>`}`;
}

const OFTEN = { __proto__: null, 60: "hourly", 1440: "daily", 10_080: "weekly" };

/** Return in words how a rule alerts, and how often at most: "email and webhook, at most daily". */
function channels(rule) {
  const names = [rule.notifyEmail && "email", rule.notifyWebhook && "webhook"].filter(Boolean);
  if (names.length === 0) return "none";
  return `${names.join(" and ")}, at most ${OFTEN[rule.cooldownMinutes] ?? `once every ${duration(rule.cooldownMinutes * 60_000)}`}`;
}

/** True for a rule of a share of recipients. */
const isRate = ({ kind }) => kind === "bounce_rate" || kind === "complaint_rate";

/** The last value, and a bar of it with a mark at the threshold. */
function Value({ rule, unit }) {
  const { lastValue, threshold, lastMeasuredAt, kind } = rule;
  if (lastValue === null) return html`<span class="soft">–</span>`;
  const scale = Math.max(threshold * 1.25, lastValue);
  const share = (value) => ({ width: `${(value / scale) * 100}%` });
  return html`<div class="grow" title=${`Measured ${ago(lastMeasuredAt)}`}><span class="numeric">${ruleValue(lastValue, unit)}</span>
    <div class=${classes("meter marked", lastValue >= threshold ? "bad" : lastValue >= 0.8 * threshold && "warn")} role="meter" aria-label=${`${ruleName(kind)}: value against threshold`} aria-valuemin="0" aria-valuemax=${scale} aria-valuenow=${lastValue}><span style=${share(lastValue)}></span><i style=${share(threshold)}></i></div></div>`;
}

function State({ rule, unit }) {
  if (!rule.enabled) return html`<${Chip} tone="">off<//>`;
  if (!rule.lastMeasuredAt) return html`<${Chip} tone="">not measured yet<//>`;
  if (rule.state === "unknown") return html`<${Chip} tone="">${unit === "fraction" ? "not enough email" : "not measured yet"}<//>`;
  return html`<${Chip}>${rule.state}<//>`;
}

function RuleMenu({ rule, onEdit, onRemove, onTest, onDone }) {
  const title = ruleName(rule.kind);
  const [enable] = useAction((enabled) => call("PATCH /v1/alerts/rules/{id}", { path: { id: rule.id }, body: { enabled } }));
  const flip = async () => {
    if ((await enable(!rule.enabled)) === undefined) return;
    toast(rule.enabled ? `“${title}” is off` : `“${title}” is on`);
    onDone();
  };
  const items = [
    { text: "Edit", icon: "pencil", onSelect: onEdit },
    { text: "Send a test alert", icon: "send", onSelect: onTest },
    { text: rule.enabled ? "Turn off" : "Turn on", icon: rule.enabled ? "pause" : "play", onSelect: flip },
    { text: "Delete", icon: "trash-2", danger: true, onSelect: onRemove },
  ];
  return html`<${Menu} label=${`Actions of ${title}`} items=${items} />`;
}

function EditRule({ rule, vocabulary, onClose }) {
  const fraction = vocabulary.unit === "fraction";
  const scale = fraction ? 100 : 1;
  const [threshold, setThreshold] = useState(String(Number((rule.threshold * scale).toFixed(4))));
  const [windowDays, setWindowDays] = useState(String(rule.windowDays ?? 1));
  const [cooldown, setCooldown] = useState(String(rule.cooldownMinutes));
  const [mail, setMail] = useState(rule.notifyEmail);
  const [hook, setHook] = useState(rule.notifyWebhook);
  const rate = fraction && rule.kind !== "quota_usage";
  const [save, { busy, error }] = useAction(() => call("PATCH /v1/alerts/rules/{id}", { path: { id: rule.id }, body: { threshold: Number((Number(threshold) / scale).toFixed(6)), ...(rate && { windowDays: Number(windowDays) }), cooldownMinutes: Number(cooldown), notifyEmail: mail, notifyWebhook: hook } }));
  const submit = async () => {
    if ((await save()) === undefined) return;
    toast(`“${ruleName(rule.kind)}” saved`);
    onClose();
  };
  const days = Array.from({ length: 30 }, (_, at) => [String(at + 1), at === 0 ? "24 hours" : `${at + 1} days`]);
  return html`<${Dialog} title=${`Edit “${ruleName(rule.kind)}”`} onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Save<//>`}>
    <${Form} onSubmit=${submit}>
      <${TextField} label=${fraction ? "Fires at (percent)" : `Fires at (${vocabulary.unit})`} type="number" min="0" step="any" required value=${threshold} onValue=${setThreshold} hint=${`Maximum ${ruleValue(vocabulary.maximum, vocabulary.unit)}. Default ${ruleValue(vocabulary.defaults.threshold, vocabulary.unit)}.`} error=${fieldError(error, "threshold")} />
      ${rate && html`<${SelectField} label="Period" value=${windowDays} onValue=${setWindowDays} options=${days} />`}
      <${TextField} label="Minimum minutes between two alerts" type="number" min="5" max="43200" required value=${cooldown} onValue=${setCooldown} error=${fieldError(error, "cooldownMinutes")} />
      <${CheckField} label="Email owners and admins" checked=${mail} onChecked=${setMail} />
      <${CheckField} label="Webhooks" hint="Posts alert.fired and alert.ended to endpoints subscribed to them." checked=${hook} onChecked=${setHook} />
      <${ErrorNote} error=${error} fields=${["threshold", "cooldownMinutes"]} />
    <//>
  <//>`;
}

function TestRule({ rule, unit, onClose }) {
  const [run, { busy, error }] = useAction(() => call("POST /v1/alerts/rules/{id}/test", { path: { id: rule.id } }));
  const [reply, setReply] = useState(null);
  const send = async () => setReply((await run()) ?? null);
  return html`<${Dialog} title=${`Test “${ruleName(rule.kind)}”`} onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Close<//>${!reply && html`<${Button} kind="primary" busy=${busy} onClick=${send}>Send the test alert<//>`}`}>
    ${reply ? html`<${Notice} tone="good">Sent by ${reply.channels.map((one) => one).join(" and ") || "no channel, because all are off"}. Current value ${ruleValue(reply.value, unit)}, threshold ${ruleValue(reply.threshold, unit)}.<//>` : html`<p>Measures the rule now and sends an alert marked as a test to its channels. The rule's state doesn't change.</p>`}
    <${ErrorNote} error=${error} />
  <//>`;
}

function History({ units }) {
  const state = usePages("GET /v1/alerts/events", {}, { pollMs: true });
  const columns = [
    { title: "Alert", cell: (row) => html`<span class="strong">${ruleName(row.kind)}</span>` },
    { title: "Value", end: true, cell: (row) => ruleValue(row.value, units[row.kind]?.unit) },
    { title: "Threshold", end: true, cell: (row) => ruleValue(row.threshold, units[row.kind]?.unit) },
    { title: "Fired", cell: (row) => html`<${Time} at=${row.firedAt} />` },
    { title: "Ended", cell: (row) => (row.endedAt ? html`<${Time} at=${row.endedAt} />` : html`<${Chip}>firing<//>`) },
    { title: "Detail", cell: (row) => html`<${Detail} detail=${row.detail} />` },
  ];
  return html`<${Table} label="Past alerts" columns=${columns} state=${state} empty=${html`<${Empty} icon="bell" title="No alert has fired">Past alerts appear here with the measured value.<//>`} />`;
}

/** The facts of a firing: names with their values, lists joined. */
function Detail({ detail }) {
  const entries = Object.entries(detail ?? {});
  if (entries.length === 0) return html`<span class="soft">–</span>`;
  const text = (value) => (Array.isArray(value) ? value.map(text).join("; ") : value !== null && typeof value === "object" ? Object.values(value).map(text).join(" ") : typeof value === "number" ? number(value) : String(value));
  return html`<ul class="small">${entries.map(([name, value]) => html`<li class="wrap"><span class="soft">${name.replaceAll("_", " ")}: </span>${text(value)}</li>`)}</ul>`;
}
