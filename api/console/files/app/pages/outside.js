// Pages for persons without a session: sign-in, sign-up and the links in mails.
import { call, CONSOLE, refreshSession, session, setSession, useAction } from "../core/api.js";
import { go, handed, location } from "../core/router.js";
import { Button, ErrorNote, Form, Notice, TextField } from "../core/ui.js";
import { html, useEffect, useState } from "../core/view.js";
import { linkToken, OutsideLink, OutsidePage } from "../parts/outside_page.js";
import { SignInForm } from "../parts/sign_in_form.js";

export { AcceptInvite, ConfirmEmail, EndSignUp, ForgotPassword, ResetPassword, VerifyEmail } from "../parts/link_pages.js";
export { SignUp } from "../parts/sign_up_page.js";
export { SignInForm };

// What the identity provider's redirect says of a failed sign-in, as words in the fragment.
const PROBLEMS = {
  __proto__: null,
  access_denied: "The provider rejected the sign-in, or you canceled it.",
  unavailable: "The provider can't be reached. Try again in half a minute, or sign in another way.",
  email_unverified: "The provider has not confirmed your address. Confirm it there, then sign in again.",
  invalid_address: "The provider returned no usable email address for you.",
  other_identity: "Your address is linked to another identity at the provider. Sign in with your password.",
  address_unconfirmed: "Your address isn't confirmed yet. Sign in with your password and confirm it.",
  no_account: "You have no account on this instance. Ask an owner to invite you.",
  too_many_tries: "Too many sign-ins. Wait a minute, then try again.",
  expired: "This sign-in was already used, took too long, or started in another browser. Try again.",
};

/** Return the page to show after signing in: a path of the console, from the address or the provider's redirect. */
function wanted() {
  const back = handed.peek().get("returnTo");
  const next = back?.startsWith(`${CONSOLE}/`) ? back.slice(CONSOLE.length) : location.peek().query.get("next");
  return next && /^\/(?![/\\])/.test(next) ? next : "/";
}

function goOn(next) {
  const [to, search = ""] = next.split("?");
  go(to, { query: Object.fromEntries(new URLSearchParams(search)), replace: true });
}

/** The sign-in page; with a token in its link, the page that signs in by it. */
export function SignIn({ service }) {
  const token = linkToken();
  if (token) return html`<${SignInByLink} token=${token} />`;
  return html`<${SignInPage} service=${service} />`;
}

function SignInPage({ service }) {
  const next = wanted();
  const problem = handed.value.get("error");
  const known = session.value;
  useEffect(() => { if (known) goOn(next); }, [known]);
  if (known) return null;
  const foot = html`<${OutsideLink} to="/forgot-password">Forgot your password?<//>${service.signUp?.open !== false && html` · <${OutsideLink} to="/sign-up">Create an account<//>`}`;
  return html`<${OutsidePage} title="Sign in" foot=${foot}>
    ${problem && html`<${Notice} tone="warn">${PROBLEMS[problem] ?? "The provider could not sign you in. Try again, or sign in another way."}<//>`}
    <${SignInForm} email=${location.value.query.get("email") ?? ""} ticket=${handed.value.get("ticket")} provider=${service.identityProvider} next=${next} onDone=${setSession} />
  <//>`;
}

/** Signs in by the link that the terminal shows; asks for a code if the person has an authenticator. */
function SignInByLink({ token }) {
  const [code, setCode] = useState("");
  const [needsCode, setNeedsCode] = useState(false);
  const [signIn, { busy, error }] = useAction(async () => {
    try {
      await call("POST /v1/auth/link", { body: { token, ...(code && { code: code.trim() }) }, quiet: true });
    } catch (refusal) {
      if (refusal.type !== "totp_required") throw refusal;
      setNeedsCode(true);
      return;
    }
    await refreshSession();
    go("/", { replace: true });
  });
  useEffect(() => { signIn(); }, []);
  if (needsCode) {
    return html`<${OutsidePage} title="Sign in" lead="Enter the current code from your authenticator app, or a recovery code."><${Form} onSubmit=${signIn}>
      <${TextField} label="Code" mono autocomplete="one-time-code" required maxlength="32" autofocus value=${code} onValue=${setCode} />
      <${ErrorNote} error=${error} /><${Button} kind="primary" type="submit" busy=${busy}>Sign in<//><//><//>`;
  }
  if (busy || !error) return html`<${OutsidePage} title="Signing you in"><p class="soft" role="status">This takes a moment.</p><//>`;
  return html`<${OutsidePage} title="This link doesn't work" lead="Each link works once, and a new one replaces it."><${ErrorNote} error=${error} /><${Button} kind="primary" to="/sign-in">Sign in another way<//><//>`;
}
