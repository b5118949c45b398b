// The form that creates an API key.
import { call, useAction, useCall } from "../core/api.js";
import { Button, CheckField, Dialog, ErrorNote, fieldError, Form, Segments, SelectField, TextField } from "../core/ui.js";
import { html, instant, serviceNow, useState } from "../core/view.js";
import { PRESETS, presetOf, SCOPE_AREAS } from "./scopes.js";

const EXPIRIES = [["", "Never"], ["7", "In 7 days"], ["30", "In 30 days"], ["90", "In 90 days"], ["365", "In a year"], ["own", "At a date"]];
const DAY_MS = 86_400_000;

/** The dialog "Create key"; `onClose` gets the reply with the token, or null. */
export function NewKey({ onClose }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState(["emails:send"]);
  const [own, setOwn] = useState(false);
  const [limits, setLimits] = useState({ domains: [], streams: [], networks: "" });
  const [origins, setOrigins] = useState("");
  const [agent, setAgent] = useState({ recipients: "", approval: false });
  const [expiry, setExpiry] = useState({ days: "", date: "" });
  const onlyReads = scopes.length > 0 && scopes.every((scope) => scope.endsWith(":read"));
  const forAgent = scopes.includes("emails:send") && scopes.every((scope) => scope === "emails:send" || scope.endsWith(":read"));
  const [create, { busy, error }] = useAction(() => call("POST /v1/api-keys", { body: bodyOf(name, scopes, { ...limits, allowedOrigins: onlyReads ? origins : "", agent: forAgent ? agent : null }, expiry) }));
  const submit = async () => {
    const made = await create();
    if (made !== undefined) onClose(made);
  };
  const preset = own ? "own" : presetOf(scopes);
  const choose = (key) => {
    setOwn(key === "own");
    const found = PRESETS.find(([one]) => one === key);
    if (found) setScopes(found[2]);
  };
  const fields = ["name", "scopes", "domains", "streams", "networks", "allowedOrigins", "agent", "agent.recipients", "expiresAt"];
  return html`<${Dialog} title="Create an API key" wide onClose=${() => onClose(null)} foot=${html`<${Button} onClick=${() => onClose(null)}>Cancel<//><${Button} kind="primary" role="admin" busy=${busy} disabled=${scopes.length === 0} onClick=${submit}>Create key<//>`}>
    <${Form} onSubmit=${submit}>
      <${TextField} label="Name" required autofocus maxlength="120" placeholder="Shop, production" value=${name} onValue=${setName} error=${fieldError(error, "name")} hint="The application that will use it." />
      <fieldset><legend>Permissions</legend>
        <${Segments} label="Preset of scopes" options=${[...PRESETS.map(([key, text]) => [key, text]), ["own", "Chosen scopes"]]} value=${preset} onValue=${choose} />
        ${fieldError(error, "scopes") && html`<span class="bad small">${fieldError(error, "scopes")}</span>`}
      </fieldset>
    <//>
    ${preset === "own" && html`<${ScopeChoice} scopes=${scopes} onScopes=${setScopes} />`}
    <${Limits} limits=${limits} onLimits=${setLimits} error=${error} />
    ${forAgent && html`<${AgentRules} agent=${agent} onAgent=${setAgent} error=${error} />`}
    <${Form} onSubmit=${submit}>
      ${onlyReads && html`<${TextField} label="Web pages that can read with it" rows=${2} mono value=${origins} onValue=${setOrigins} error=${fieldError(error, "allowedOrigins")} hint="Origins such as https://app.example.com or http://localhost:3000, one per line. Visitors of these pages can see the key. Leave blank to allow none." />`}
      <${SelectField} label="Expires" value=${expiry.days} onValue=${(days) => setExpiry({ ...expiry, days })} options=${EXPIRIES} error=${expiry.days === "own" ? null : fieldError(error, "expiresAt")} />
      ${expiry.days === "own" && html`<${TextField} label="Date and time, in your time zone" type="datetime-local" required value=${expiry.date} onValue=${(date) => setExpiry({ ...expiry, date })} error=${fieldError(error, "expiresAt")} />`}
      <${ErrorNote} error=${error} fields=${fields} />
    <//>
  <//>`;
}

