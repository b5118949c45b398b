// The entry of the console: the table of all pages, and what the address shows.
import { call, CHANGED_ELSEWHERE, CONSOLE, onOtherTab, refreshSession, refusedAsOther, session } from "./core/api.js";
import { go, location, matched, path, replacePage, startRouter } from "./core/router.js";
import { applyTheme, Lazy, Shell } from "./core/shell.js";
import { Button, Empty, ErrorNote, PageHead, toast, Toasts } from "./core/ui.js";
import { effect, html, render, setAhead, signal, useEffect } from "./core/view.js";

const load = {
  account: () => import("./pages/account.js"),
  alerts: () => import("./pages/alerts.js"),
  audit: () => import("./pages/audit.js"),
  billing: () => import("./pages/billing.js"),
  bounces: () => import("./pages/bounces.js"),
  broadcasts: () => import("./pages/broadcasts.js"),
  broadcastEditor: () => import("./pages/broadcast_editor.js"),
  codes: () => import("./pages/codes.js"),
  components: () => import("./pages/components.js"),
  compose: () => import("./pages/compose.js"),
  contact: () => import("./pages/contact.js"),
  contactImport: () => import("./pages/contact_import.js"),
  contacts: () => import("./pages/contacts.js"),
  deliverability: () => import("./pages/deliverability.js"),
  domains: () => import("./pages/domains.js"),
  home: () => import("./pages/home.js"),
  inbox: () => import("./pages/inbox.js"),
  keys: () => import("./pages/keys.js"),
  layoutEditor: () => import("./pages/layout_editor.js"),
  list: () => import("./pages/list.js"),
  lists: () => import("./pages/lists.js"),
  message: () => import("./pages/message.js"),
  messages: () => import("./pages/messages.js"),
  operator: () => import("./pages/operator.js"),
  optOuts: () => import("./pages/opt_outs.js"),
  outside: () => import("./pages/outside.js"),
  profile: () => import("./pages/profile.js"),
  received: () => import("./pages/received.js"),
  receiving: () => import("./pages/receiving.js"),
  receivers: () => import("./pages/receivers.js"),
  approvals: () => import("./pages/approvals.js"),
  requests: () => import("./pages/requests.js"),
  segment: () => import("./pages/segment.js"),
  sink: () => import("./pages/sink.js"),
  streams: () => import("./pages/streams.js"),
  suppressions: () => import("./pages/suppressions.js"),
  team: () => import("./pages/team.js"),
  templates: () => import("./pages/templates.js"),
  templateEditor: () => import("./pages/template_editor.js"),
  webhook: () => import("./pages/webhook.js"),
  webhooks: () => import("./pages/webhooks.js"),
};

