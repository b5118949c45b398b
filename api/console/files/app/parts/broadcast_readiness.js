// The checklist of a draft: what a broadcast needs before it can be sent, and what is still open.
import { useCall } from "../core/api.js";
import { href } from "../core/router.js";
import { Card, Icon, Skeleton } from "../core/ui.js";
import { html, plural } from "../core/view.js";
import { useVerifiedDomains } from "./sender_field.js";

const MAX_SEARCH = 200; // characters that GET /v1/messages searches for
const ICONS = { good: ["circle-check", "Done"], warn: ["triangle-alert", "Open"], bad: ["circle-alert", "Missing"] };

/** Return the beginning of the subject of a test, up to the first value of a contact. */
const testSubject = (subject) => `[Test] ${subject.split("{{")[0]}`.slice(0, MAX_SEARCH).trim();

/** Return the lines [tone, text, [path, words] of a link or null]; `found` holds null for what is not known yet. */
export function readiness(broadcast, { people, domains, unsubscribe, tested }) {
  const domain = broadcast.from.replace(/>\s*$/, "").split("@").at(-1).toLowerCase();
  const reader = people === null ? ["warn", "The segment is counted when the broadcast starts."] : people === 0 ? ["bad", "The audience has no contacts."] : ["good", `${plural(people, "contact")} in the audience now; suppressed and unconfirmed ones are skipped.`];
  return [
    [...reader, people === 0 ? [broadcast.list ? `/lists/${broadcast.list}` : "/contacts", "Add contacts"] : null],
    domains && (domains.includes(domain) ? ["good", `${domain} is verified.`, null] : ["bad", `${domain} isn't verified, so the broadcast can't be sent.`, ["/domains", "Set up the domain"]]),
    unsubscribe && (unsubscribe.met === false ? ["warn", `Each message has an unsubscribe link. ${unsubscribe.detail}`, null] : ["good", "Each message has an unsubscribe link and the one-click header.", null]),
    tested !== null && (tested ? ["good", "A test was sent since the last change.", null] : ["warn", "No test was sent since the last change.", null]),
  ].filter(Boolean);
}

/** The card with the checklist of the draft `broadcast`. */
export function Readiness({ broadcast }) {
  const path = { id: broadcast.id };
  const sample = useCall("GET /v1/broadcasts/{id}/preview", { path, quiet: true });
  const checks = useCall("GET /v1/broadcasts/{id}/checks", { path, quiet: true });
  const domains = useVerifiedDomains();
  const subject = broadcast.subject ?? sample.data?.subject;
  const tests = useCall("GET /v1/messages", { query: { search: testSubject(subject ?? ""), from: broadcast.updatedAt, limit: 1 }, quiet: true }, { skip: !subject, pollMs: 5000 });
  if (!sample.data) return sample.error ? null : html`<${Card} title="Ready to send?"><${Skeleton} /><//>`; // the preview beside it tells the error
  const unsubscribe = checks.data?.requirements.find((one) => one.name === "one_click_unsubscribe") ?? null;
  const lines = readiness(broadcast, { people: sample.data.recipients, domains, unsubscribe, tested: tests.data ? tests.data.data.length > 0 : null });
  return html`<${Card} title="Ready to send?"><ul class="stack-tight" aria-label="Ready to send?">${lines.map(([tone, text, link]) => {
    const [icon, word] = ICONS[tone];
    return html`<li class="row check-line" key=${text}><span class=${tone}><${Icon} name=${icon} /><span class="visually-hidden">${word}: </span></span><span class="grow">${text}${link && html` <a href=${href(link[0])}>${link[1]}</a>`}</span></li>`;
  })}</ul><//>`;
}
