// Verify delivery certificates with Web Crypto: in Node 20, Deno, Bun, workers and browsers.
// Ed25519 is the only algorithm (RFC 9864). The service is not asked.

const ALGORITHM = "Ed25519";
const TYPE = "waybill-delivery-certificate";
const VERSION = 1;
const CLOCK_DIFFERENCE_MS = 300_000; // between the hosts of a service, when a key is retired

export class CertificateError extends Error {
  constructor(reason, message) {
    super(message);
    this.name = "CertificateError";
    this.reason = reason;
  }
}

// Return what a certificate says. `keys`: the JWK set at /.well-known/waybill/keys of the service. `message`: the octets
// of the message as sent or as received. `recipient`: an address. Throws CertificateError.
export async function verifyCertificate(certificate, keys, { message = null, recipient = null } = {}) {
  const given = object(certificate, "certificate");
  const [sealed, payload] = [part(given, "protected"), part(given, "payload")];
  const key = keyOf(object(text(decoded(sealed)), "protected header"), object(keys, "key set"));
  await checkSignature(key, new TextEncoder().encode(`${sealed}.${payload}`), decoded(part(given, "signature")));
  const statement = object(text(decoded(payload)), "payload");
  if (statement.version !== VERSION) fail("unsupported_version", `the statement has version ${statement.version}`);
  checkRetirement(key, statement);
  const salts = given.salts ?? {};
  return {
    statement,
    key,
    message: message === null ? null : await compared(statement, salts, latin(message)),
    recipient: recipient === null ? null : await recipientOf(statement, salts, recipient),
  };
}

function keyOf(header, keys) {
  if (header.alg !== ALGORITHM) fail("unsupported_algorithm", `\`alg\` is ${JSON.stringify(header.alg)}, not ${ALGORITHM}`);
  if (header.typ !== TYPE || "crit" in header) fail("malformed_certificate", "the signature is of something else than a certificate");
  const key = (Array.isArray(keys.keys) ? keys.keys : []).find((one) => typeof one?.kid === "string" && one.kid === header.kid);
  const fits = key && key.kty === "OKP" && key.crv === "Ed25519" && (key.alg ?? ALGORITHM) === ALGORITHM;
  return fits ? key : fail("unknown_key", `the key set has no ${ALGORITHM} key ${header.kid}`);
}

async function checkSignature(key, signed, signature) {
  const octets = decoded(part(key, "x"));
  if (octets.length !== 32) fail("unknown_key", "the key does not have 32 bytes");
  const open = await crypto.subtle.importKey("raw", octets, { name: ALGORITHM }, false, ["verify"]);
  if (!(await crypto.subtle.verify(ALGORITHM, open, signature, signed))) fail("signature_mismatch", "the signature does not fit the certificate and the key");
}

// Refuse a certificate that was made after the service deleted the private half of its key.
function checkRetirement(key, statement) {
  if (key.retiredAt == null) return;
  const late = Date.parse(statement.issuedAt) - Date.parse(key.retiredAt);
  if (!(late <= CLOCK_DIFFERENCE_MS)) fail("retired_key", `the certificate was issued after its key was retired at ${key.retiredAt}`);
}

// -- the message: text with one character per octet ---------------------------------------------------

async function compared(statement, salts, message) {
  const content = statement.content;
  if (!content) fail("not_in_certificate", "the certificate has no digest of the content any more");
  const mime = message.replace(/\r\n|\r|\n/g, "\r\n");
  if (await holds(mime, content)) return "identical";
  if (typeof salts.content !== "string") fail("not_in_certificate", "the salt `content` was taken out of the certificate");
  const [head, body] = divided(mime);
  const bodyDigest = unhex(await sha256(octets(relaxedBody(body))));
  if ((await salted(salts.content, bodyDigest)) !== content.bodySha256) fail("message_mismatch", "the body is not that of the certified message");
  const fields = relaxedFields(head);
  for (const [name, digest] of Object.entries(content.headerSha256)) {
    const value = fields.filter(([own]) => own === name).at(-1)?.[1];
    const own = value === undefined ? null : await salted(salts.content, octets(value));
    if (own !== digest) fail("message_mismatch", `the field \`${name}\` is not that of the certified message`);
  }
  return "same";
}

