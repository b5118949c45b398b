// DNS records to publish: what to copy, and what was found instead.
import { Chip, CopyLine, Notice, SelectField } from "../core/ui.js";
import { html } from "../core/view.js";
import { closest, differences, mistakes, relativeName, suffixes } from "./compare.js";

// DNS hosts whose form wants the whole name; the others append the zone to what is entered.
const WHOLE_NAME = ["Google Cloud DNS", "Google"];

/** Return how names are shown at first: as the DNS host expects them, relative to the shortest possible zone if it is unknown. */
export const usualZone = (domain, dnsHost) => (WHOLE_NAME.includes(dnsHost) ? "full" : suffixes(domain).at(-1));

/** The choice of how names are shown: "full", or a zone to which they are relative. */
export function ZoneChoice({ domain, value, onValue }) {
  const options = [["full", "Full names"], ...suffixes(domain).map((zone) => [zone, `Relative to ${zone}`])];
  return html`<div class="zone-choice"><${SelectField} label="Record names" value=${value} onValue=${onValue} options=${options} /></div>`;
}

/** What the DNS host expects of names. */
export function ZoneHint({ dnsHost }) {
  const hint = dnsHost ? `Your DNS is at ${dnsHost}, which expects ${WHOLE_NAME.includes(dnsHost) ? "full names" : "names relative to the zone"}.` : "Most DNS providers expect names relative to the zone and add the zone themselves.";
  return html`<p class="small soft zone-hint">${hint}</p>`;
}

const TTL_S = 3600;
const MAX_STRING = 255; // octets of one string of a TXT record (RFC 1035 3.3)

/** Return the records in zone file form (RFC 1035 5.1), one per line. */
export function zoneFile(records) {
  const quoted = (text) => `"${text.replace(/["\\]/g, "\\$&")}"`;
  const valueOf = ({ type, value }) => (type === "TXT" ? value.match(new RegExp(`.{1,${MAX_STRING}}`, "gs")).map(quoted).join(" ") : `${value.replace(/\.$/, "")}.`);
  return records.map((one) => `${one.host.replace(/\.$/, "")}. ${TTL_S} IN ${one.type} ${valueOf(one)}\n`).join("");
}

/** A table of records: type, name and value to copy, state; below a record, what differs. `notes` shows their notes. */
export function RecordTable({ label, records, zone, notes }) {
  return html`<div class="table-frame" tabindex="0" role="region" aria-label=${label}><table class="table cards records"><caption class="visually-hidden">${label}</caption>
    <thead><tr><th scope="col">Type</th><th scope="col">Name</th><th scope="col">Value</th><th scope="col">Status</th></tr></thead>
    <tbody>${records.map((record) => html`<${RecordRows} key=${`${record.type} ${record.host}`} record=${record} zone=${zone} note=${notes || !record.required ? record.note : null} />`)}</tbody></table></div>`;
}

function RecordRows({ record, zone, note }) {
  const name = zone === "full" ? record.host : relativeName(record.host, zone);
  const [priority, value] = record.type === "MX" ? record.value.split(/\s+/) : [null, record.value];
  const found = foundOf(record);
  return html`<tr>
      <td class="lead"><strong>${record.type}</strong>${priority && html` <span class="soft small">priority ${priority}</span>`}</td>
      <td data-label="Name"><${CopyLine} text=${name} label=${`Copy the name ${name}`} /></td>
      <td data-label="Value"><${CopyLine} text=${value} label=${`Copy the value of ${name}`} /></td>
      <td data-label="Status"><${Chip}>${record.status}<//></td>
    </tr>
    ${(found || note || record.problem) && html`<tr class="record-more"><td colspan="4"><div class="stack-tight">
      ${note && html`<p class="soft small">${note}</p>`}${found}${record.problem && html`<${Notice} tone="warn">${record.problem}<//>`}</div></td></tr>`}`;
}

/** Return what the last check found instead of the record; null where there is nothing to say. */
function foundOf(record) {
  const found = closest(record, record.found);
  if (record.status === "ok") return found !== null && found !== record.value ? html`<p class="soft small">Found <code class="wrap">${record.found.join(", ")}</code>. It differs from the value but has the same effect.</p>` : null;
  if (found === null) return record.mistake && html`<p class="bad small">${record.mistake}</p>`;
  const others = record.found.filter((one) => one !== found);
  return html`<${Compared} wanted=${record.value} found=${found} />
    ${others.length > 0 && html`<div class="soft small">Also found at this name: ${others.map((one) => html`<code class="wrap" key=${one}>${one}</code> `)}</div>`}
    ${mistakes(record).map((one) => html`<div class="bad small" key=${one}>${one}</div>`)}`;
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
  if (policy === "none") return html`<p class="note">DMARC only monitors for now (<code>p=none</code>). When the reports show that all your email passes, change to <code>p=quarantine</code>, later <code>p=reject</code>. Mailbox providers show your logo (BIMI) only with one of these.</p>`;
  if (policy === "quarantine" || policy === "reject") return html`<p class="note">DMARC is enforced (<code>p=${policy}</code>), as BIMI needs it: to show your logo, publish a TXT record at <code>default._bimi.${domain.name}</code> with the address of an SVG (and of its certificate, which Gmail and Apple Mail require).</p>`;
  return null;
}
