// The people of the account: members, invitations, seats. Sub-accounts are beside them.
import { call, hasRole, session, useCall, whyNot } from "../core/api.js";
import { useAskedForNew } from "../core/router.js";
import { Button, Card, Chip, Confirm, Empty, Menu, PageHead, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, useState } from "../core/view.js";
import { CapMeter } from "../parts/caps.js";
import { leaveConsole } from "../parts/profile_sessions.js";
import { InviteDialog, RoleDialog, TransferDialog } from "../parts/team_dialogs.js";

export { SubAccounts } from "../parts/sub_accounts.js";

const called = (one) => one.name ?? one.email;

/** The page of the team. */
export function Team() {
  const state = useCall("GET /v1/team", {}, { pollMs: true, whole: "members" });
  const [open, setOpen] = useState(null); // {what, row}
  useAskedForNew("admin", () => setOpen({ what: "invite" }));
  const { data } = state;
  const close = (done) => {
    setOpen(null);
    if (done) state.reload();
  };
  const unready = !data ? "The members haven't loaded yet." : data.members.length < 2 ? "Invite the new owner first: you're the only member." : undefined;
  const invite = html`<${Button} kind="primary" icon="user-plus" role="admin" onClick=${() => setOpen({ what: "invite" })}>Invite<//>`;
  const actions = html`${hasRole("owner") && html`<${Button} why=${whyNot("owner") ?? unready} onClick=${() => setOpen({ what: "transfer" })}>Transfer ownership<//>`}${invite}`;
  return html`<${PageHead} title="Team" lead="Members sign in with their own address and work with the role you give them. Every change appears in the audit log." actions=${actions} />
    <div class="stack">
      ${data && data.seats.limit !== null && html`<${Card}><${CapMeter} label="Seats" used=${data.seats.used} limit=${data.seats.limit} note="Each member and each pending invitation uses one seat." /><//>`}
      <${Members} state=${state} setOpen=${setOpen} />
      ${(data || !state.error) && html`<${Invites} state=${state} invite=${invite} setOpen=${setOpen} />`}
    </div>
    ${open && html`<${Dialogs} ...${open} team=${data} onClose=${close} />`}`;
}

function Members({ state, setOpen }) {
  const mine = session.value.user.id;
  const columns = [
    { title: "Person", cell: (row) => html`<span class="row"><span class="strong wrap">${called(row)}</span>${row.id === mine && html`<${Chip} tone="accent">you<//>`}</span>${row.name && html`<span class="soft small wrap">${row.email}</span>`}` },
    { title: "Role", cell: (row) => row.role },
    { title: "Sign-in", cell: (row) => html`<span class="row">${row.twoFactor ? html`<${Chip} tone="good">with authenticator<//>` : html`<${Chip} tone="">password or passkey<//>`}${!row.emailVerified && html`<${Chip}>unverified<//>`}</span>` },
    { title: "Member since", cell: (row) => html`<${Time} at=${row.joinedAt} />` },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${called(row)}`} items=${memberActions(row, row.id === mine, setOpen)} />` },
  ];
  return html`<div class="stack-tight"><h2>Members</h2><${Table} label="Members" columns=${columns} state=${{ ...state, rows: state.data?.members ?? [] }} /></div>`;
}

function memberActions(row, mine, setOpen) {
  const ownerOnly = row.role === "owner" && !hasRole("owner") ? "Only an owner can change an owner." : undefined;
  const removal = hasRole("admin") ? ownerOnly : whyNot("admin"); // admins of a suspended account may remove members
  return [
    { text: "Change role", icon: "shield", why: whyNot("admin") ?? ownerOnly, onSelect: () => setOpen({ what: "role", row }) },
    mine ? { text: "Leave the account", icon: "log-out", danger: true, onSelect: () => setOpen({ what: "leave" }) }
      : { text: "Remove", icon: "trash-2", danger: true, why: removal ?? undefined, onSelect: () => setOpen({ what: "remove", row }) },
  ];
}

function Invites({ state, invite, setOpen }) {
  const names = new Map((state.data?.members ?? []).map((member) => [member.id, called(member)]));
  const resend = async (row) => {
    try {
      await call("POST /v1/team/invites/{id}/resend", { path: { id: row.id } });
      toast(`Invitation resent to ${row.email}. The previous link no longer works`);
    } catch (refusal) {
      if (!refusal.type) throw refusal;
      toast(refusal.message, { tone: "bad", ms: 8000 });
    }
    state.reload();
  };
  const actions = (row) => [
    { text: "Send again", icon: "send", why: whyNot("admin") ?? undefined, onSelect: () => resend(row) },
    { text: "Withdraw", icon: "trash-2", danger: true, why: (hasRole("admin") ? null : whyNot("admin")) ?? undefined, onSelect: () => setOpen({ what: "withdraw", row }) },
  ];
  const columns = [
    { title: "Address", cell: (row) => html`<span class="strong wrap">${row.email}</span>` },
    { title: "Role", cell: (row) => row.role },
    { title: "Invited by", cell: (row) => names.get(row.invitedBy) ?? "–" },
    { title: "Sent", cell: (row) => html`<${Time} at=${row.createdAt} />` },
    { title: "Expires", cell: (row) => html`<${Time} at=${row.expiresAt} relative />` },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of the invitation to ${row.email}`} items=${actions(row)} />` },
  ];
  const empty = html`<${Empty} icon="user-plus" title="No pending invitations" action=${invite}>Invite the people you work with. Each gets a role and their own sign-in, so nobody shares a password.<//>`;
  return html`<div class="stack-tight"><h2>Invitations</h2><${Table} label="Invitations" columns=${columns} state=${{ ...state, rows: state.data?.invites ?? [] }} empty=${empty} /></div>`;
}

function Dialogs({ what, row, team, onClose }) {
  const { account } = session.value;
  const done = (text) => (yes) => {
    if (yes) toast(text);
    onClose(yes);
  };
  if (what === "invite") return html`<${InviteDialog} onClose=${onClose} />`;
  if (what === "role") return html`<${RoleDialog} member=${row} onClose=${onClose} />`;
  if (what === "transfer") return html`<${TransferDialog} members=${team.members} onClose=${onClose} />`;
  if (what === "leave") return html`<${Confirm} title=${`Leave ${account.name}?`} typed=${account.name} confirm="Leave account" action=${() => call("POST /v1/team/leave")} onClose=${(yes) => (yes ? leaveConsole() : onClose(false))}>You lose access immediately, and this session ends. Only an admin can invite you again.<//>`;
  if (what === "remove") return html`<${Confirm} title=${`Remove ${called(row)}?`} confirm="Remove member" action=${() => call("DELETE /v1/team/members/{id}", { path: { id: row.id } })} onClose=${done(`${called(row)} removed`)}>They lose access to ${account.name} immediately and are signed out. API keys they created keep working; revoke the ones they know.<//>`;
  return html`<${Confirm} title=${`Withdraw the invitation to ${row.email}?`} confirm="Withdraw" action=${() => call("DELETE /v1/team/invites/{id}", { path: { id: row.id } })} onClose=${done("Invitation withdrawn")}>The link stops working, and the seat becomes free.<//>`;
}
