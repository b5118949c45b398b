// The pages behind the links in mails: each takes the token out of the address and sends it after a press of its button.
import { call, refreshSession, session, useAction } from "../core/api.js";
import { Button, CheckField, ErrorNote, fieldError, Form, TextField } from "../core/ui.js";
import { html, useEffect, useState } from "../core/view.js";
import { DoneNote, IncompleteLink, linkToken, OutsideLink, OutsidePage, PasswordField } from "./outside_page.js";

/** A page with one button that spends the token of its link; `send` makes the call. */
function LinkPage({ title, lead, doneTitle, done, button, send, again, fields = [], children }) {
  const token = linkToken();
  const [finished, setFinished] = useState(false);
  const [run, { busy, error }] = useAction(async () => {
    await send(token);
    await refreshSession();
    setFinished(true);
  });
  if (finished) return html`<${OutsidePage} title=${doneTitle}><${DoneNote}>${done}<//><//>`;
  if (!token) return html`<${OutsidePage} title=${title} foot=${again}><${IncompleteLink} /><//>`;
  return html`<${OutsidePage} title=${title} lead=${lead} foot=${again}><${Form} onSubmit=${run}>
    ${children?.(error)}
    <${ErrorNote} error=${error} fields=${fields} />
    <${Button} kind="primary" type="submit" busy=${busy}>${button}<//>
  <//><//>`;
}

const NEW_LINK = html`Link already used or expired? <${OutsideLink} to="/forgot-password">Request a new one<//>`;

/** A page that proves with the password that the person who opened the link also asked for it, if `asks`. */
function ProofPage({ asks, path, ...rest }) {
  const [password, setPassword] = useState("");
  return html`<${LinkPage} fields=${["password"]} send=${(token) => call(path, { body: asks ? { token, password } : { token }, quiet: true })} ...${rest}>
    ${(error) => asks && html`<${PasswordField} hint="The password you chose at sign-up. It proves the sign-up is yours." autofocus value=${password} onValue=${setPassword} error=${fieldError(error, "password")} />`}
  <//>`;
}

/** Confirms that a mail arrived at the person's address. */
export function VerifyEmail() {
  const [asks] = useState(session.peek()?.user.emailVerified !== false);
  return html`<${ProofPage} asks=${asks} path="POST /v1/auth/verify-email" title="Confirm your address" lead="If you didn't sign up, close this page and choose “This wasn't me” in the email." button="Confirm my address"
    doneTitle="Your address is confirmed" done="You can now create API keys and send email."
    again=${html`The link expires after 48 hours. Sign in to get a new one. Forgot your password? <${OutsideLink} to="/forgot-password">Set a new one<//>, which also confirms the address.`} />`;
}

/** Ends a sign-up that somebody else made with the person's address. */
export function EndSignUp() {
  return html`<${LinkPage} title="Didn't sign up?" lead="This cancels the sign-up with your address. Nobody can sign in with it, and its account is deleted." button="End the sign-up"
    send=${(token) => call("POST /v1/auth/signup/end", { body: { token }, quiet: true })}
    doneTitle="The sign-up has ended" done="Its account is being deleted. You can sign up with your address afterwards."
    again="The link expires after 48 hours, or when the address is confirmed with its password." />`;
}

/** Confirms the new address of a person. */
export function ConfirmEmail() {
  const [asks] = useState(!session.peek());
  return html`<${ProofPage} asks=${asks} path="POST /v1/auth/email/change/confirm" title="Confirm your new address" lead="From then on you sign in with this address. You're signed out everywhere else." button="Use this address"
    doneTitle="Your address is changed" done="Sign in with it from now on. We've notified the old address."
    again="The link expires after 24 hours. Request a new one in your profile." />`;
}