// Mail servers write their fields in front of the certified octets; programs that save mail change its last line break.
async function holds(mime, { sha256: digest, sizeBytes }) {
  for (const whole of [mime, `${mime}\r\n`, mime.replace(/\r\n$/, "")]) {
    const start = whole.length - sizeBytes;
    if (start < 0 || (start > 0 && whole.slice(start - 2, start) !== "\r\n")) continue;
    if ((await sha256(octets(whole.slice(start)))) === digest) return true;
  }
  return false;
}

function divided(mime) {
  const end = mime.indexOf("\r\n\r\n");
  return end < 0 ? [mime, ""] : [mime.slice(0, end), mime.slice(end + 4)];
}

// The relaxed forms of DKIM (RFC 6376 3.4).
function relaxedBody(body) {
  const lines = body.split("\r\n").map((line) => line.replace(/[ \t]+/g, " ").replace(/ $/, ""));
  while (lines.length && lines.at(-1) === "") lines.pop();
  return lines.map((line) => `${line}\r\n`).join("");
}

function relaxedFields(head) {
  return head.replace(/\r\n(?=[ \t])/g, "").split("\r\n").map((line) => {
    const colon = line.indexOf(":");
    const name = (colon < 0 ? line : line.slice(0, colon)).replace(/^[ \t]+|[ \t]+$/g, "").toLowerCase();
    return [name, colon < 0 ? "" : line.slice(colon + 1).replace(/[ \t]+/g, " ").replace(/^ | $/g, "")];
  });
}

// -- the recipient ------------------------------------------------------------------------------------

async function recipientOf(statement, salts, address) {
  const wanted = new TextEncoder().encode(address.trim().toLowerCase());
  for (const [place, entry] of statement.recipients.entries()) {
    const salt = salts.recipients?.[place];
    if (typeof salt === "string" && entry.addressSha256 === (await salted(salt, wanted))) return entry;
  }
  return fail("recipient_mismatch", "no recipient of the certificate has this address, as far as it tells");
}

// -- reading --------------------------------------------------------------------------------------------

function object(given, what) {
  let found = given;
  if (typeof given === "string") {
    try {
      found = JSON.parse(given);
    } catch {
      fail("malformed_certificate", `the ${what} is not JSON`);
    }
  }
  if (typeof found !== "object" || found === null || Array.isArray(found)) fail("malformed_certificate", `the ${what} is not a JSON object`);
  return found;
}

function part(given, name) {
  return typeof given[name] === "string" ? given[name] : fail("malformed_certificate", `\`${name}\` is missing`);
}

// Decode base64url without padding, strictly: each value has one form.
function decoded(given) {
  try {
    if (!/^[A-Za-z0-9_-]*$/.test(given)) throw new TypeError("not base64url");
    const plain = atob(given.replaceAll("-", "+").replaceAll("_", "/"));
    if (btoa(plain).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "") !== given) throw new TypeError("not canonical");
    return octets(plain);
  } catch {
    return fail("malformed_certificate", "a part of the certificate is not base64url");
  }
}

const text = (content) => new TextDecoder().decode(content);
const unhex = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const octets = (plain) => Uint8Array.from(plain, (letter) => letter.charCodeAt(0));

function latin(content) {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : new Uint8Array(content);
  const pieces = [];
  for (let at = 0; at < bytes.length; at += 32_768) pieces.push(String.fromCharCode(...bytes.subarray(at, at + 32_768)));
  return pieces.join("");
}

async function salted(salt, value) {
  if (!/^([0-9a-f]{2})*$/.test(salt)) fail("malformed_certificate", "a salt is not hexadecimal");
  return sha256(Uint8Array.from([...unhex(salt), ...value]));
}

async function sha256(content) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return Array.from(digest, (octet) => octet.toString(16).padStart(2, "0")).join("");
}

function fail(reason, message) {
  throw new CertificateError(reason, message);
}