function bodyOf(name, scopes, limits, expiry) {
  const networks = wordsOf(limits.networks);
  const allowedOrigins = wordsOf(limits.allowedOrigins);
  return {
    name,
    scopes,
    ...(limits.domains.length && { domains: limits.domains }),
    ...(limits.streams.length && { streams: limits.streams }),
    ...(networks.length && { networks }),
    ...(allowedOrigins.length && { allowedOrigins }),
    ...agentOf(limits.agent),
    ...expiresAt(expiry),
  };
}

function agentOf(agent) {
  const recipients = wordsOf(agent?.recipients ?? "");
  if (!recipients.length && !agent?.approval) return {};
  return { agent: { ...(recipients.length && { recipients }), approval: agent.approval ? "required" : "none" } };
}

const wordsOf = (text) => text.split(/[\s,]+/).filter(Boolean);

function expiresAt({ days, date }) {
  if (days === "own") return date ? { expiresAt: instant(date) } : {};
  return days ? { expiresAt: new Date(serviceNow() + Number(days) * DAY_MS).toISOString() } : {};
}

function ScopeChoice({ scopes, onScopes }) {
  const chosen = new Set(scopes);
  const set = (scope, on) => onScopes(on ? [...scopes, scope] : scopes.filter((one) => one !== scope));
  return html`<div class="choices">${SCOPE_AREAS.map(([area, all]) => html`<fieldset key=${area}><legend>${area}</legend>
    ${all.map(([scope, sentence]) => html`<${CheckField} key=${scope} label=${html`<code>${scope}</code>`} hint=${sentence} checked=${chosen.has(scope)} onChecked=${(on) => set(scope, on)} />`)}</fieldset>`)}</div>`;
}

/** What an agent with this key can send: to whom, and whether a person approves. */
function AgentRules({ agent, onAgent, error }) {
  const refused = fieldError(error, "agent") ?? fieldError(error, "agent.recipients");
  return html`<details open=${refused ? true : undefined}><summary>Limit what it sends, for AI agents</summary><div class="choices note">
    <${TextField} label="Recipients" rows=${3} mono value=${agent.recipients} onValue=${(recipients) => onAgent({ ...agent, recipients })} error=${refused} hint="The only recipients: addresses, or domains such as @example.com, one per line. Leave blank to allow any." />
    <${CheckField} label="A person approves each email" hint="Emails wait under Approvals until somebody sends or declines them." checked=${agent.approval} onChecked=${(approval) => onAgent({ ...agent, approval })} />
  </div></details>`;
}

/** Limits besides scopes: domains, streams, networks. */
function Limits({ limits, onLimits, error }) {
  const domains = useCall("GET /v1/domains", { query: { limit: 100 } });
  const streams = useCall("GET /v1/streams", { query: { limit: 100 } });
  const toggle = (field, value, on) => onLimits({ ...limits, [field]: on ? [...limits[field], value] : limits[field].filter((one) => one !== value) });
  const boxes = (field, values) => values.map(([value, text]) => html`<${CheckField} key=${value} label=${text} checked=${limits[field].includes(value)} onChecked=${(on) => toggle(field, value, on)} />`);
  const refused = ["domains", "streams", "networks"].some((field) => fieldError(error, field));
  return html`<details open=${refused || undefined}><summary>Limit it to domains, streams or networks</summary><div class="choices note">
    <fieldset><legend>Domains</legend>${boxes("domains", (domains.data?.data ?? []).map((one) => [one.name, one.name]))}<span class="soft small">Leave empty to allow all, including ones added later.</span>${fieldError(error, "domains") && html`<span class="bad small">${fieldError(error, "domains")}</span>`}</fieldset>
    <fieldset><legend>Streams</legend>${boxes("streams", (streams.data?.data ?? []).map((one) => [one.id, one.name]))}<span class="soft small">Leave empty to allow all, including ones added later.</span>${fieldError(error, "streams") && html`<span class="bad small">${fieldError(error, "streams")}</span>`}</fieldset>
    <${TextField} label="Networks" rows=${3} mono value=${limits.networks} onValue=${(networks) => onLimits({ ...limits, networks })} error=${fieldError(error, "networks")} hint="Where the key works, such as 203.0.113.0/24 or 2001:db8::/32, one per line. Leave blank to allow any address." />
  </div></details>`;
}
