// The verdicts on a received mail as chips, each with what it says and means.
import { Chip } from "../core/ui.js";
import { html } from "../core/view.js";

const MEANING = {
  spf: "Is this server allowed to send for the envelope's domain?",
  dkim: "Is a signature of the message valid?",
  dmarc: "Does SPF or DKIM match the domain shown in From?",
  arc: "Did forwarders confirm the original message (ARC)?",
};
const TONE = { pass: "good", fail: "bad", softfail: "warn", permerror: "warn", temperror: "warn", policy: "warn" };

/** Chips of SPF, DKIM, DMARC, ARC, spam and scan; each opens into its explanation. */
export function VerdictList({ mail }) {
  const verdicts = Object.entries(MEANING).map(([name, text]) => {
    const { result, domain, detail } = mail.authentication[name];
    return { name: name.toUpperCase(), result, tone: TONE[result] ?? "", text: `${text} ${sentenceOf(detail)}${domain ? ` Domain: ${domain}.` : ""}` };
  });
  const all = [...verdicts, spamOf(mail), scanOf(mail)].filter(Boolean);
  return html`<details class="verdicts"><summary aria-label="Verdicts, with explanations"><span class="row">${all.map((one) => html`<span key=${one.name} title=${one.text}><${Chip} tone=${one.tone}>${`${one.name} ${one.result}`}<//></span>`)}</span></summary>
    <dl class="facts">${all.map((one) => html`<dt>${one.name}</dt><dd>${one.text}</dd>`)}</dl></details>`;
}

const sentenceOf = (text) => (text ? `Answer: ${text.replace(/\.$/, "")}.` : "");

function spamOf(mail) {
  const score = mail.spamScore === null ? "No score." : `The score is ${mail.spamScore}; ${mail.spamThreshold} or more counts as spam.`;
  const by = mail.spamOverride === null ? "" : " Someone on your team or an API key overrode the score.";
  return { name: "Spam", result: mail.spam ? "yes" : "no", tone: mail.spam ? "warn" : "good", text: score + by };
}

function scanOf(mail) {
  if (mail.attachments.length === 0) return null;
  const states = mail.attachments.map((one) => one.scan);
  const worst = ["infected", "failed", "unscanned", "clean"].find((one) => states.includes(one));
  const texts = {
    infected: "The virus scanner found a virus. You can't download infected attachments.",
    failed: "The virus scanner couldn't read an attachment, such as a password-protected archive.",
    unscanned: "This instance has no virus scanner, so attachments aren't scanned.",
    clean: "The virus scanner found no virus in the attachments.",
  };
  return { name: "Scan", result: worst, tone: { infected: "bad", failed: "warn", unscanned: "", clean: "good" }[worst], text: texts[worst] };
}
