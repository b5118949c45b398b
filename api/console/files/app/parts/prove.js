// Changes that need the person's password if the sign-in is older than ten minutes.
import { useAction } from "../core/api.js";
import { Button, Dialog, ErrorNote, fieldError, Form } from "../core/ui.js";
import { html, useState } from "../core/view.js";
import { PasswordField } from "./outside_page.js";

/**
 * Run a change, and ask for the password if the service demands it: [run, {busy, error}, dialog].
 *
 * `action` gets an object to spread into the body (with `password`, or empty) and what `run` was given. `dialog` must
 * be rendered.
 */
export function useProven(action) {
  const [asking, setAsking] = useState(null);
  const [run, state] = useAction(async (...values) => {
    try {
      return await action({}, ...values);
    } catch (refusal) {
      if (refusal.details?.field !== "password") throw refusal;
      setAsking(values);
      return null;
    }
  });
  const dialog = asking && html`<${PasswordDialog} action=${(password) => action({ password }, ...asking)} onClose=${() => setAsking(null)} />`;
  return [run, state, dialog];
}

function PasswordDialog({ action, onClose }) {
  const [password, setPassword] = useState("");
  const [confirm, { busy, error }] = useAction(() => action(password));
  const submit = async () => { if ((await confirm()) !== undefined) onClose(); };
  return html`<${Dialog} title="Confirm that it is you" onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Confirm<//>`}>
    <${Form} onSubmit=${submit}>
      <p>You signed in more than ten minutes ago. Enter your password to go on.</p>
      <${PasswordField} autofocus value=${password} onValue=${setPassword} error=${wrongPassword(error)} />
      <${ErrorNote} error=${wrongPassword(error) ? null : error} />
    <//>
  <//>`;
}

/** Return the message for the password field, if the refusal is about it. */
export const wrongPassword = (error) => fieldError(error, "password") ?? fieldError(error, "currentPassword") ?? (error?.type === "invalid_credentials" ? error.message : null);
