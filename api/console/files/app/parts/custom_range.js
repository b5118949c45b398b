// The fields for a period of one's own choice.
import { setQuery } from "../core/router.js";
import { html } from "../core/view.js";

export function CustomRange({ query }) {
  const local = (iso) => (iso ? new Date(Date.parse(iso) - new Date(iso).getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "");
  const input = (name, label) => html`<label class="range small">${label}<input class="input" type="datetime-local" value=${local(query.get(name))} onChange=${(event) => setQuery({ [name]: event.currentTarget.value ? new Date(event.currentTarget.value).toISOString() : null })} /></label>`;
  return html`${input("from", "From")}${input("until", "Until")}`;
}
