// Hosted MTA-STS policies: mode, records, certificate, warnings, TLS reports.
import { call, useAction, useCall, usePages } from "../core/api.js";
import { href } from "../core/router.js";
import { Button, Card, Chip, CopyLine, Dialog, Empty, ErrorNote, Facts, fieldError, Form, Notice, SelectField, Skeleton, Time, toast } from "../core/ui.js";
import { html, number, useState } from "../core/view.js";
import { DnsRecord } from "./dns_record.js";

const MODES = [["testing", "Testing: senders report failures and deliver anyway"], ["enforce", "Enforce: senders deliver over verified TLS only"], ["none", "None: withdraw the policy"]];
const DAY_S = 86_400;
const AGES = [[DAY_S, "1 day"], [604_800, "1 week"], [2_592_000, "30 days"], [15_552_000, "180 days"], [31_557_600, "1 year"]];
const CERTIFICATE = {
  ok: "The policy host's certificate is valid.",
  missing: "The policy host has no certificate yet.",
  expired: "The certificate has expired.",
  mismatch: "The certificate is for another name.",
  untrusted: "The certificate is not signed by a known authority.",
  unreachable: "The policy host could not be reached. Publish the CNAME record first; the certificate follows.",
};

/** One card for each hosted policy, and the domains that have none. */
export function MtaSts() {
  const state = usePages("GET /v1/inbound/mta-sts", {}, { pollMs: true });
  const domains = useCall("GET /v1/domains", { query: { limit: 100 } });
  const [editing, setEditing] = useState(null); // {domain, policy}
  const known = new Set(state.rows.map((one) => one.domain));
  const lacking = (domains.data?.data ?? []).filter((one) => one.status === "verified" && !known.has(one.name));
  const create = html`<${Button} kind="primary" icon="plus" role="member" why=${lacking.length ? undefined : "Every verified domain has a policy; verify another domain first."} onClick=${() => setEditing({ domain: lacking[0].name })}>New policy<//>`;
  const reload = () => {
    state.reload();
    domains.reload();
  };
  if (state.error && state.rows.length === 0) return html`<${ErrorNote} error=${state.error} retry=${state.reload} />`;
  if (state.loading && state.rows.length === 0) return html`<${Skeleton} />`;
  const curl = `curl -X PUT ${window.location.origin}/v1/inbound/mta-sts/example.com -H "Authorization: Bearer $KEY" \\\n  -H "Content-Type: application/json" -d '{"mode": "testing"}'`;
  return html`<div class="stack">${state.rows.length > 0 && html`<div class="row-wide"><span class="soft">Start with testing, read the TLS reports for a few weeks, then enforce.</span>${create}</div>`}
    ${state.rows.length === 0 && html`<div class="card"><${Empty} icon="lock" title="No MTA-STS policy" action=${create} curl=${curl}>Without a policy, an attacker between two mail servers can turn TLS off. Waybill hosts the policy and its certificate; you publish two records.<//></div>`}
    ${state.rows.map((policy) => html`<${Policy} key=${policy.domain} policy=${policy} records=${recordsOf(domains.data, policy.domain)} onEdit=${() => setEditing({ domain: policy.domain, policy })} onChecked=${reload} />`)}
    ${state.next && html`<div><${Button} busy=${state.loading} onClick=${state.next}>Show more<//></div>`}</div>
    ${editing && html`<${EditPolicy} ...${editing} choices=${lacking.map((one) => one.name)} onClose=${(done) => { setEditing(null); if (done) reload(); }} />`}`;
}

const recordsOf = (page, name) => (page?.data.find((one) => one.name === name)?.records ?? []).filter((one) => one.purpose === "tls_rpt" || (one.purpose === "mta_sts" && one.type === "CNAME"));

function Policy({ policy, records, onEdit, onChecked }) {
  const [verify, { busy, error }] = useAction(() => call("POST /v1/inbound/mta-sts/{domain}/verify", { path: { domain: policy.domain } }));
  const check = async () => {
    const found = await verify();
    if (found === undefined) return;
    toast(found.live ? `The policy of ${policy.domain} is live` : `The policy of ${policy.domain} is not live yet`, { tone: found.live ? "good" : "info" });
    onChecked();
  };
  const actions = html`<${Chip} tone=${policy.live ? "good" : "warn"}>${policy.live ? "live" : "not live"}<//><${Button} icon="refresh-cw" role="member" busy=${busy} onClick=${check}>Check now<//><${Button} icon="pencil" role="member" onClick=${onEdit}>Change<//>`;
  const { tlsReports } = policy;
  return html`<${Card} title=${policy.domain} actions=${actions}><div class="stack">
    ${policy.warnings.map((text) => html`<${Notice} tone="warn" key=${text}>${text}<//>`)}<${ErrorNote} error=${error} />
    <${Facts} items=${[
      ["Mode", html`<${Chip}>${policy.mode}<//>`],
      ["Cached by senders for", `${number(Math.round(policy.maxAge / DAY_S))} days`],
      ["Mail servers", policy.mx.join(", ")],
      ["Certificate", html`<${Chip}>${policy.certificate}<//> <span class="small soft">${CERTIFICATE[policy.certificate]}</span>`],
      ["Policy", html`<${CopyLine} text=${policy.url} />`],
      ["TLS reports, 30 days", tlsReports.lastReportAt ? html`${number(tlsReports.sessions)} sessions, <span class=${tlsReports.failures ? "bad" : ""}>${number(tlsReports.failures)} failures</span>, last report <${Time} at=${tlsReports.lastReportAt} relative /> · <a href=${href("/deliverability/tls")}>causes</a>` : "None yet. Mailbox providers send them once a day if the record below is published."],
      ["Changed", html`<${Time} at=${policy.updatedAt} />`],
      ["Checked", html`<${Time} at=${policy.checkedAt} relative />`],
    ]} />
    <h3>Records to publish</h3>
    <${DnsRecord} record=${{ type: "TXT", host: `_mta-sts.${policy.domain}`, value: `v=STSv1; id=${policy.policyId}`, status: policy.txt }} note=${policy.txt === "stale" ? "The policy changed. Publish the new id so senders fetch it." : null} />
    ${records.map((record) => html`<${DnsRecord} key=${record.host} record=${record.type === "CNAME" ? { ...record, status: policy.cname } : record} note=${record.type === "CNAME" ? null : "Asks senders for reports about TLS."} />`)}</div><//>`;
}

