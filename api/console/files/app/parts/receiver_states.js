// How receivers treat mail at present: the words and tones of their states, and the line of the first page.
import { useCall } from "../core/api.js";
import { href } from "../core/router.js";
import { html } from "../core/view.js";

// Tone and words of a state of GET /v1/receivers.
export const STATES = {
  __proto__: null,
  normal: ["good", "normal"],
  slow: ["warn", "slow"],
  deferring: ["warn", "deferring"],
  refusing: ["bad", "refusing"],
  unknown: ["", "unknown"],
};

/** Return one sentence on all receivers; `rows` are of GET /v1/receivers. Null while nothing is known. */
export function summary(rows) {
  const known = rows.filter((row) => row.state !== "unknown");
  const named = known.filter((row) => row.state !== "normal");
  if (known.length === 0) return null;
  if (named.length === 0) return "Receivers accept mail as usual.";
  const [first, ...others] = named;
  return others.length ? `${first.text} Also ${new Intl.ListFormat("en").format(others.map((row) => `${row.name} (${row.state})`))}.` : first.text;
}

/** The sentence with a link to its page; nothing while nothing is known. */
export function ReceiversLine() {
  const { data } = useCall("GET /v1/receivers", { quiet: true }, { pollMs: 30_000 });
  const text = data && summary(data.data);
  return text && html`<p>${text} <a class="nowrap" href=${href("/receivers")}>Receivers</a></p>`;
}
