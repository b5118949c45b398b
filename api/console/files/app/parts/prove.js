// Changes that need the person's password if the sign-in is older than ten minutes, or a code of their authenticator.
import { useAction } from "../core/api.js";
import { Button, Dialog, ErrorNote, fieldError, Form, TextField } from "../core/ui.js";
import { html, useState } from "../core/view.js";
import { PasswordField } from "./outside_page.js";

const ASKS = Symbol("the service asks for a further proof");

/**
 * Run a change, and ask for password and code as the service demands them: [run, {busy, error}, dialog].
 *
 * `action` gets an object to spread into the body (with `password` and `code`, or empty) and what `run` was given.
 * `dialog` must be rendered.
 */
export function useProven(action) {
  const [asking, setAsking] = useState(null); // {field, proof, values}
  const attempt = async (proof, values) => {
    try {
      return await action(proof, ...values);
    } catch (refusal) {
      const field = refusal.details?.field;
      if (!["password", "code"].includes(field) || field in proof) throw refusal;
      setAsking({ field, proof, values });
      return ASKS;
    }
  };
  const [run, state] = useAction(async (...values) => {
    const done = await attempt({}, values);
    return done === ASKS ? null : done;
  });
  const dialog = asking && html`<${ProofDialog} key=${asking.field} field=${asking.field} onClose=${() => setAsking(null)}
    action=${(value) => attempt({ ...asking.proof, [asking.field]: value }, asking.values)} />`;
  return [run, state, dialog];
}

function ProofDialog({ field, action, onClose }) {
  const [value, setValue] = useState("");
  const [confirm, { busy, error }] = useAction(() => action(value));
  const submit = async () => {
    const done = await confirm();
    if (done !== undefined && done !== ASKS) onClose();
  };
  const wrong = field === "password" ? wrongPassword(error) : (fieldError(error, "code") ?? (error?.type === "invalid_credentials" ? error.message : null));
  return html`<${Dialog} title="Confirm that it is you" onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Confirm<//>`}>
    <${Form} onSubmit=${submit}>
      ${field === "password"
        ? html`<p>You signed in more than ten minutes ago. Enter your password to continue.</p>
          <${PasswordField} autofocus value=${value} onValue=${setValue} error=${wrong} />`
        : html`<p>Enter a code from your authenticator app or a recovery code to continue.</p>
          <${TextField} label="Code" autocomplete="one-time-code" required maxlength="32" autofocus value=${value} onValue=${setValue} error=${wrong} />`}
      <${ErrorNote} error=${wrong ? null : error} />
    <//>
  <//>`;
}

/** Return the message for the password field, if the refusal is about it. */
export const wrongPassword = (error) => fieldError(error, "password") ?? fieldError(error, "currentPassword") ?? (error?.type === "invalid_credentials" ? error.message : null);
