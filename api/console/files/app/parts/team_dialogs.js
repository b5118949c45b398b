// Dialogs of the team: invite, change a role, transfer the ownership.
import { call, refreshSession, session, useAction } from "../core/api.js";
import { Button, Dialog, ErrorNote, fieldError, Form, SelectField, TextField, toast } from "../core/ui.js";
import { html, useState } from "../core/view.js";
import { PasswordField } from "./outside_page.js";
import { wrongPassword } from "./prove.js";
import { RoleField } from "./role_choice.js";

const foot = (onClose, text, busy, submit, danger) => html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" danger=${danger} busy=${busy} onClick=${submit}>${text}<//>`;

/** Invite a person by mail. */
export function InviteDialog({ onClose }) {
  const [email, setEmail] = useState("");
  const [role, setRole] = useState("member");
  const [invite, { busy, error }] = useAction(() => call("POST /v1/team/invites", { body: { email: email.trim(), role } }));
  const submit = async () => {
    if ((await invite()) === undefined) return;
    toast(`Invitation sent to ${email.trim()}`);
    onClose(true);
  };
  const addressError = fieldError(error, "email") ?? (error?.type === "invalid_address" ? error.message : null);
  return html`<${Dialog} title="Invite a person" onClose=${() => onClose(false)} foot=${foot(onClose, "Send invitation", busy, submit)}>
    <${Form} onSubmit=${submit}>
      <${TextField} label="Address" hint="They get an email with a link that expires after 7 days. A pending invitation uses one seat." type="email" required maxlength="320" autofocus autocomplete="off" value=${email} onValue=${setEmail} error=${addressError} />
      <${RoleField} value=${role} onValue=${setRole} />
      <${ErrorNote} error=${addressError ? null : error} />
    <//>
  <//>`;
}

/** Change the role of a member. */
export function RoleDialog({ member, onClose }) {
  const [role, setRole] = useState(member.role);
  const mine = member.id === session.value.user.id;
  const [change, { busy, error }] = useAction(async () => {
    await call("PATCH /v1/team/members/{id}", { path: { id: member.id }, body: { role } });
    if (mine) await refreshSession();
  });
  const submit = async () => {
    if ((await change()) === undefined) return;
    toast(`${member.name ?? member.email} is ${role === "member" ? "a member" : role === "admin" ? "an admin" : "an owner"} now`);
    onClose(true);
  };
  return html`<${Dialog} title=${`Change the role of ${member.name ?? member.email}`} onClose=${() => onClose(false)} foot=${foot(onClose, "Change role", busy, submit)}>
    <${Form} onSubmit=${submit}>
      <${RoleField} value=${role} onValue=${setRole} autofocus />
      ${mine && html`<p class="warn">This is your own role. If you lower it, you can't raise it again yourself.</p>`}
      <${ErrorNote} error=${error} />
    <//>
  <//>`;
}

/** Give the ownership to another member; the caller becomes an admin. */
export function TransferDialog({ members, onClose }) {
  const others = members.filter((member) => member.role !== "owner" && member.id !== session.value.user.id);
  const [memberId, setMemberId] = useState(others[0]?.id ?? "");
  const [password, setPassword] = useState("");
  const [asked, setAsked] = useState(false);
  const [transfer, { busy, error }] = useAction(async () => {
    try {
      await call("POST /v1/team/transfer", { body: { memberId, ...(password && { password }) } });
    } catch (refusal) {
      if (refusal.details?.field === "password") setAsked(true);
      throw refusal;
    }
    await refreshSession();
  });
  const submit = async () => {
    if ((await transfer()) === undefined) return;
    const chosen = others.find((member) => member.id === memberId);
    toast(`${chosen.name ?? chosen.email} now owns the account`);
    onClose(true);
  };
  return html`<${Dialog} title="Transfer ownership" onClose=${() => onClose(false)} foot=${foot(onClose, "Transfer ownership", busy, submit, true)}>
    <${Form} onSubmit=${submit}>
      <p>The new owner can delete the account and remove anyone, including you. You become an admin. Only the new owner can transfer it back. Both of you get an email.</p>
      <${SelectField} label="New owner" value=${memberId} onValue=${setMemberId} options=${others.map((member) => [member.id, member.name ? `${member.name} (${member.email})` : member.email])} />
      ${asked && html`<${PasswordField} label="Your password" autofocus value=${password} onValue=${setPassword} error=${wrongPassword(error)} />`}
      <${ErrorNote} error=${asked && wrongPassword(error) ? null : error} />
    <//>
  <//>`;
}
