// Where a template is used: broadcasts that name it, messages made with it, and the call that sends it.
import { useCall } from "../core/api.js";
import { href } from "../core/router.js";
import { Button, Card, Chip, Code, Skeleton } from "../core/ui.js";
import { html } from "../core/view.js";

const OPEN = new Set(["draft", "in_review", "scheduled"]);

/** The broadcasts and messages of template `id`, and how a send names it and gives values. */
export function TemplateUse({ id, values, data }) {
  const state = useCall("GET /v1/broadcasts", { query: { limit: 100 }, quiet: true });
  const used = (state.data?.data ?? []).filter((one) => one.template === id);
  const body = JSON.stringify({ from: "hello@example.com", to: "ann@example.com", template: id, variables: values, ...(data && { data }) }, null, 2).replaceAll("'", "\\u0027");
  return html`<div class="stack"><${Card} title="Broadcasts" flush>
    ${!state.data ? html`<div class="card-body"><${Skeleton} lines=${2} /></div>` : used.length === 0 ? html`<p class="card-body soft">None of the newest ${state.data.data.length} broadcasts uses it.</p>` : html`<ul>${used.map((one) => html`<li class="line"><a class="grow" href=${href(`/broadcasts/${one.id}`)}>${one.name}</a><${Chip}>${one.status}<//><span class="soft small">${OPEN.has(one.status) ? "uses the latest version when it is sent" : one.templateVersion ? `version ${one.templateVersion}` : ""}</span></li>`)}</ul>`}<//>
    <${Card} title="Messages" actions=${html`<${Button} icon="send" to="/messages" query=${{ template: id }}>Show messages<//>`}><div class="stack-tight"><p class="soft">Each message keeps the version it was sent with. To send it from your application:</p>
    <${Code} label="Send with curl" text=${`curl ${window.location.origin}/v1/emails -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\\n  -d '${body}'`} /></div><//></div>`;
}
