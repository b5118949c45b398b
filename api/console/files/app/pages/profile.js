// The signed-in person: data, sign-in, sessions, accounts.
import { call, refreshSession, session } from "../core/api.js";
import { go } from "../core/router.js";
import { Button, Chip, Confirm, PageHead, Tabs, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, useState } from "../core/view.js";
import { Details } from "../parts/profile_details.js";
import { Identities, Passkeys } from "../parts/profile_passkeys.js";
import { Authenticator, Password } from "../parts/profile_security.js";
import { leaveConsole, Sessions } from "../parts/profile_sessions.js";

const PARTS = [["profile", "Profile"], ["security", "Sign-in"], ["sessions", "Sessions"], ["accounts", "Accounts"]];

/** The page of the person, in four parts. */
export function Profile({ part = "profile", service }) {
  const current = PARTS.some(([key]) => key === part) ? part : "profile";
  const { user } = session.value;
  return html`<${PageHead} title="Your profile" lead=${user.email} />
    <${Tabs} label="Parts of the profile" items=${PARTS} current=${current} onSelect=${(key) => go(key === "profile" ? "/profile" : `/profile/${key}`)} />
    ${current === "profile" && html`<${Details} />`}
    ${current === "security" && html`<div class="stack"><div class="columns"><${Password} /><${Authenticator} /></div><${Passkeys} /><${Identities} service=${service} email=${user.email} /></div>`}
    ${current === "sessions" && html`<${Sessions} />`}
    ${current === "accounts" && html`<${Accounts} />`}`;
}

/** The accounts that the person belongs to. */
function Accounts() {
  const [leaving, setLeaving] = useState(false);
  const { account, accounts } = session.value;
  const change = async (row) => {
    await call("POST /v1/auth/switch", { body: { accountId: row.id } });
    await refreshSession();
    toast(`Switched to ${row.name}`);
  };
  const columns = [
    { title: "Name", cell: (row) => html`<span class="row"><span class="strong wrap">${row.name}</span>${row.id === account.id && html`<${Chip} tone="accent">current<//>`}</span>` },
    { title: "Your role", cell: (row) => row.role },
    { title: "Plan", cell: (row) => row.plan },
    { title: "Status", cell: (row) => html`<${Chip}>${row.status}<//>` },
    { title: "Actions", hideTitle: true, button: true, end: true, cell: (row) => (row.id === account.id ? html`<${Button} danger onClick=${() => setLeaving(true)}>Leave<//>` : html`<${Button} onClick=${() => change(row)}>Switch<//>`) },
  ];
  return html`<div class="stack-tight"><p class="soft">To leave an account, switch to it first. The last owner can't leave; transfer the ownership or delete the account.</p>
    <${Table} label="Accounts" columns=${columns} state=${{ rows: accounts ?? [], loading: false, error: null }} />
    ${leaving && html`<${Confirm} title=${`Leave ${account.name}?`} typed=${account.name} confirm="Leave account" action=${() => call("POST /v1/team/leave")} onClose=${(done) => (done ? leaveConsole() : setLeaving(false))}>You lose access immediately, and this session ends. Everything you created is kept. Only an admin can invite you again.<//>`}</div>`;
}
