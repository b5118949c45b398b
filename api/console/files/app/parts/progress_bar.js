// How much of a number of things is done; unlike a meter of a limit, full is good.
import { html } from "../core/view.js";

/** A bar: `value` of `max`. */
export function ProgressBar({ label, value, max }) {
  const share = max ? Math.min(1, value / max) : 0;
  return html`<div class="meter" role="progressbar" aria-label=${label} aria-valuemin="0" aria-valuemax=${max ?? 0} aria-valuenow=${value}><span style=${{ width: `${share * 100}%` }}></span></div>`;
}
