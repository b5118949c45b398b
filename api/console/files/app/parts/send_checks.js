// What spam filters and mailbox providers will probably make of a message: the checks of a dry run.
import { ErrorNote, Icon, Skeleton } from "../core/ui.js";
import { html } from "../core/view.js";

const PROVIDERS = { gmail: "Gmail", yahoo: "Yahoo", microsoft: "Microsoft" };
const NAMES = { spf: "SPF", dkim: "DKIM", dmarc: "DMARC", alignment: "Alignment", one_click_unsubscribe: "One-click unsubscribe", tls: "Encryption (TLS)", complaint_rate: "Complaint rate" };
const RULES = { spf_none: "no SPF", dkim_none: "no DKIM signature", dmarc_fail: "DMARC fails", misleading_name: "the sender's name contains an address of another domain", from_missing: "no From", date_missing: "no Date", message_id_missing: "no Message-ID" };
const HALF = 0.5; // of the threshold

const sign = (met) => ({ true: ["good", "circle-check", "Met"], false: ["warn", "triangle-alert", "Not met"] })[met] ?? ["soft", "info", "Not counted"];

/** Return [tone, text] on the score of the spam rules. */
export function spamText({ score, threshold, reasons }) {
  const why = reasons.filter((one) => one.points > 0).map((one) => RULES[one.rule] ?? one.rule.replaceAll("_", " "));
  const text = `Spam score ${score} of ${threshold}`;
  if (score >= threshold) return ["bad", `${text}: filters will treat it as spam (${why.join(", ")}).`];
  if (score >= threshold * HALF) return ["warn", `${text}: close to spam (${why.join(", ")}).`];
  return ["good", why.length ? `${text}: ${why.join(", ")}.` : `${text}: nothing suspicious.`];
}

/** Return [tone, text] on a provider: "Gmail: 6 of 7; DMARC is missing". */
export function providerText({ provider, met, required, missing }) {
  const text = `${PROVIDERS[provider] ?? provider}: ${met} of ${required}`;
  return missing.length ? ["warn", `${text}; missing: ${missing.map((name) => NAMES[name]).join(", ")}.`] : ["good", `${text} requirements for bulk senders met.`];
}

const Line = ({ tone, icon, word, children }) => html`<li class="row check-line"><span class=${tone}><${Icon} name=${icon} /><span class="visually-hidden">${word}: </span></span><span class="grow">${children}</span></li>`;

/** The checks of a message; `state` is a call or an action with {data, error}. */
export function SendChecks({ checks, error }) {
  if (error) return html`<${ErrorNote} error=${error} />`;
  if (!checks) return html`<${Skeleton} lines=${4} />`;
  const lines = [spamText(checks.spam), ...checks.providers.map(providerText)];
  return html`<section class="stack-tight" aria-label="Spam and sender checks"><ul class="stack-tight">${lines.map(([tone, text]) => html`<${Line} key=${text} tone=${tone} icon=${tone === "good" ? "circle-check" : "triangle-alert"} word=${tone === "good" ? "Fine" : "Warning"}>${text}<//>`)}</ul>
    <details><summary>All requirements</summary><ul class="stack-tight details-body">${checks.requirements.map((one) => {
      const [tone, icon, word] = sign(one.met);
      return html`<${Line} key=${one.name} tone=${tone} icon=${icon} word=${word}><span class="strong">${NAMES[one.name] ?? one.name}.</span> ${one.detail}<//>`;
    })}</ul></details></section>`;
}
