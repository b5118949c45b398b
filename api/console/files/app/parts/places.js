// Where an id or address that a person pastes leads to. Pure functions.

const PAGES = {
  msg: (id) => [`/messages/${id}`, "Message"],
  imsg: (id) => [`/inbox/${id}`, "Received message"],
  dom: (id) => [`/domains/${id}`, "Domain"],
  whk: (id) => [`/webhooks/${id}`, "Webhook"],
  con: (id) => [`/contacts/${id}`, "Contact"],
  lst: (id) => [`/lists/${id}`, "List"],
  seg: (id) => [`/segments/${id}`, "Segment"],
  brd: (id) => [`/broadcasts/${id}`, "Broadcast"],
  tpl: (id) => [`/templates/${id}`, "Template"],
  key: () => ["/api-keys", "API key"],
  iad: () => ["/receiving/addresses", "Inbound address"],
  irt: () => ["/receiving/routes", "Inbound route"],
  ver: (id) => [`/codes?id=${id}`, "Verification"],
  alr: () => ["/alerts", "Alert rule"],
  ale: () => ["/alerts", "Alert"],
  inv: () => ["/billing", "Invoice"],
  chk: () => ["/billing", "Checkout"],
  usr: () => ["/team", "Person"],
  ivt: () => ["/team", "Invitation"],
  acc: () => ["/sub-accounts", "Account"],
  ses: () => ["/profile/sessions", "Session"],
  pky: () => ["/profile/passkeys", "Passkey"],
  idn: () => ["/profile/identities", "Identity"],
  evt: () => ["/audit", "Event"],
};

/** Return [path, text] of the pages that `text` may mean: an id, an address, a domain, or words of a subject. */
export function placesOf(text) {
  const wanted = text.trim();
  const id = /^([a-z]{3,4})_[0-9a-z]{8,40}$/.exec(wanted);
  if (id && PAGES[id[1]]) {
    const [path, name] = PAGES[id[1]](wanted);
    return [[path, `${name} ${wanted}`]];
  }
  const query = encodeURIComponent(wanted);
  if (/^[^\s@]+@[^\s@]+$/.test(wanted)) {
    return [
      [`/messages?to=${query}`, `Messages to ${wanted}`],
      [`/contacts?search=${query}`, `Contact ${wanted}`],
      [`/suppressions?search=${query}`, `Suppression of ${wanted}`],
      [`/inbox?sender=${query}`, `Messages from ${wanted}`],
    ];
  }
  if (/^[\w-]+(\.[\w-]+)+$/.test(wanted)) {
    return [[`/messages?recipientDomain=${query}`, `Messages to ${wanted}`], [`/domains?search=${query}`, `Domain ${wanted}`]];
  }
  return wanted.length > 1 ? [[`/messages?search=${query}`, `Messages with “${wanted}”`]] : [];
}

/** Return how well `text` fits the words typed: 0 does not fit, larger is better. */
export function score(text, typed) {
  const where = text.toLowerCase();
  const wanted = typed.trim().toLowerCase();
  if (!wanted) return 1;
  if (where.startsWith(wanted)) return 4;
  if (where.split(/\s+/).some((word) => word.startsWith(wanted))) return 3;
  if (where.includes(wanted)) return 2;
  return wanted.split(/\s+/).every((word) => where.includes(word)) ? 1 : 0;
}
