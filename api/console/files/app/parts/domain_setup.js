// The set-up of one domain: its records, the checks, the keys, the settings.
import { call, session, useAction, useCall, useInterval } from "../core/api.js";
import { go } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Button, Card, Chip, Confirm, COPY_REFUSED, CopyLine, copyText, Dialog, ErrorNote, Facts, fieldError, Form, Menu, Notice, PageHead, Skeleton, TextField, Time, toast } from "../core/ui.js";
import { duration, html, useEffect, useRef, useState } from "../core/view.js";
import { CloudflareDialog } from "./domain_cloudflare.js";
import { DmarcAdvice, RecordTable, usualZone, zoneFile, ZoneChoice, ZoneHint } from "./domain_records.js";

const FIRST_WAIT_MS = 10_000;
const MAX_WAIT_MS = 300_000;
const loadNumbers = () => import("./message_numbers.js");

/** The page of one domain. */
export function Domain({ id, service }) {
  const state = useCall("GET /v1/domains/{id}/setup", { path: { id } });
  const [fresh, setFresh] = useState(null); // the reply of the newest check or change
  const domain = fresh ?? state.data;
  if (!domain) return html`<${PageHead} title="Domain" back=${["/domains", "Domains"]} />${state.error ? html`<${ErrorNote} error=${state.error} retry=${state.reload} />` : html`<${Skeleton} lines=${8} />`}`;
  const dnsHost = domain.dnsHost ?? state.data?.dnsHost ?? null;
  return html`<${DomainView} domain=${domain} dnsHost=${dnsHost} local=${Boolean(service?.local)} onChange=${setFresh} />`;
}

