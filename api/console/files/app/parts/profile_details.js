// The person's own data: names, time zone, signature, and the address that they sign in with.
import { call, refreshSession, session, useAction, useCall } from "../core/api.js";
import { guardLeaving } from "../core/router.js";
import { Button, Card, Chip, ErrorNote, fieldError, Form, Notice, Skeleton, TextField, toast } from "../core/ui.js";
import { html, useEffect, useState } from "../core/view.js";
import { PasswordField } from "./outside_page.js";
import { wrongPassword } from "./prove.js";

const FIELDS = ["name", "displayName", "timezone", "signature"];

/** The part "Profile": data and address. */
export function Details() {
  const state = useCall("GET /v1/profile");
  if (state.error && !state.data) return html`<${ErrorNote} error=${state.error} retry=${state.reload} />`;
  if (!state.data) return html`<${Card} title="About you"><${Skeleton} lines=${6} /><//>`;
  return html`<div class="stack"><${AboutYou} key=${state.data.id} profile=${state.data} /><${Address} profile=${state.data} /></div>`;
}

const written = (profile) => ({
  name: profile.name ?? "",
  displayName: profile.displayName ?? "",
  timezone: profile.timezone ?? "",
  signature: profile.signature ?? "",
  signatureAddresses: (profile.signatureAddresses ?? []).join("\n"),
});

function AboutYou({ profile }) {
  const [saved, setSaved] = useState(() => written(profile));
  const [values, setValues] = useState(saved);
  const changed = Object.keys(saved).some((name) => saved[name] !== values[name]);
  useEffect(() => (changed ? guardLeaving("Your profile has unsaved changes. Leave and discard them?") : undefined), [changed]);
  const [save, { busy, error }] = useAction(async () => {
    const addresses = values.signatureAddresses.split(/[\s,;]+/).filter(Boolean);
    const body = Object.fromEntries(FIELDS.filter((name) => saved[name] !== values[name]).map((name) => [name, values[name].trim() || null]));
    if (saved.signatureAddresses !== values.signatureAddresses) body.signatureAddresses = addresses.length ? addresses : null;
    const fresh = written(await call("PATCH /v1/profile", { body }));
    setSaved(fresh);
    setValues(fresh);
    await refreshSession();
    toast("Profile saved");
  });
  const set = (name) => (value) => setValues((old) => ({ ...old, [name]: value }));
  const field = (name, rest) => html`<${TextField} value=${values[name]} onValue=${set(name)} error=${fieldError(error, name)} ...${rest} />`;
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const signatureError = error?.details?.field?.startsWith("signatureAddresses") ? error.message : null;
  return html`<${Card} title="About you"><${Form} onSubmit=${save}>
    ${field("name", { label: "Name", autocomplete: "name", maxlength: 120 })}
    ${field("displayName", { label: "Display name", hint: "Your team and the people you invite see this instead of your name.", autocomplete: "nickname", maxlength: 120 })}
    ${field("timezone", { label: "Time zone", hint: html`The console shows and takes all times in this zone. Leave blank to use the zone of this device, ${here}.`, list: "zones", autocomplete: "off", placeholder: here, maxlength: 64 })}
    <datalist id="zones">${Intl.supportedValuesOf("timeZone").map((zone) => html`<option value=${zone}></option>`)}</datalist>
    ${field("signature", { label: "Signature", hint: "Text that apps add below emails you write.", rows: 3, maxlength: 10000 })}
    ${field("signatureAddresses", { label: "Addresses for the signature", hint: "One per line. Leave blank to use the signature for all your addresses.", rows: 2, error: signatureError, spellcheck: false })}
    <${ErrorNote} error=${signatureError ? null : error} fields=${FIELDS} />
    <div class="form-actions"><${Button} kind="primary" type="submit" busy=${busy} disabled=${!changed}>Save profile<//>${changed && html`<${Button} onClick=${() => setValues(saved)}>Discard changes<//>`}</div>
  <//><//>`;
}

function Address({ profile }) {
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const [sentTo, setSentTo] = useState(null);
  const [change, { busy, error }] = useAction(async () => {
    await call("POST /v1/auth/email/change", { body: { newEmail: email, ...(password && { currentPassword: password }) }, quiet: true });
    setSentTo(email);
    setEmail("");
    setPassword("");
  });
  const addressError = fieldError(error, "newEmail") ?? (error?.type === "invalid_address" ? error.message : null);
  const shown = addressError || wrongPassword(error);
  return html`<${Card} title="Address"><div class="stack">
    <p>You sign in with <strong class="wrap">${profile.email}</strong> <${Chip}>${profile.emailVerified ? "verified" : "unverified"}<//>${!profile.emailVerified && html` <${SendAgain} email=${profile.email} />`}</p>
    ${sentTo && html`<${Notice} tone="good">A link was sent to ${sentTo}. Your address changes when you open it. Until then, sign in with the current one.<//>`}
    <${Form} onSubmit=${change}>
      <${TextField} label="New address" type="email" autocomplete="email" required maxlength="320" value=${email} onValue=${setEmail} error=${addressError} />
      <${PasswordField} label="Current password" hint="Leave blank if you sign in without a password." required=${false} value=${password} onValue=${setPassword} error=${wrongPassword(error)} />
      <${ErrorNote} error=${shown ? null : error} />
      <div class="form-actions"><${Button} type="submit" busy=${busy}>Change address<//></div>
    <//></div><//>`;
}

function SendAgain({ email }) {
  const [send, { busy }] = useAction(async () => {
    await call("POST /v1/auth/verify-email/send");
    toast(`Confirmation email sent to ${email}`);
  });
  return html`<${Button} busy=${busy} onClick=${send}>Send the link again<//>`;
}