/** Sets a new password by a link, and removes what else signs the person in, if they want it. */
export function ResetPassword() {
  const [password, setPassword] = useState("");
  const [removeOthers, setRemoveOthers] = useState(false);
  const [others, setOthers] = useState([]);
  useEffect(() => { otherWays(linkToken()).then(setOthers, () => {}); }, []); // an invalid link is reported by the button
  return html`<${LinkPage} title="Set a new password" lead="This signs you out everywhere. From then on, sign in with the new password." button="Set the password" fields=${["password"]}
    send=${(token) => call("POST /v1/auth/password/reset", { body: { token, password, removeOthers }, quiet: true })}
    doneTitle="Your password is set" done="You're signed out everywhere. Sign in with the new password. If any other access has ended, we've emailed you the details." again=${NEW_LINK}>
    ${(error) => html`<${PasswordField} label="New password" fresh autofocus value=${password} onValue=${setPassword} error=${fieldError(error, "password")} />
      ${others.length > 0 && html`<div class="stack-tight"><p>A new password doesn't remove these ways to sign in:</p>
        <ul>${others.map((one) => html`<li class="wrap">${one}</li>`)}</ul>
        <${CheckField} label="Remove all of them" hint="Choose this if you don't recognize one of them." checked=${removeOthers} onChecked=${setRemoveOthers} /></div>`}`}
  <//>`;
}

async function otherWays(token) {
  if (!token) return [];
  const { passkeys, identities } = await call("POST /v1/auth/password/reset/others", { body: { token }, quiet: true });
  return [...passkeys.map((one) => `Passkey ${one.name}`), ...identities.map((one) => `Sign-in with ${one.name}`)];
}

/** Accepts an invitation to an account: in the session of the invited address, else with a password. */
export function AcceptInvite() {
  const [password, setPassword] = useState("");
  const [asks, setAsks] = useState(!session.peek());
  const lead = asks
    ? "Enter your password, or choose one if you're new here. If you use a passkey or an identity provider, sign in first, then open the link again."
    : `You are signed in as ${session.value?.user.email}. The invitation must be for this address.`;
  const forgotten = html`Forgot your password? <${OutsideLink} to="/forgot-password">Set a new one first<//>`;
  return html`<${LinkPage} title="Accept the invitation" lead=${lead} button="Accept" fields=${["password"]}
    send=${(token) => call("POST /v1/team/invites/accept", { body: asks ? { token, password } : { token }, quiet: true })}
    doneTitle="You are a member of the account" done=${session.value ? "Switch to it at the top of the navigation." : "Sign in with your address and password."}
    again=${asks ? forgotten : html`<${Button} kind="quiet" onClick=${() => setAsks(true)}>Use another address<//>`}>
    ${(error) => asks && html`<${PasswordField} hint="A new password needs at least 10 characters. Make it hard to guess, such as a few uncommon words." autofocus value=${password} onValue=${setPassword} error=${fieldError(error, "password")} />`}
  <//>`;
}

/** Asks for a link to set a new password. */
export function ForgotPassword() {
  const [email, setEmail] = useState(session.peek()?.user.email ?? "");
  const [sent, setSent] = useState(false);
  const [ask, { busy, error }] = useAction(async () => {
    await call("POST /v1/auth/password/forgot", { body: { email }, quiet: true });
    setSent(true);
  });
  const foot = html`<${OutsideLink} to="/sign-in">Back to the sign-in<//>`;
  if (sent) {
    return html`<${OutsidePage} title="Check your mailbox" foot=${foot}>
      <p role="status">If <strong class="wrap">${email}</strong> has a sign-in here, we've sent it a link. The link expires after an hour.</p>
      <p class="soft small">Nothing arriving? Check your spam folder and the address.</p>
      <${Button} onClick=${() => setSent(false)}>Use another address<//><//>`;
  }
  return html`<${OutsidePage} title="Forgot your password?" lead="Enter the address you sign in with. We'll send it a link to set a new password." foot=${foot}>
    <${Form} onSubmit=${ask}>
      <${TextField} label="Address" type="email" autocomplete="username" required maxlength="320" autofocus value=${email} onValue=${setEmail} error=${fieldError(error, "email")} />
      <${ErrorNote} error=${error} fields=${["email"]} />
      <${Button} kind="primary" type="submit" busy=${busy}>Send the link<//>
    <//><//>`;
}
