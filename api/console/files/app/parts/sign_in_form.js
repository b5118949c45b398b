// The sign-in form: password, then a code where one is set up; passkey by its button or in the list of the address field.
import { call, CONSOLE, session, useAction } from "../core/api.js";
import { Button, ErrorNote, Form, Notice, TextField } from "../core/ui.js";
import { html, useEffect, useRef, useState } from "../core/view.js";
import { PasswordField } from "./outside_page.js";
import { providerLink } from "./provider_link.js";
import { atLocalhost, autofillWorks, passkeyProblem, passkeysWork, presentPasskey } from "./web_authn.js";

const CHALLENGE_MS = 240_000; // of five minutes that a challenge is valid

/**
 * The form that signs a person in; `onDone` gets the sign-in state. `ticket` finishes a sign-in at the provider.
 *
 * Over a page whose session ended it returns to the same account; another person gets the console anew.
 */
export function SignInForm({ email: known = "", ticket = null, provider = null, next = null, onDone }) {
  const before = useRef(session.peek()).current;
  const [step, setStep] = useState(ticket ? "code" : "password");
  const [email, setEmail] = useState(known);
  const [password, setPassword] = useState("");
  const finish = async () => {
    const state = await resumed(before);
    if (!state) return;
    onDone(state);
  };
  if (step === "code") return html`<${CodeStep} ...${{ email, password, ticket }} onDone=${finish} onBack=${() => setStep("password")} />`;
  return html`<${PasswordStep} ...${{ email, setEmail, password, setPassword }} onDone=${finish} onCode=${() => setStep("code")} /><${OtherWays} provider=${provider} next=${next} onDone=${finish} />`;
}

/** Read the sign-in state; return to the account that the page shows, or load the console anew for another person. */
async function resumed(before) {
  const state = await call("GET /v1/auth/me", { quiet: true });
  if (!before || !state.user) return state;
  if (state.user.id !== before.user.id) {
    window.location.assign(`${CONSOLE}/`);
    return null;
  }
  if (state.account.id === before.account.id || !state.accounts.some((one) => one.id === before.account.id)) return state;
  await call("POST /v1/auth/switch", { body: { accountId: before.account.id }, quiet: true });
  return call("GET /v1/auth/me", { quiet: true });
}

const MAX_WAIT_S = 3;

/**
 * Sign in; after a refusal of the last try, wait the second or so that the service asks for, and try once more. While
 * many strangers sign in, the service demands the task of a sign-up.
 */
async function logIn(body) {
  try {
    await call("POST /v1/auth/login", { body, quiet: true });
  } catch (refusal) {
    if (refusal.details?.field === "challengeToken" && !body.challengeToken) {
      await logIn({ ...body, challengeToken: await solvedTask() });
      return;
    }
    if (refusal.status !== 429 || !(refusal.retryAfterS <= MAX_WAIT_S)) throw refusal;
    await new Promise((done) => { setTimeout(done, refusal.retryAfterS * 1000); });
    await call("POST /v1/auth/login", { body, quiet: true });
  }
}

async function solvedTask() {
  const challenge = await call("GET /v1/auth/signup/challenge", { quiet: true });
  const { solve } = await import("./proof_of_work.js");
  return solve(challenge, () => false);
}

function PasswordStep({ email, setEmail, password, setPassword, onDone, onCode }) {
  const [signIn, { busy, error }] = useAction(async () => {
    try {
      await logIn({ email, password });
    } catch (refusal) {
      if (refusal.type !== "totp_required") throw refusal;
      onCode();
      return;
    }
    await onDone();
  });
  return html`<${Form} onSubmit=${signIn}>
    <${TextField} label="Address" type="email" name="email" autocomplete="username webauthn" required maxlength="320" autofocus=${!email} value=${email} onValue=${setEmail} />
    <${PasswordField} value=${password} onValue=${setPassword} name="password" autofocus=${Boolean(email)} />
    <${ErrorNote} error=${error} />
    <${Button} kind="primary" type="submit" busy=${busy}>Sign in<//>
  <//>`;
}

function CodeStep({ email, password, ticket, onDone, onBack }) {
  const [code, setCode] = useState("");
  const [signIn, { busy, error }] = useAction(async () => {
    const given = code.trim();
    if (ticket) await call("POST /v1/auth/idp/totp", { body: { ticket, code: given }, quiet: true });
    else await logIn({ email, password, code: given });
    await onDone();
  });
  return html`<${Form} onSubmit=${signIn}>
    <p>${ticket ? "Your provider confirmed who you are. " : ""}One more step: enter the current code from your authenticator app, or a recovery code.</p>
    <${TextField} label="Code" name="code" mono autocomplete="one-time-code" autocapitalize="off" spellcheck=${false} required maxlength="32" autofocus value=${code} onValue=${setCode} />
    <${ErrorNote} error=${error} />
    <${Button} kind="primary" type="submit" busy=${busy}>Sign in<//>
    <${Button} kind="quiet" icon="arrow-left" onClick=${onBack}>Use another address<//>
  <//>`;
}

/** Passkey and identity provider. */
function OtherWays({ provider, next, onDone }) {
  const [problem, setProblem] = useState(null);
  const waiting = useAutofill(onDone, setProblem);
  const [present, { busy, error }] = useAction(async () => {
    waiting.current?.abort();
    setProblem(null);
    try {
      await signInWithPasskey({});
    } catch (failure) {
      if (failure.type) throw failure;
      setProblem(passkeyProblem(failure));
      return;
    }
    await onDone();
  });
  const named = atLocalhost();
  if (!passkeysWork() && !provider && !named) return null;
  return html`<div class="stack"><div class="or-line soft small" aria-hidden="true">or</div>
    ${passkeysWork() && html`<${Button} icon="key" busy=${busy} onClick=${present}>Use a passkey<//>`}
    ${named && html`<p class="small outside-foot">Have a passkey? <a href=${named}>Sign in at localhost</a></p>`}
    ${provider && html`<${Button} icon="log-out" link=${providerLink(next)}>Continue with ${provider.name}<//>`}
    ${problem && html`<${Notice} tone="warn">${problem}<//>`}<${ErrorNote} error=${error} /></div>`;
}

async function signInWithPasskey(how) {
  const { publicKey } = await call("POST /v1/auth/passkeys/login/options", { quiet: true });
  const credential = await presentPasskey(publicKey, how);
  await call("POST /v1/auth/passkeys/login/verify", { body: { credential }, quiet: true });
}

/** Offer passkeys in the list of the address field, with a new challenge before each one expires. */
function useAutofill(onDone, setProblem) {
  const waiting = useRef(null);
  useEffect(() => {
    let ended = false;
    const offer = async () => {
      const abort = new AbortController();
      waiting.current = abort;
      const late = setTimeout(() => abort.abort("late"), CHALLENGE_MS);
      try {
        await signInWithPasskey({ mediation: "conditional", signal: abort.signal });
        if (!ended) await onDone();
      } catch (failure) {
        if (abort.signal.reason === "late" && !ended) offer();
        else if (failure.type === "invalid_credentials") setProblem(failure.message);
      } finally {
        clearTimeout(late);
      }
    };
    autofillWorks().then((works) => works && !ended && offer());
    return () => {
      ended = true;
      waiting.current?.abort();
    };
  }, []);
  return waiting;
}
