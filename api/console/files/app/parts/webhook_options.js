// What an endpoint wants of its posts: some domains and streams only, headers of its own, metadata, signatures, retries.
import { useCall } from "../core/api.js";
import { CheckField, Chip, fieldError, TextField } from "../core/ui.js";
import { html } from "../core/view.js";

/** Return the options of an endpoint as the form holds them: `kept` headers are stored already, `lines` are new. */
export const optionsOf = (row) => ({ domains: row?.domains ?? [], streams: row?.streams ?? [], kept: row?.headerNames ?? [], lines: "", includeMetadata: row?.includeMetadata ?? false, standard: signsStandard(row), honorRetryAfter: row?.honorRetryAfter ?? false });

/** Return true if posts to the endpoint have the headers of Standard Webhooks too. */
export const signsStandard = (row) => row?.signatures.includes("standard") ?? false;

/** Return the fields of the request that creates or changes the endpoint `row`. */
export function optionFields(options, row) {
  const removed = (row?.headerNames ?? []).filter((name) => !options.kept.includes(name));
  const headers = { ...Object.fromEntries(removed.map((name) => [name, null])), ...Object.fromEntries(headersOf(options.lines)) };
  return { domains: options.domains, streams: options.streams, includeMetadata: options.includeMetadata, signatures: options.standard ? ["waybill", "standard"] : ["waybill"], honorRetryAfter: options.honorRetryAfter, ...(Object.keys(headers).length && { headers }) };
}

function headersOf(lines) {
  return lines.split("\n").filter((line) => line.trim()).map((line) => {
    const [, name, value] = /^([^:]*):?(.*)$/.exec(line);
    return [name.trim(), value.trim()];
  });
}

/** Return a short text for the filters of an endpoint, "" without any. */
export const filtersInWords = (row) => [...row.domains, ...row.streams].join(", ");

/** The part of the form with filters and headers. */
export function EndpointOptions({ options, onOptions, error }) {
  const domains = useCall("GET /v1/domains", { query: { limit: 100 } });
  const streams = useCall("GET /v1/streams", { query: { limit: 100 } });
  const refused = ["domains", "streams", "headers", "includeMetadata"].some((field) => error?.details?.field?.startsWith(field));
  const used = options.domains.length || options.streams.length || options.kept.length || options.includeMetadata || options.standard || options.honorRetryAfter;
  const choice = (field, known) => {
    const toggle = (value, on) => onOptions({ ...options, [field]: on ? [...options[field], value] : options[field].filter((one) => one !== value) });
    const values = [...new Map([...known, ...options[field].map((value) => [value, value])].map((one) => [one[0], one])).values()];
    return html`${values.map(([value, text]) => html`<${CheckField} key=${value} label=${text} checked=${options[field].includes(value)} onChecked=${(on) => toggle(value, on)} />`)}
      <span class="soft small">Leave empty to allow all, including ones added later.</span>`;
  };
  return html`<details open=${refused || used || undefined}><summary>Limit it to domains or streams, add headers or metadata, choose signatures and retries</summary><div class="choices note">
    <fieldset><legend>Domains</legend>${choice("domains", (domains.data?.data ?? []).map((one) => [one.name, one.name]))}</fieldset>
    <fieldset><legend>Streams</legend>${choice("streams", (streams.data?.data ?? []).map((one) => [one.id, one.name]))}</fieldset>
    <fieldset><legend>Headers</legend>
      ${options.kept.length > 0 && html`<span class="row wrap">${options.kept.map((name) => html`<${Chip} key=${name} onRemove=${() => onOptions({ ...options, kept: options.kept.filter((one) => one !== name) })} removeLabel=${`Remove the header ${name}`}>${html`<code>${name}</code>`}<//>`)}</span>`}
      <${TextField} label=${options.kept.length ? "New or changed headers" : "Headers of every post"} rows=${3} mono autocomplete="off" spellcheck=${false} value=${options.lines} onValue=${(lines) => onOptions({ ...options, lines })} error=${fieldError(error, "headers")} hint="One per line, such as Authorization: Bearer s3cret. Values are stored encrypted and never shown again." />
    </fieldset>
    <fieldset><legend>Body</legend><${CheckField} label="Include the message's tags and metadata" checked=${options.includeMetadata} onChecked=${(includeMetadata) => onOptions({ ...options, includeMetadata })} /></fieldset>
    <fieldset><legend>Signatures</legend><${CheckField} label=${html`<code>Service-Signature</code>`} hint="Always sent." checked disabled onChecked=${() => {}} />
      <${CheckField} label="Standard Webhooks" hint=${html`Adds <code>webhook-id</code>, <code>webhook-timestamp</code> and <code>webhook-signature</code>, made with the same secret.`} checked=${options.standard} onChecked=${(standard) => onOptions({ ...options, standard })} /></fieldset>
    <fieldset><legend>Retries</legend><${CheckField} label="Honor Retry-After" hint="A 429 or 503 with this header postpones the next attempt by up to an hour." checked=${options.honorRetryAfter} onChecked=${(honorRetryAfter) => onOptions({ ...options, honorRetryAfter })} /></fieldset>
  </div></details>`;
}
