// Passkeys in the browser: options of the API into the browser's form and its answers back into JSON.

/** Return true if the page was opened by an IP address: passkeys belong to names. */
export const openedByAddress = () => /^[\d.]+$|^\[/.test(window.location.hostname);

/** Return the address of this page at localhost, where passkeys work; null if that is another machine. */
export function atLocalhost() {
  const { hostname, href } = window.location;
  if (!/^127\.|^\[::1\]$/.test(hostname)) return null;
  const page = new URL(href);
  page.hostname = "localhost";
  return page.href;
}

/** Return true if the browser can create and use passkeys on this page. */
export const passkeysWork = () => Boolean(!openedByAddress() && window.isSecureContext && window.PublicKeyCredential?.parseRequestOptionsFromJSON && navigator.credentials);

/** Return true if the browser offers passkeys in the list of the address field. */
export async function autofillWorks() {
  return passkeysWork() && Boolean(await window.PublicKeyCredential.isConditionalMediationAvailable?.());
}

/** Ask the person for one of their passkeys; `mediation` "conditional" waits in the list of the address field. */
export async function presentPasskey(publicKey, { mediation, signal } = {}) {
  const found = await navigator.credentials.get({ publicKey: window.PublicKeyCredential.parseRequestOptionsFromJSON(publicKey), mediation, signal });
  return found.toJSON();
}

/** Let the person's device create a passkey. */
export async function createPasskey(publicKey) {
  const made = await navigator.credentials.create({ publicKey: window.PublicKeyCredential.parseCreationOptionsFromJSON(publicKey) });
  return made.toJSON();
}

/** Return what a failure of the browser means, or null if the person closed the dialog. */
export function passkeyProblem(error) {
  if (error.name === "NotAllowedError" || error.name === "AbortError") return null;
  if (error.name === "InvalidStateError") return "This device already has a passkey for you. Use it to sign in.";
  if (error.name === "SecurityError") return `Passkeys don't work at ${window.location.origin}. Open the console by its host name.`;
  if (error.name === "NotSupportedError") return "This device can't create a suitable passkey. Use another device or a security key.";
  return `The browser refused: ${error.message}`;
}
