// Sign-up: a person with a first account. The service can demand a small task from the browser, against bulk sign-ups.
import { call, useAction } from "../core/api.js";
import { go } from "../core/router.js";
import { Button, ErrorNote, fieldError, Form, Icon, Notice, TextField } from "../core/ui.js";
import { html, useEffect, useRef, useState } from "../core/view.js";
import { OutsideLink, OutsidePage, PasswordField } from "./outside_page.js";

const FIELDS = ["email", "password", "accountName"];

/** The page that signs a new person up. */
export function SignUp({ service }) {
  const [values, setValues] = useState({ email: "", password: "", accountName: "" });
  const [sentTo, setSentTo] = useState(null);
  const task = useTask();
  const set = (name) => (value) => setValues((old) => ({ ...old, [name]: value }));
  const [signUp, { busy, error }] = useAction(async () => {
    const { email, password, accountName } = values;
    const challengeToken = await task.solution();
    const reply = await call("POST /v1/auth/signup", { body: { email, password, ...(accountName && { accountName }), ...(challengeToken && { challengeToken }) }, quiet: true });
    setSentTo(reply.email);
  });
  const foot = html`Already have an account? <${OutsideLink} to="/sign-in">Sign in<//>`;
  if (service.signUp?.open === false) return html`<${OutsidePage} title="Sign-up is closed" foot=${foot}><p>You can join this instance by invitation only. Ask the owner of an account to invite you.</p><//>`;
  if (sentTo) return html`<${Sent} email=${sentTo} local=${service.local} onAgain=${() => setSentTo(null)} />`;
  return html`<${OutsidePage} title="Create an account" lead="Send, receive and track email by API, SMTP or in this console." foot=${foot}>
    <${Form} onSubmit=${signUp}>
      <${TextField} label="Address" hint="We'll send it a link to confirm it's yours." type="email" name="email" autocomplete="username" required maxlength="320" autofocus value=${values.email} onValue=${set("email")} error=${addressError(error)} />
      <${PasswordField} fresh name="password" value=${values.password} onValue=${set("password")} error=${fieldError(error, "password")} />
      <${TextField} label="Account name (optional)" hint="Your company or project. You can change it later." autocomplete="organization" maxlength="120" value=${values.accountName} onValue=${set("accountName")} error=${fieldError(error, "accountName")} />
      ${task.required && html`<p class="small soft row" role="status"><${Icon} name=${task.done ? "check" : "clock"} size=${14} /><span class="grow">${task.done ? "Your browser has solved the puzzle." : "Your browser is solving a short puzzle that blocks automated sign-ups. It shares nothing about you."}</span></p>`}
      <${ErrorNote} error=${addressError(error) ? null : error} fields=${FIELDS} />
      <${Button} kind="primary" type="submit" busy=${busy}>Create account<//>
    <//><//>`;
}

const addressError = (error) => fieldError(error, "email") ?? (error?.type === "invalid_address" ? error.message : null);

function Sent({ email, local, onAgain }) {
  return html`<${OutsidePage} title="Check your mailbox" foot=${html`<button type="button" class="link-button" onClick=${onAgain}>Use another address</button>`}>
    <div class="stack" role="status"><p>We've sent an email to <strong class="wrap">${email}</strong>. Open its link to confirm the address. Then you can create API keys.</p>
      ${local && html`<${Notice}>This instance runs in local mode, so the email is in the local sink. Run <code>python3 -m ops sink</code> to read it.<//>`}</div>
    <${Button} kind="primary" onClick=${() => go("/sign-in", { query: { email } })}>Sign in<//><//>`;
}

/** The task of the service: solved while the person fills in the form; each sign-up needs a new one. */
function useTask() {
  const [state, setState] = useState({ required: false, done: false });
  const work = useRef(null);
  const ended = useRef(false);
  const begin = async () => {
    const challenge = await call("GET /v1/auth/signup/challenge", { quiet: true });
    if (!challenge.required || ended.current) return null;
    setState({ required: true, done: false });
    const { solve } = await import("./proof_of_work.js");
    const token = await solve(challenge, () => ended.current);
    if (!ended.current) setState({ required: true, done: true });
    return token;
  };
  useEffect(() => {
    work.current = begin();
    work.current.catch(() => {}); // the refusal is shown at the sign-up
    return () => { ended.current = true; };
  }, []);
  const solution = async () => {
    const current = work.current ?? begin();
    work.current = null; // a solution is valid for one sign-up
    return current;
  };
  return { ...state, solution };
}
