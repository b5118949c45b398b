// DNS records to publish: what to copy, and what was found instead.
import { Chip, CopyLine, Notice, SelectField } from "../core/ui.js";
import { html } from "../core/view.js";
import { closest, differences, mistakes, relativeName, suffixes } from "./compare.js";

// DNS hosts whose form wants the whole name; the others append the zone to what is entered.
const WHOLE_NAME = ["Google Cloud DNS", "Google"];

/** The choice of how names are shown: "full", or a zone to which they are relative. */
export function ZoneChoice({ domain, dnsHost, value, onValue }) {
  const options = [["full", "Whole names"], ...suffixes(domain).map((zone) => [zone, `Names for the zone ${zone}`])];
  const hint = dnsHost ? `DNS is at ${dnsHost}. Its form takes the name ${WHOLE_NAME.includes(dnsHost) ? "whole" : "relative to the zone: choose the zone here"}.` : "Most DNS hosts take the name relative to the zone and append the zone themselves.";
  return html`<div class="zone-choice"><${SelectField} label="Names of records" value=${value} onValue=${onValue} options=${options} hint=${hint} /></div>`;
}

/** Records below each other: name, type, value to copy, state, differences. */
export function RecordList({ records, domain, zone }) {
  return html`<ul class="domain-records">${records.map((record) => html`<${RecordItem} key=${`${record.type} ${record.host}`} record=${record} domain=${domain} zone=${zone} />`)}</ul>`;
}

function RecordItem({ record, domain, zone }) {
  const name = zone === "full" ? record.host : relativeName(record.host, zone);
  const [priority, server] = record.type === "MX" ? record.value.split(/\s+/) : [null, record.value];
  return html`<li class="domain-record" aria-label=${`${record.type} ${record.host}`}>
    <div class="row"><strong>${record.type}</strong><${Chip}>${record.status}<//>${record.required ? html`<${Chip} tone="accent">required<//>` : html`<span class="soft small">optional</span>`}</div>
    <dl class="facts">
      <dt>Name</dt><dd><${CopyLine} text=${name} label=${`Copy the name ${name}`} /></dd>
      ${priority && html`<dt>Priority</dt><dd><${CopyLine} text=${priority} label=${`Copy the priority of ${name}`} /></dd>`}
      <dt>Value</dt><dd><${CopyLine} text=${server} label=${`Copy the value of ${name}`} /></dd>
      <${Found} record=${record} />
    </dl>
    ${record.note && html`<p class="soft small">${record.note}</p>`}
    ${record.problem && html`<${Notice} tone="warn">${record.problem}<//>`}
  </li>`;
}

function Found({ record }) {
  const found = closest(record, record.found);
  if (record.status === "ok") return found !== null && found !== record.value ? html`<dt>Found</dt><dd><code class="wrap">${record.found.join(", ")}</code><div class="soft small">It differs from the value and does the same.</div></dd>` : null;
  if (found === null) return html`<dt>Found</dt><dd class=${record.mistake ? "bad small" : "soft small"}>${record.mistake ?? "Nothing at this name."}</dd>`;
  const sentences = mistakes(record);
  return html`<dt>Found</dt><dd class="stack-tight">
    <${Compared} wanted=${record.value} found=${found} />
    ${record.found.length > 1 && html`<div class="soft small">And at the same name: ${record.found.filter((one) => one !== found).map((one) => html`<code class="wrap" key=${one}>${one}</code> `)}</div>`}
    ${sentences.map((one) => html`<div class="bad small" key=${one}>${one}</div>`)}
  </dd>`;
}

const FOLDED = 48; // longer equal runs are shown with their ends only
const ENDS = 16;

/** Two lines, wanted and found, with what differs marked. */
export function Compared({ wanted, found }) {
  const pieces = differences(wanted, found);
  const line = (skip) => pieces.filter(([kind]) => kind !== skip).map(([kind, text], at) => {
    if (kind === "missing") return html`<del key=${at}>${text}</del>`;
    if (kind === "extra") return html`<ins key=${at}>${text}</ins>`;
    if (text.length <= FOLDED) return text;
    return html`${text.slice(0, ENDS)}<span class="soft" title=${text}> … ${text.length - 2 * ENDS} equal … </span>${text.slice(-ENDS)}`;
  });
  return html`<div class="compared" role="group" aria-label="Wanted and found"><div><span class="soft">wanted </span><code>${line("extra")}</code></div><div><span class="soft">found </span><code>${line("missing")}</code></div></div>`;
}

/** Advice on the DMARC policy of a domain by the record that was found. */
export function DmarcAdvice({ domain }) {
  const record = domain.records.find((one) => one.purpose === "dmarc");
  if (!record || record.status !== "ok" || !record.found.length) return null;
  const policy = /(?:^|;)\s*p\s*=\s*(\w+)/i.exec(record.found[0])?.[1]?.toLowerCase();
  if (policy === "none") return html`<p class="note">DMARC only watches so far (<code>p=none</code>). When the reports show that all your mail passes, change to <code>p=quarantine</code>, later <code>p=reject</code>. Mailbox providers show your logo (BIMI) only with one of these.</p>`;
  if (policy === "quarantine" || policy === "reject") return html`<p class="note">DMARC is enforced (<code>p=${policy}</code>), as BIMI needs it: to show your logo, publish a TXT record at <code>default._bimi.${domain.name}</code> with the address of an SVG (and of its certificate, which Gmail and Apple Mail require).</p>`;
  return null;
}
