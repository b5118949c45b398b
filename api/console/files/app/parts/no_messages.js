// What the list of messages shows without rows.
import { setQuery } from "../core/router.js";
import { Button, Empty } from "../core/ui.js";
import { html } from "../core/view.js";
import { FILTERS } from "./message_filters.js";

export function NoMatch() {
  const clear = () => setQuery(Object.fromEntries([...FILTERS.map((one) => [one.name, null]), ["range", null], ["from", null], ["until", null]]));
  return html`<${Empty} icon="search" title="No message matches" action=${html`<${Button} onClick=${clear}>Clear all filters<//>`}>Remove a filter, or choose a longer period. New matches appear automatically.<//>`;
}

export function NoMessages() {
  const curl = `curl ${window.location.origin}/v1/emails \\
  -H "Authorization: Bearer $KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"from": "you@your-domain.example", "to": ["ann@example.com"], "subject": "Hello", "text": "It works."}'`;
  return html`<${Empty} icon="send" title="No messages yet" curl=${curl} action=${html`<${Button} kind="primary" to="/messages/new">Send a message<//>`}>Every message you send by API or SMTP appears here with its status. Open one to see its waybill: each attempt, the server's reply and the times.<//>`;
}