function DomainView({ domain, dnsHost, local, onChange }) {
  const [open, setOpen] = useState(null);
  const [chosen, setForm] = useState(null);
  const form = chosen ?? usualZone(domain.name, dnsHost);
  const checks = useChecks(domain, onChange);
  const close = () => setOpen(null);
  const items = [
    { text: "Rotate the signing keys", icon: "rotate-ccw", why: checks.why, onSelect: () => setOpen("rotate") },
    { text: "Change the return path", icon: "settings", why: checks.why, onSelect: () => setOpen("settings") },
    { text: "Delete domain", icon: "trash-2", danger: true, why: checks.why, onSelect: () => setOpen("delete") },
  ];
  const actions = html`<${Button} icon="refresh-cw" role="member" busy=${checks.busy} onClick=${checks.now}>Check now<//><${Menu} label="More actions" items=${items} />`;
  return html`<${PageHead} title=${domain.name} back=${["/domains", "Domains"]} chip=${html`<${Chip}>${domain.status}<//>`} actions=${actions} lead=${html`<${LastCheck} domain=${domain} checks=${checks} />`} />
    <div class="stack">
      <${Standing} domain=${domain} local=${local} />
      <${ErrorNote} error=${checks.error} retry=${checks.now} />
      <div class="toolbar zone-line">
        <${ZoneChoice} domain=${domain.name} value=${form} onValue=${setForm} />
        <${Button} icon="copy" onClick=${() => copyAll(domain.records)}>Copy all records<//>
        ${(dnsHost === null || dnsHost === "Cloudflare") && html`<${Button} kind=${dnsHost ? "primary" : "plain"} icon="plug" role="member" onClick=${() => setOpen("cloudflare")}>Publish at Cloudflare<//>`}
        <${ZoneHint} dnsHost=${dnsHost} />
      </div>
      <${Records} domain=${local ? simulated(domain) : domain} zone=${form} />
      <${Signing} signing=${domain.signing} domain=${domain} />
      <${OperatorRecords} records=${domain.operatorRecords} />
      <${Lazy} load=${loadNumbers} name="MessageFigures" title="Messages of the last 30 days" query=${{ days: 30, domain: domain.name }} />
    </div>
    ${open === "cloudflare" && html`<${CloudflareDialog} domain=${domain} onClose=${() => { close(); checks.now(); }} />`}
    ${open === "rotate" && html`<${Rotate} domain=${domain} onClose=${(reply) => { close(); if (reply) onChange(reply); }} />`}
    ${open === "settings" && html`<${Settings} domain=${domain} onClose=${(reply) => { close(); if (reply) onChange(reply); }} />`}
    ${open === "delete" && html`<${Confirm} title=${`Delete the domain ${domain.name}?`} typed=${domain.name} confirm="Delete domain" action=${() => call("DELETE /v1/domains/{id}", { path: { id: domain.id } })}
      onClose=${(done) => { close(); if (done) { toast(`Domain ${domain.name} deleted`); go("/domains"); } }}>Sends from its addresses are rejected immediately. Messages already accepted are still delivered; keep the records until then. Keys limited to this domain stay, but can't send.<//>`}`;
}

async function copyAll(records) {
  if (await copyText(zoneFile(records))) toast("All records copied, as lines of a zone file");
  else toast(COPY_REFUSED, { tone: "bad" });
}

/** Return a domain of local mode, whose DNS server answers for every record of a verified domain, without missing ones. */
function simulated(domain) {
  if (domain.status !== "verified") return domain;
  return { ...domain, records: domain.records.map((one) => (one.status === "missing" ? { ...one, status: "simulated" } : one)) };
}

/**
 * Check the records now and again while the page is open: {now, busy, error, nextAt, done, why}. The wait begins at 10 s
 * and doubles to 5 minutes; nothing is checked while the page is hidden, or once every record is found.
 */
function useChecks(domain, onChange) {
  const [check, { busy, error }] = useAction(() => call("POST /v1/domains/{id}/verify", { path: { id: domain.id }, quiet: false }));
  const wait = useRef(FIRST_WAIT_MS);
  const [nextAt, setNextAt] = useState(null);
  const why = session.value?.account.status === "suspended" ? "The account is suspended and read-only." : null;
  const done = domain.records.filter((one) => one.required).every((one) => one.status === "ok") && domain.status === "verified" && !domain.signing.next;
  const run = async () => {
    const reply = await check();
    if (reply) onChange(reply);
  };
  const now = () => {
    wait.current = FIRST_WAIT_MS;
    setNextAt(null);
    return run();
  };
  useEffect(() => {
    if (done || why || busy) return;
    setNextAt(Date.now() + wait.current);
    wait.current = Math.min(MAX_WAIT_MS, wait.current * 2);
  }, [done, why, busy]);
  useInterval(() => {
    if (!done && !why && !busy && nextAt !== null && Date.now() >= nextAt) run();
  }, done || why ? false : 1000);
  return { now, busy, error, nextAt: done || why ? null : nextAt, done, why };
}

/** When the records were checked, and when they are checked again. */
function LastCheck({ domain, checks }) {
  return html`Last check: <${Time} at=${domain.lastCheckedAt} relative />.${" "}
    ${checks.busy ? html`<span role="status">Checking.</span>` : checks.nextAt !== null && html`<${Countdown} until=${checks.nextAt} />`}`;
}

/** The state of the domain in a sentence. */
function Standing({ domain, local }) {
  const required = domain.records.filter((one) => one.required).length;
  const sentence = {
    verified: ["good", "This domain can send.", "Its signing key is published. The records are rechecked automatically."],
    pending: ["warn", "This domain can't send yet.", `Publish the ${required > 1 ? `${required} required records` : "required record"} below at your DNS provider. Changes can take from minutes to hours to appear.`],
    failed: ["bad", "This domain can't send any more.", "Its required record is missing or wrong. Publish it again."],
  }[domain.status];
  return html`<${Notice} tone=${sentence[0]} title=${sentence[1]}>${sentence[2]}
    ${domain.notice && html`<div>${domain.notice}</div>`}
    ${local && html`<div class="note">Local mode: the built-in DNS server acts as if every record were published, so domains can send immediately.</div>`}
  <//>`;
}

function Countdown({ until }) {
  const [now, setNow] = useState(Date.now());
  useInterval(() => setNow(Date.now()), 1000);
  return html`<span class="numeric">Next automatic check in ${duration(Math.max(0, Math.ceil((until - now) / 1000)) * 1000)}.</span>`;
}

