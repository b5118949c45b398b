// The scopes of API keys in words, by area.

/** Areas with their scopes: [area, [[scope, sentence], …]]. */
export const SCOPE_AREAS = [
  ["Sending", [
    ["emails:send", "Send, cancel and reschedule email, also by SMTP."],
    ["templates:read", "Read and preview templates."],
    ["templates:write", "Create, change and publish templates."],
    ["streams:read", "List streams."],
    ["streams:write", "Create and delete streams."],
    ["broadcasts:read", "Read broadcasts and their progress."],
    ["broadcasts:write", "Create, start, pause and cancel broadcasts."],
  ]],
  ["Messages and statistics", [
    ["messages:read", "Search messages, read their waybills and follow the live tail."],
    ["analytics:read", "Read delivery statistics and DMARC reports."],
    ["alerts:read", "Read alert rules and past alerts."],
    ["alerts:write", "Create and change alert rules."],
  ]],
  ["People", [
    ["contacts:read", "Read contacts, lists and segments."],
    ["contacts:write", "Create, change, import and delete contacts and lists."],
    ["suppressions:read", "Read the suppression list."],
    ["suppressions:write", "Add and remove suppressions."],
    ["verifications:read", "Read verifications and their settings."],
    ["verifications:write", "Send and check one-time codes, and check addresses."],
  ]],
  ["Receiving", [
    ["inbound:read", "Read received messages, addresses and routes."],
    ["inbound:write", "Claim addresses, change routes, delete received messages."],
  ]],
  ["Set-up", [
    ["domains:read", "Read domains and their DNS records."],
    ["domains:write", "Add, check, change and delete domains."],
    ["webhooks:read", "Read webhook endpoints and deliveries."],
    ["webhooks:write", "Create, change, test and replay webhooks."],
    ["account:read", "Read the account, its keys, usage and invoices."],
    ["team:read", "Read the members of the team."],
  ]],
];

/** Every scope that a key can have. */
export const ALL_SCOPES = SCOPE_AREAS.flatMap(([, scopes]) => scopes.map(([scope]) => scope));

/** Presets: [name, text, scopes]. */
export const PRESETS = [
  ["send", "Send only", ["emails:send"]],
  ["read", "Read only", ALL_SCOPES.filter((scope) => scope.endsWith(":read"))],
  ["all", "Everything", ALL_SCOPES],
];

/** Return the key of the preset with exactly these scopes, else "own". */
export function presetOf(scopes) {
  const chosen = new Set(scopes);
  return PRESETS.find(([, , all]) => all.length === chosen.size && all.every((scope) => chosen.has(scope)))?.[0] ?? "own";
}

/** Return a short text for the scopes of a key: "Send only", "3 scopes". */
export function scopesInWords(scopes) {
  const preset = PRESETS.find(([key]) => key === presetOf(scopes));
  return preset ? preset[1] : scopes.length === 1 ? scopes[0] : `${scopes.length} scopes`;
}