// path, module, component in it; `nav` is the entry of the navigation that is marked, `key` follows g.
const page = (at, module, view, nav, more = {}) => ({ path: at, load: load[module], view, nav, ...more });
const PAGES = [
  page("/", "home", "Home", "home", { title: "Home", icon: "house", key: "h" }),
  page("/messages", "messages", "Messages", "messages", { title: "Messages", icon: "send", key: "m" }),
  page("/messages/new", "compose", "Compose", "messages"),
  page("/messages/:id", "message", "Message", "messages"),
  page("/broadcasts", "broadcasts", "Broadcasts", "broadcasts", { title: "Broadcasts", icon: "megaphone", key: "b" }),
  page("/broadcasts/new", "broadcastEditor", "BroadcastEditor", "broadcasts"),
  page("/broadcasts/:id", "broadcasts", "Broadcast", "broadcasts"),
  page("/broadcasts/:id/edit", "broadcastEditor", "BroadcastEditor", "broadcasts"),
  page("/templates", "templates", "Templates", "templates", { title: "Templates", icon: "layout-template", key: "t" }),
  page("/templates/new", "templateEditor", "TemplateEditor", "templates"),
  page("/templates/:id", "templateEditor", "TemplateEditor", "templates"),
  page("/layouts/new", "layoutEditor", "LayoutEditor", "templates"),
  page("/layouts/:id", "layoutEditor", "LayoutEditor", "templates"),
  page("/streams", "streams", "Streams", "streams", { title: "Streams", icon: "split" }),
  page("/approvals", "approvals", "Approvals", "approvals", { title: "Approvals", icon: "hand" }),
  page("/approvals/:id", "approvals", "Approval", "approvals"),
  page("/inbox", "inbox", "Inbox", "inbox", { wide: true, title: "Inbox", icon: "inbox", key: "i" }),
  page("/inbox/:id", "received", "ReceivedMessage", "inbox"),
  page("/receiving", "receiving", "Receiving", "receiving", { title: "Addresses and routes", icon: "at-sign" }),
  page("/receiving/:part", "receiving", "Receiving", "receiving"),
  page("/contacts", "contacts", "Contacts", "contacts", { title: "Contacts", icon: "users", key: "c" }),
  page("/contacts/import", "contactImport", "ContactImport", "contacts"),
  page("/contacts/:id", "contact", "Contact", "contacts"),
  page("/lists", "lists", "Lists", "lists", { title: "Lists and segments", icon: "list", key: "l" }),
  page("/lists/:id", "list", "List", "lists"),
  page("/lists/:id/opt-outs", "optOuts", "OptOuts", "lists"),
  page("/segments/:id", "segment", "Segment", "lists"),
  page("/suppressions", "suppressions", "Suppressions", "suppressions", { title: "Suppressions", icon: "ban", key: "s" }),
  page("/deliverability", "deliverability", "Deliverability", "deliverability", { title: "Deliverability", icon: "chart-line", key: "d" }),
  page("/deliverability/:part", "deliverability", "Deliverability", "deliverability"),
  page("/bounces/:address", "bounces", "AddressPage", "deliverability"),
  page("/receivers", "receivers", "Receivers", "receivers", { title: "Receivers", icon: "gauge" }),
  page("/alerts", "alerts", "Alerts", "alerts", { title: "Alerts", icon: "bell", key: "a" }),
  page("/domains", "domains", "Domains", "domains", { title: "Domains", icon: "globe", key: "o" }),
  page("/domains/:id", "domains", "Domain", "domains"),
  page("/api-keys", "keys", "ApiKeys", "keys", { title: "API keys and SMTP", icon: "key", key: "k" }),
  page("/smtp", "keys", "SmtpSettings", "keys"),
  page("/webhooks", "webhooks", "Webhooks", "webhooks", { title: "Webhooks", icon: "webhook", key: "w" }),
  page("/webhooks/:id", "webhook", "Webhook", "webhooks"),
  page("/requests", "requests", "Requests", "requests", { title: "API requests", icon: "activity", key: "r" }),
  page("/codes", "codes", "Codes", "codes", { title: "Codes and checks", icon: "badge-check" }),
  page("/codes/:part", "codes", "Codes", "codes"),
  page("/sink", "sink", "Sink", "sink", { title: "Local sink", icon: "mails", local: true }),
  page("/sink/:id", "sink", "SinkMail", "sink"),
  page("/account", "account", "Account", "account", { title: "Account", icon: "building-2" }),
  page("/account/:part", "account", "Account", "account"),
  page("/team", "team", "Team", "team", { title: "Team", icon: "user-plus" }),
  page("/sub-accounts", "team", "SubAccounts", "sub-accounts", { title: "Sub-accounts", icon: "layers", roles: ["admin", "owner"] }),
  page("/billing", "billing", "Billing", "billing", { title: "Billing", icon: "credit-card" }),
  page("/audit", "audit", "Audit", "audit", { title: "Audit log", icon: "scroll-text" }),
  page("/profile", "profile", "Profile", "profile"),
  page("/profile/:part", "profile", "Profile", "profile"),
  page("/components", "components", "Components", ""),
  page("/operator", "operator", "Operator", "operator", { title: "Operator", icon: "server", operator: true }),
  page("/operator/:part", "operator", "Operator", "operator"),
  page("/operator/:part/:id", "operator", "Operator", "operator"),
];
const OUTSIDE = [
  page("/sign-in", "outside", "SignIn"),
  page("/sign-up", "outside", "SignUp"),
  page("/forgot-password", "outside", "ForgotPassword"),
  page("/reset-password", "outside", "ResetPassword"),
  page("/verify-email", "outside", "VerifyEmail"),
  page("/end-sign-up", "outside", "EndSignUp"),
  page("/confirm-email", "outside", "ConfirmEmail"),
  page("/accept-invite", "outside", "AcceptInvite"),
];
const GROUPS = [
  ["", ["home"]],
  ["Send", ["messages", "broadcasts", "templates", "streams", "approvals"]],
  ["Receive", ["inbox", "receiving"]],
  ["People", ["contacts", "lists", "suppressions"]],
  ["Insights", ["deliverability", "receivers", "alerts"]],
  ["Developers", ["domains", "keys", "webhooks", "requests", "codes", "sink"]],
  ["Settings", ["account", "team", "sub-accounts", "billing", "audit"]],
  ["Service", ["operator"]],
];

