// One DNS record to publish, with what the last check found.
import { Chip, CopyLine } from "../core/ui.js";
import { html } from "../core/view.js";

/** A record: {type, host, value, priority, status, found}, each part to copy. */
export function DnsRecord({ record, note }) {
  return html`<div class="record-box"><dl class="facts">
    <dt>Type</dt><dd>${record.type}${record.priority != null ? ` with priority ${record.priority}` : ""} ${record.status && html`<${Chip}>${record.status}<//>`}</dd>
    <dt>Name</dt><dd><${CopyLine} text=${record.host} label=${`Copy the name ${record.host}`} /></dd>
    <dt>Value</dt><dd><${CopyLine} text=${record.value} label="Copy the value" /></dd>
    ${record.found?.length > 0 && record.status !== "ok" && html`<dt>Found</dt><dd>${record.found.map((one) => html`<div class="mono">${one}</div>`)}</dd>`}
    ${note && html`<dt>Note</dt><dd>${note}</dd>`}</dl></div>`;
}
