// The declared variables of a template or a layout.
import { Button, CheckField, Notice, TextField } from "../core/ui.js";
import { html } from "../core/view.js";

/** A group of fields for each variable; `names` are those that the content uses. */
export function Variables({ names, variables, onVariables }) {
  const change = (at, changes) => onVariables(variables.map((one, place) => (place === at ? { ...one, ...changes } : one)));
  const missing = names.filter((name) => !variables.some((one) => one.name === name));
  const add = (name) => ({ name, required: false, default: null, description: null });
  return html`<div class="stack">
    <p class="soft">A send fails if a required variable has no value and no default. Optional variables are empty without a value.</p>
    ${missing.length > 0 && html`<${Notice} action=${html`<${Button} onClick=${() => onVariables([...variables, ...missing.map(add)])}>Declare them<//>`}>Used but not declared: ${missing.join(", ")}.<//>`}
    ${variables.map((one, at) => html`<div class="variable" key=${at} role="group" aria-label=${`Variable ${one.name || at + 1}`}>
      <${TextField} label="Name" mono value=${one.name} onValue=${(name) => change(at, { name })} />
      <${TextField} label="Default" value=${one.default ?? ""} onValue=${(value) => change(at, { default: value || null })} />
      <${CheckField} label="Required" checked=${one.required} onChecked=${(required) => change(at, { required })} />
      <${Button} kind="quiet" icon="trash-2" label=${`Remove ${one.name || "the variable"}`} onClick=${() => onVariables(variables.filter((_, place) => place !== at))} />
    </div>`)}
    <div><${Button} icon="plus" onClick=${() => onVariables([...variables, add("")])}>Add a variable<//></div>
  </div>`;
}

/** Return declared variables as the editors hold them. */
export const declaredOf = (record) => (record.variables ?? []).map(({ name, required, default: value, description }) => ({ name, required: Boolean(required), default: value ?? null, description: description ?? null }));