const failed = signal(null);
const service = signal({ local: false }); // what GET /v1/instance tells of the installation

/** Return the groups of the navigation that the person may see. */
function groupsFor(known) {
  const offered = (route) => route.title && (!route.local || service.value.local) && (!route.operator || known.operator);
  return GROUPS.map(([title, navs]) => [title, PAGES.filter((one) => navs.includes(one.nav) && offered(one))]).filter(([, routes]) => routes.length);
}

function App() {
  const known = session.value;
  const current = path.value;
  const outside = matched(OUTSIDE, current);
  const found = matched(PAGES, current);
  const needsSignIn = known === null && !outside;
  useEffect(() => {
    if (needsSignIn) go("/sign-in", { query: { next: current === "/" ? null : current + window.location.search }, replace: true });
  }, [needsSignIn]);
  if (failed.value) return html`<main class="outside" id="main"><div class="outside-card"><h1>Waybill</h1><${ErrorNote} error=${failed.value} retry=${start} /></div></main>`;
  if (known === undefined || needsSignIn) return null;
  if (outside) return html`<${Lazy} key=${outside.route.view} load=${outside.route.load} name=${outside.route.view} service=${service.value} /><${Toasts} />`;
  const groups = groupsFor(known);
  const account = known.account.id; // a switch of accounts draws the page anew
  return html`<${Shell} groups=${groups} current=${found?.route.nav} wide=${found?.route.wide}>
    ${found ? html`<${Lazy} key=${`${account} ${found.route.path} ${Object.values(found.parameters).join("/")}`} load=${found.route.load} name=${found.route.view} ...${found.parameters} service=${service.value} />` : html`<${NotFound} />`}
  <//>`;
}

function NotFound() {
  return html`<${PageHead} title="Page not found" /><div class="card"><${Empty} icon="search" title="Nothing at this address" action=${html`<${Button} kind="primary" to="/">Go home<//>`}>Check the address for typos: ${CONSOLE}${location.value.path}<//></div>`;
}

async function start() {
  failed.value = null;
  try {
    const [instance] = await Promise.all([call("GET /v1/instance", { quiet: true }), refreshSession()]);
    if (instance.local && session.value) await readClock();
    service.value = instance;
  } catch (error) {
    if (!error.type) throw error;
    failed.value = error;
  }
}

/** Read how far the clock of local mode was moved; without a reply, times are those of this machine. */
async function readClock() {
  try {
    setAhead((await call("GET /v1/local/clock", { quiet: true })).aheadS * 1000);
  } catch (error) {
    if (!error.type) throw error;
  }
}

applyTheme();
startRouter();
start();
// This tab must not show, or change, what is of another person or account than the browser's session.
onOtherTab((signedIn, samePerson) => replacePage(signedIn ? "/" : "/sign-in", { ask: samePerson }));
effect(() => { if (refusedAsOther.value) toast(CHANGED_ELSEWHERE, { tone: "bad", ms: 15_000 }); });
addEventListener("pageshow", (event) => { if (event.persisted) window.location.reload(); }); // Back after a sign-out shows no old page
render(html`<${App} />`, document.getElementById("app"));
