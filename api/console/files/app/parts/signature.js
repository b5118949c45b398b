// The signature of a webhook post, computed in the browser. Nothing leaves the page.

const encoder = new TextEncoder();
/** The age in seconds beyond which receivers should refuse a post. */
export const MAX_AGE_S = 300;

/** Return the hexadecimal HMAC-SHA-256 of "<time>.<body>" with all characters of the secret as the key. */
export async function signatureOf(secret, time, body) {
  const key = await crypto.subtle.importKey("raw", encoder.encode(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const code = await crypto.subtle.sign("HMAC", key, encoder.encode(`${time}.${body}`));
  return [...new Uint8Array(code)].map((octet) => octet.toString(16).padStart(2, "0")).join("");
}

/** Return {time, code} of a header such as "t=1700000000,v1=5f2c…"; null if it has not this form. */
export function parsedHeader(text) {
  const value = text.trim().replace(/^service-signature(?:-previous)?\s*:\s*/i, "");
  const match = /^t=(\d{1,12}),v1=([0-9a-f]{64})$/i.exec(value);
  return match ? { time: Number(match[1]), code: match[2].toLowerCase() } : null;
}

/**
 * Return what is wrong with a post: {ok, tone, title, text}. Tries the usual mistakes: white space around the secret or
 * body, a secret without its prefix, a body that was parsed and written again.
 */
export async function checkedSignature({ header, body, secret }, nowS) {
  const given = parsedHeader(header);
  if (given === null) return bad("The header is not a signature.", "It looks like t=1700000000,v1= and 64 hexadecimal digits. Copy the whole value of Service-Signature.");
  const matches = async (key, text) => (await signatureOf(key, given.time, text)) === given.code;
  if (await matches(secret, body)) return fresh(given.time, nowS);
  if (!/^whsec_[0-9A-Za-z+/]{32}$/.test(secret)) {
    if (await matches(secret.trim(), body)) return bad("The secret has white space around it.", "Without it, the signature is correct.");
    if (await matches(`whsec_${secret.trim()}`, body)) return bad("The secret lacks its prefix.", "The key is the whole secret, including whsec_. With it, the signature is correct.");
  }
  for (const [text, why] of rewritten(body)) {
    if (await matches(secret.trim(), text)) return bad("The body was changed after it was received.", why);
  }
  if (!/^whsec_[0-9A-Za-z+/]{32}$/.test(secret.trim())) return bad("The secret has the wrong form.", "A signing secret is whsec_ followed by 32 characters of base64. An API key isn't a signing secret.");
  return bad("The secret or the body doesn't match.", differs(body) + " If the secret was rotated, posts of the last 24 hours also have Service-Signature-Previous, made with the previous secret. Each endpoint has its own secret.");
}

function fresh(time, nowS) {
  const age = nowS - time;
  if (age > MAX_AGE_S) return { ok: true, tone: "warn", title: "The signature is correct, but too old.", text: `It was made ${age} s ago. Receivers that allow ${MAX_AGE_S} s reject it as a possible replay. Each attempt of a delivery has a new time.` };
  if (age < -MAX_AGE_S) return { ok: true, tone: "warn", title: "The signature is correct, but its time is in the future.", text: `It is ${-age} s ahead of this computer's clock. One of the clocks is wrong.` };
  return { ok: true, tone: "good", title: "The signature is correct.", text: "Header, body and secret match." };
}

const bad = (title, text) => ({ ok: false, tone: "bad", title, text });

/** Return bodies that may have been posted, with what was done to them afterwards. */
function rewritten(body) {
  const found = [[body.trim(), "It has white space around it. Verify the raw bytes as received."]];
  if (body.includes("\r\n")) found.push([body.replaceAll("\r\n", "\n"), "Its line endings were changed."]);
  try {
    found.push([JSON.stringify(JSON.parse(body)), "It was parsed and written again with other spaces or escapes. Verify the raw bytes before a framework parses the body."]);
  } catch {
    // not JSON: the sentence of `differs` says so
  }
  return found;
}

function differs(body) {
  try {
    const parsed = JSON.parse(body);
    if (body !== JSON.stringify(parsed)) return "The body seems to have been parsed and written again: spaces, escapes or key order differ. Verify the raw bytes.";
    return "The body looks like a post. Compare it with the exact request of the delivery.";
  } catch {
    return "The body isn't JSON. Part of it may be missing.";
  }
}
