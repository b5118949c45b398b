// The fields for a period of one's own choice.
import { setQuery } from "../core/router.js";
import { html, instant, localTime } from "../core/view.js";

export function CustomRange({ query }) {
  const local = (iso) => (iso ? localTime(iso).slice(0, 16) : "");
  const input = (name, label) => html`<label class="range small">${label}<input class="input" type="datetime-local" value=${local(query.get(name))} onChange=${(event) => setQuery({ [name]: instant(event.currentTarget.value) })} /></label>`;
  return html`${input("from", "From")}${input("until", "Until")}`;
}