function EditPolicy({ domain, policy, choices, onClose }) {
  const [draft, setDraft] = useState({ domain, mode: policy?.mode ?? "testing", maxAge: policy?.maxAge ?? 604_800 });
  const [save, { busy, error }] = useAction(() => call("PUT /v1/inbound/mta-sts/{domain}", { path: { domain: draft.domain }, body: { mode: draft.mode, maxAge: Number(draft.maxAge) } }));
  const submit = async () => {
    const saved = await save();
    if (saved === undefined) return;
    toast("Policy saved. Publish its new id in DNS");
    onClose(true);
  };
  const ages = AGES.some(([value]) => value === draft.maxAge) ? AGES : [[draft.maxAge, `${Math.round(draft.maxAge / DAY_S)} days`], ...AGES];
  return html`<${Dialog} title=${policy ? `Policy of ${domain}` : "New MTA-STS policy"} onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Save policy<//>`}>
    <${Form} onSubmit=${submit}>
      ${!policy && html`<${SelectField} label="Domain" value=${draft.domain} onValue=${(value) => setDraft({ ...draft, domain: value })} options=${choices.map((one) => [one, one])} />`}
      <${SelectField} label="Mode" value=${draft.mode} onValue=${(mode) => setDraft({ ...draft, mode })} options=${MODES} error=${fieldError(error, "mode")} />
      <${SelectField} label="Senders cache the policy for" value=${draft.maxAge} onValue=${(maxAge) => setDraft({ ...draft, maxAge })} options=${ages} error=${fieldError(error, "maxAge")} />
      ${draft.mode === "enforce" && policy?.mode !== "enforce" && html`<${Notice} tone="warn">Email isn't delivered to servers missing from the policy. Every MX record of the domain must point to this instance.<//>`}
      ${draft.mode === "none" && html`<${Notice}>To withdraw a policy, keep mode none with 1 day until the previous cache time has passed, then remove the records (RFC 8461, section 8.3).<//>`}
      <${ErrorNote} error=${error} fields=${["mode", "maxAge"]} /><//><//>`;
}
