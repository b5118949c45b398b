// What to look at before a message is sent. Pure functions over the reply of a dry run.

const CLIPPED_BYTES = 102 * 1024; // Gmail cuts HTML longer than 102 KB (support.google.com/mail, "Message clipped")
const LARGE_BYTES = 10 * 1000 * 1000; // many servers refuse more than 10 to 25 MB
const LINK = /<a\b[^>]*?\bhref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))[^>]*>/gi;
const MAX_LINKS = 500;
const OWN = /^https?:\/\/[^/?#]+(?:\/[^?#]*)?\/u\/[0-9a-z]{48}$/i; // an unsubscribe link of this service: its address is not the author's matter

/** Return findings [{tone, text}] on a message {subject, html, text, sizeBytes, to, …}: tone bad, warn or good. */
export function findings(message) {
  const found = [];
  const html = message.html ?? "";
  const htmlBytes = new TextEncoder().encode(html).length;
  if (!message.subject.trim()) found.push(["warn", "The subject is empty."]);
  if (/^(re|fwd?):/i.test(message.subject)) found.push(["warn", "The subject starts with \"Re:\" or \"Fwd:\", which spam filters treat as deceptive."]);
  if (/{{|}}/.test(message.subject + html + (message.text ?? ""))) found.push(["warn", "The content still contains {{ or }}. A variable may be missing."]);
  if (html && !message.text) found.push(["warn", "There is no plain text part. Some email clients and filters expect one."]);
  if (htmlBytes > CLIPPED_BYTES) found.push(["bad", `The HTML has ${Math.round(htmlBytes / 1024)} KB. Gmail hides everything after 102 KB, including the unsubscribe link.`]);
  if (message.sizeBytes > LARGE_BYTES) found.push(["warn", `The message has ${(message.sizeBytes / 1e6).toFixed(1)} MB. Many mail servers reject more than 10 to 25 MB.`]);
  found.push(...linkFindings(html));
  if (/<img\b(?![^>]*\balt=)/i.test(html)) found.push(["warn", "An image has no alternative text (alt)."]);
  if (/<script\b|<form\b|<iframe\b/i.test(html)) found.push(["warn", "Scripts, forms and frames don't work in email. Email clients remove them."]);
  if (found.length === 0) found.push(["good", "No problems found: size, links, text part and subject are fine."]);
  return found.map(([tone, text]) => ({ tone, text }));
}

function linkFindings(html) {
  const found = [];
  const targets = [...html.matchAll(LINK)].slice(0, MAX_LINKS).map((match) => (match[1] ?? match[2] ?? match[3] ?? "").trim()).filter((target) => !OWN.test(target));
  const empty = targets.filter((target) => target === "" || target === "#").length;
  const plain = targets.filter((target) => /^http:\/\//i.test(target)).length;
  const odd = targets.filter((target) => target && target !== "#" && !/^(https?:|mailto:|tel:|#|{{)/i.test(target)).length;
  const local = targets.filter((target) => /^https?:\/\/(localhost|127\.|10\.|192\.168\.|\[::1\])/i.test(target)).length;
  if (empty) found.push(["warn", `${empty} of ${targets.length} links have no target.`]);
  if (plain) found.push(["warn", `${plain} of ${targets.length} links are not encrypted (http).`]);
  if (odd) found.push(["bad", `${odd} of ${targets.length} links aren't full web or email addresses. Use absolute URLs.`]);
  if (local) found.push(["bad", `${local} of ${targets.length} links point to a host that recipients can't reach.`]);
  return found;
}