/** The records: the required one, the recommended ones, the rest folded. A key that comes or goes is shown with the required one. */
function Records({ domain, zone }) {
  const rotating = [domain.signing.next, domain.signing.retiring].filter(Boolean).map((selector) => `${selector}._domainkey.`);
  const first = domain.records.filter((one) => one.required || rotating.some((start) => one.host.startsWith(start)));
  const second = domain.records.filter((one) => ["return_path", "dmarc"].includes(one.purpose));
  const rest = domain.records.filter((one) => !first.includes(one) && !second.includes(one));
  return html`<${Card} flush title="Required: signing key (DKIM)"><p class="card-body soft">Mailbox providers use this key to verify the signature of your email.</p>
      <${RecordTable} label="Required records" records=${domain.status === "verified" ? first : first.map((one) => ({ ...one, note: null }))} zone=${zone} /><//>
    ${second.length > 0 && html`<${Card} flush title="Recommended: return path and DMARC"><p class="card-body soft">These let your email pass SPF and DMARC for your own domain. The DMARC record is a suggestion; any DMARC policy works.</p>
      <${RecordTable} label="Recommended records" records=${second.map((one) => ({ ...one, note: null }))} zone=${zone} /><//>`}
    ${rest.length > 0 && html`<details class="card"><summary class="card-body">More records (${rest.length}): second signature, receiving email, TLS reports</summary><${RecordTable} label="More records" records=${rest} zone=${zone} notes /></details>`}`;
}

function Signing({ signing, domain }) {
  return html`<${Card} title="Signing keys">
    <${Facts} items=${[
      ["Signs now", signing.selector ? html`<code>${signing.selector}</code>` : html`<span class="soft">none: no record was found yet</span>`],
      signing.next && ["Signs next", html`<code>${signing.next}</code> as soon as a check finds its record`],
      signing.retiring && ["Retired", html`<code>${signing.retiring}</code>; keep its record until <${Time} at=${signing.retiresAt} />`],
      ["Return path", html`<span class="mono">${domain.returnPath.host}</span> <${Chip}>${domain.returnPath.status}<//>`],
      ["Added", html`<${Time} at=${domain.createdAt} />`],
      ["Verified", domain.verifiedAt && html`<${Time} at=${domain.verifiedAt} />`],
      ["Id", html`<${CopyLine} text=${domain.id} />`],
    ]} />
    <${DmarcAdvice} domain=${domain} />
  <//>`;
}

function OperatorRecords({ records }) {
  if (!records.length) return null;
  return html`<details class="card"><summary class="card-body">Records the operator publishes (${records.length})</summary>
    <p class="card-body soft">You don't publish these. They show the whole path of a bounce.</p><${RecordTable} label="Records of the operator" records=${records.map((one) => ({ ...one, note: null }))} zone="full" /></details>`;
}

function Rotate({ domain, onClose }) {
  const [rotate, { busy, error }] = useAction(() => call("POST /v1/domains/{id}/rotate", { path: { id: domain.id } }));
  const submit = async () => {
    const reply = await rotate();
    if (reply === undefined) return;
    toast(reply.signing.next ? "Rotation started. Publish the record of the next key" : "The next key is now in use");
    onClose(reply);
  };
  return html`<${Dialog} title=${`Rotate the signing keys of ${domain.name}`} onClose=${() => onClose(null)} foot=${html`<${Button} onClick=${() => onClose(null)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Rotate keys<//>`}>
    <ol class="numbered">
      <li>The other selector's key becomes the next one. If its record is already published, it signs immediately.</li>
      <li>Otherwise you publish its record. Until a check finds it, the current key keeps signing, so no message is unsigned.</li>
      <li>The previous key stays valid for messages in transit. Keep its record until the time shown on this page.</li>
    </ol>
    <${ErrorNote} error=${error} />
  <//>`;
}

function Settings({ domain, onClose }) {
  const [label, setLabel] = useState(domain.returnPath.label);
  const [save, { busy, error }] = useAction(() => call("PATCH /v1/domains/{id}", { path: { id: domain.id }, body: { returnPathLabel: label.trim() } }));
  const submit = async () => {
    const reply = await save();
    if (reply !== undefined) {
      toast("Return path changed");
      onClose(reply);
    }
  };
  return html`<${Dialog} title=${`Return path of ${domain.name}`} onClose=${() => onClose(null)} foot=${html`<${Button} onClick=${() => onClose(null)}>Cancel<//><${Button} kind="primary" busy=${busy} disabled=${label.trim() === domain.returnPath.label} onClick=${submit}>Save<//>`}>
    <${Form} onSubmit=${submit}>
      <${TextField} label="Label" required value=${label} onValue=${setLabel} error=${fieldError(error, "returnPathLabel")} hint=${`Bounces go to ${label.trim() || "…"}.${domain.name}. Until the new record is found, messages use the instance's own return path.`} />
      <${ErrorNote} error=${error} fields=${["returnPathLabel"]} />
    <//>
  <//>`;
}
