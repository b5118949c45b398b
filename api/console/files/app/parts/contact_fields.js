// The fields and the consent of contacts in forms.
import { Button, Icon, SelectField, TextField } from "../core/ui.js";
import { html } from "../core/view.js";

export const CONSENTS = [["signed_up", "Signed up"], ["customer", "Customer"], ["imported_with_consent", "Imported with consent"]];
export const CONSENT_TEXTS = {
  signed_up: "They asked for your email, for example with a form. The strongest consent.",
  customer: "They bought from you. Many countries allow email about similar products.",
  imported_with_consent: "You recorded their consent elsewhere, such as in your previous service.",
};
export const FIELD_TYPES = [["text", "Text"], ["number", "Number"], ["boolean", "Yes or no"]];

/** Return contact fields as rows of the editor: [{name, type, value}]. */
export const rowsOf = (fields) => Object.entries(fields).map(([name, value]) => ({ name, type: { number: "number", boolean: "boolean" }[typeof value] ?? "text", value: String(value) }));

/** Return the rows of the editor as contact fields; rows without a name are left out. */
export const fieldsOf = (rows) => Object.fromEntries(rows.filter((row) => row.name.trim()).map((row) => [row.name.trim(), typed(row.type, row.value)]));

/** Return the text as a value of the type; a text that is no such value stays a text, so that the service refuses it. */
export function typed(type, text) {
  if (type === "number") return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
  if (type === "boolean") return /^(true|yes|1)$/i.test(text.trim());
  return text;
}

/** Rows of name, type and value of contact fields. */
export function FieldsEditor({ rows, onRows, error }) {
  const set = (at, change) => onRows(rows.map((row, place) => (place === at ? { ...row, ...change } : row)));
  return html`<fieldset><legend>Fields</legend>
    ${rows.map((row, at) => html`<div class="field-row" key=${at}>
      <${TextField} label="Field name" hideLabel placeholder="name" maxlength="64" value=${row.name} onValue=${(name) => set(at, { name })} />
      <${SelectField} label=${`Type of ${row.name || "the field"}`} hideLabel value=${row.type} options=${FIELD_TYPES} onValue=${(type) => set(at, { type, value: type === "boolean" ? "true" : row.value })} />
      ${row.type === "boolean"
        ? html`<${SelectField} label=${`Value of ${row.name || "the field"}`} hideLabel value=${row.value} options=${[["true", "Yes"], ["false", "No"]]} onValue=${(value) => set(at, { value })} />`
        : html`<${TextField} label=${`Value of ${row.name || "the field"}`} hideLabel placeholder="value" inputmode=${row.type === "number" ? "decimal" : undefined} value=${row.value} onValue=${(value) => set(at, { value })} />`}
      <${Button} kind="quiet" icon="x" label=${`Remove the field ${row.name}`} onClick=${() => onRows(rows.filter((_, place) => place !== at))} />
    </div>`)}
    ${error && html`<div class="field"><span class="error"><${Icon} name="circle-alert" size=${14} />${error}</span></div>`}
    <div><${Button} icon="plus" onClick=${() => onRows([...rows, { name: "", type: "text", value: "" }])}>Add field<//></div>
  </fieldset>`;
}
