// Verify webhook requests with Web Crypto: in Node, Deno, Bun, workers and browsers.
// `crypto.subtle.verify` compares in constant time.

export const DEFAULT_TOLERANCE_S = 300;
const NAMES = ["service-signature", "service-signature-previous"]; // the second for 24 hours after a rotation
const STANDARD = ["webhook-id", "webhook-timestamp", "webhook-signature"]; // of Standard Webhooks

export class WebhookVerificationError extends Error {
  constructor(reason, message) {
    super(message);
    this.name = "WebhookVerificationError";
    this.reason = reason;
  }
}

// Return the event of a request. `body`: the octets or text as received. `header`: the value of `Service-Signature`, or
// all headers: without ours, those of Standard Webhooks are verified. `secret`: the signing secret of the endpoint, or
// several. Throws WebhookVerificationError.
export async function verify(body, header, secret, { toleranceS = DEFAULT_TOLERANCE_S, now = Date.now() / 1000 } = {}) {
  const content = typeof body === "string" ? new TextEncoder().encode(body) : new Uint8Array(body);
  const secrets = [secret].flat();
  if (!secrets.length || secrets.some((one) => !one)) throw new TypeError("give the signing secret of the endpoint");
  const values = typeof header === "string" ? [header] : valuesOf(header, NAMES).filter(isText);
  const standard = values.length || typeof header === "string" ? [] : valuesOf(header, STANDARD);
  if (isText(standard[2])) {
    await checkStandard(content, standard, secrets, toleranceS, now);
    return parsed(content);
  }
  if (!values.length) fail("malformed_header", "the request has no header Service-Signature");
  let failure;
  for (const value of values) {
    try {
      await check(content, value, secrets, toleranceS, now);
      return parsed(content);
    } catch (error) {
      if (!(error instanceof WebhookVerificationError)) throw error;
      failure ??= error;
    }
  }
  throw failure;
}

function valuesOf(headers, names) {
  if (headers == null) return [];
  if (typeof headers.get === "function") return names.map((name) => headers.get(name));
  const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  return names.map((name) => lower[name]).flat();
}

const MISMATCH = "the signature does not fit the body and the secret";
const isText = (value) => typeof value === "string" && value !== "";

async function check(content, header, secrets, toleranceS, now) {
  const pairs = header.slice(0, 4096).split(",").map((part) => part.trim().split("="));
  const times = pairs.filter(([name]) => name === "t").map(([, value]) => value);
  if (times.length !== 1 || !/^[0-9]{1,12}$/.test(times[0])) fail("malformed_header", "the signature header has no time `t`");
  const signatures = pairs.filter(([name]) => name === "v1").map(([, value]) => value);
  if (!signatures.length) fail("unsupported_version", "the signature header has no signature `v1`");
  const signed = joined(new TextEncoder().encode(`${times[0]}.`), content);
  const codes = signatures.filter((hex) => /^[0-9a-f]{64}$/.test(hex)).map((hex) => Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16)));
  if (!(await matches(signed, codes, secrets.map((one) => new TextEncoder().encode(one))))) fail("signature_mismatch", MISMATCH);
  checkAge(Number(times[0]), toleranceS, now);
}

async function checkStandard(content, [id, time, value], secrets, toleranceS, now) {
  if (!isText(id) || !/^[0-9]{1,12}$/.test(time ?? "") || value.length > 4096) fail("malformed_header", "webhook-id, -timestamp or -signature is missing or wrong");
  const signatures = value.split(" ").filter((one) => one.startsWith("v1,"));
  if (!signatures.length) fail("unsupported_version", "webhook-signature has no signature `v1`");
  const signed = joined(new TextEncoder().encode(`${id}.${time}.`), content);
  const codes = signatures.map((one) => fromBase64(one.slice(3))).filter((code) => code?.length === 32);
  const keys = secrets.map((one) => fromBase64(one.replace(/^whsec_/, ""))).filter((key) => key?.length);
  if (!(await matches(signed, codes, keys))) fail("signature_mismatch", MISMATCH);
  checkAge(Number(time), toleranceS, now);
}

function fromBase64(text) {
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    return null; // another form, which can't fit
  }
}

function checkAge(sentAt, toleranceS, now) {
  const age = now - sentAt;
  if (age > toleranceS) fail("timestamp_too_old", `the request was signed ${Math.round(age)} s ago`);
  if (-age > toleranceS) fail("timestamp_in_future", `the request was signed ${Math.round(-age)} s in the future`);
}

async function matches(signed, codes, secrets) {
  let found = false;
  for (const secret of secrets) {
    const key = await crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    for (const code of codes) {
      found = (await crypto.subtle.verify("HMAC", key, code, signed)) || found;
    }
  }
  return found;
}

function joined(first, second) {
  const all = new Uint8Array(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}

function parsed(content) {
  try {
    return JSON.parse(new TextDecoder().decode(content));
  } catch {
    return fail("malformed_body", "the body is not JSON");
  }
}

function fail(reason, message) {
  throw new WebhookVerificationError(reason, message);
}
