// The frame around every page: navigation, account switcher, theme, keys, the sign-in form over the page, toasts.
import { BASE, call, CONSOLE, forgetPerson, NO_NOTICES, notices, refreshSession, session, setSession, signInNeeded, useInterval } from "./api.js";
import { go, href, path } from "./router.js";
import { inField } from "./table.js";
import { Brand, Button, Dialog, Icon, Menu, toast, Toasts } from "./ui.js";
import { classes, html, signal, useEffect, useLayoutEffect, useRef, useState } from "./view.js";

const THEME = "waybill.theme";
const drawerOpen = signal(false);
const narrow = matchMedia("(min-width: 720px) and (max-width: 1023px)");
const folded = signal(narrow.matches); // the navigation shows icons only, with their names on hover and for screen readers
narrow.addEventListener("change", () => { folded.value = narrow.matches; });
const open = signal(null); // the dialog over the page: "palette", "calls", "keys", "notices" or null
const NOTICES_MS = 60_000;

/** Show the dialog `name` over the page: palette, calls, keys or notices. */
export const show = (name) => { open.value = name; };

/** Return the chosen theme: system, light or dark. */
export const theme = signal(localStorage.getItem(THEME) ?? "system");
export function setTheme(value) {
  theme.value = value;
  localStorage.setItem(THEME, value);
  applyTheme();
}
export function applyTheme() {
  if (theme.peek() === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.peek();
}

/** Return true if the page is shown in dark colours. */
export const isDark = () => (theme.value === "system" ? matchMedia("(prefers-color-scheme: dark)").matches : theme.value === "dark");

/** A module that is loaded when it is first shown: `load` returns the module, `name` is the component in it. */
export function Lazy({ load, name, ...rest }) {
  const [state, setState] = useState({ View: null, error: null });
  useEffect(() => {
    let alive = true;
    load().then(
      (module) => alive && setState({ View: module[name], error: null }),
      (error) => alive && setState({ View: null, error }),
    );
    return () => { alive = false; };
  }, [load, name]);
  if (state.error) {
    return html`<div class="card"><div class="empty"><${Icon} name="triangle-alert" size=${28} /><h2>This page could not be loaded</h2>
      <p>The service was updated or can't be reached. Load the page again.</p><${Button} kind="primary" onClick=${() => window.location.reload()}>Load again<//></div></div>`;
  }
  return state.View && html`<${state.View} ...${rest} />`;
}

/** The frame with navigation, for signed-in persons. `groups`: [[title, [route, …]], …]. */
export function Shell({ groups, current, wide, children }) {
  useEffect(() => { drawerOpen.value = false; }, [path.value]);
  useNotices();
  return html`<a class="skip" href="#main">Skip to the content</a>
  <div class="shell">
    ${drawerOpen.value && html`<button type="button" class="side-shade" aria-label="Close the navigation" onClick=${() => { drawerOpen.value = false; }}></button>`}
    <${Side} groups=${groups} current=${current} />
    <div class="content">
      <header class="top"><${Button} kind="quiet" icon="menu" label="Open the navigation" aria-expanded=${drawerOpen.value ? "true" : "false"} onClick=${() => { drawerOpen.value = true; }} />
        <${Brand} /><span class="grow"></span><${Bell} /><${Button} kind="quiet" icon="search" label="Search and commands" onClick=${() => show("palette")} /><${Button} kind="quiet" icon="code" label="Show the API calls of this page" onClick=${() => show("calls")} /></header>
      <${Banners} />
      <main id="main" class=${classes("main", wide && "wide")} tabindex="-1">${children}</main>
    </div>
  </div>
  <${Overlays} groups=${groups} />`;
}

function Side({ groups, current }) {
  const role = session.value.account.role;
  const pages = useRef(null);
  useLayoutEffect(() => { pages.current.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" }); }, [current, groups.flatMap(([, routes]) => routes).length]);
  return html`<nav class=${classes("side", drawerOpen.value && "open")} aria-label="Pages">
    <div class="side-top stack-tight"><div class="row-wide"><${Brand} /><${Bell} /></div><${AccountSwitcher} />
      <${SideItem} icon="search" text="Search" onClick=${() => show("palette")}><span class="count"><kbd>${isMac() ? "⌘" : "Ctrl"} K</kbd></span><//></div>
    <div class="side-pages" ref=${pages}>${groups.map(([title, routes]) => html`${title && html`<div class="side-group" key=${title}>${title}</div>`}
      ${routes.filter((route) => !route.roles || route.roles.includes(role)).map((route) => html`<${SideItem} key=${route.path} link=${href(route.path)} icon=${route.icon} text=${route.title} aria-current=${current === route.nav ? "page" : undefined} />`)}`)}</div>
    <div class="side-end">
      <${SideItem} link="${BASE}docs" icon="book-open" text="Documentation" target="_blank" rel="noopener" />
      <${SideItem} icon="code" text="API calls of this page" onClick=${() => show("calls")} />
      <${PersonMenu} />
    </div>
  </nav>`;
}

/** A line of the navigation: a link, or a button without `link`. */
function SideItem({ icon, text, link, children, ...rest }) {
  const content = html`<${Icon} name=${icon} /><span class="side-text">${text}</span>${children}`;
  const title = folded.value ? text : undefined;
  if (link) return html`<a href=${link} title=${title} ...${rest}>${content}</a>`;
  return html`<button type="button" class="side-item" title=${title} ...${rest}>${content}</button>`;
}

/** Read the notices of the account in the background; a failure leaves them as they were. */
function useNotices() {
  const account = session.value.account.id;
  const read = async () => {
    const list = await call("GET /v1/notices", { quiet: true }).catch(() => null);
    if (list && session.peek()?.account.id === account) notices.value = list;
  };
  useEffect(() => {
    notices.value = NO_NOTICES;
    read();
  }, [account]);
  useInterval(read, NOTICES_MS);
}

function Bell() {
  const { unread } = notices.value;
  const label = unread ? `Notices: ${unread} unread` : "Notices";
  return html`<button type="button" class="button quiet icon-only bell" aria-label=${label} title=${label} onClick=${() => show("notices")}><${Icon} name="bell" />${unread > 0 && html`<span class="bell-count" aria-hidden="true">${Math.min(unread, 99)}</span>`}</button>`;
}

function AccountSwitcher() {
  const { account } = session.value;
  const accounts = (session.value.accounts ?? []).filter((one) => one.id !== account.id);
  const change = async (id) => {
    await call("POST /v1/auth/switch", { body: { accountId: id } });
    await refreshSession();
    go("/");
    toast(`Switched to ${session.value.account.name}`);
  };
  const items = [...accounts.map((one) => ({ text: one.name, icon: "building-2", onSelect: () => change(one.id) })), { text: "Account settings", icon: "settings", to: "/account" }];
  return html`<${Menu} label=${folded.value ? `Switch account: ${account.name}` : "Switch account"} start kind="plain" icon="chevron-down" text=${folded.value ? null : account.name} items=${items} />`;
}

function PersonMenu() {
  const { user } = session.value;
  const themes = [["system", "monitor", "System theme"], ["light", "sun", "Light theme"], ["dark", "moon", "Dark theme"]];
  const items = [
    { text: "Your profile", icon: "user-round", to: "/profile" },
    ...themes.map(([value, icon, text]) => ({ text: `${text}${theme.value === value ? " (current)" : ""}`, icon, onSelect: () => setTheme(value) })),
    { text: "Keyboard shortcuts", icon: "keyboard", onSelect: () => show("keys") },
    { text: "Sign out", icon: "log-out", onSelect: signOut },
  ];
  const name = user.name ?? user.email;
  return html`<div class="person"><${Menu} label=${folded.value ? `You: ${name}` : "You"} start icon="user-round" text=${folded.value ? null : name} items=${items} /></div>`;
}

async function signOut() {
  await call("POST /v1/auth/logout");
  setSession(null);
  forgetPerson();
  window.location.assign(`${CONSOLE}/sign-in`); // loads a new document, so that nothing of the session stays in memory
}

function Banners() {
  const { account, user } = session.value;
  const send = async () => {
    await call("POST /v1/auth/verify-email/send");
    toast(`Confirmation email sent to ${user.email}`);
  };
  return html`
    ${account.status === "suspended" && html`<div class="banner" role="status">This account is suspended. You can still read it, revoke keys and remove members. Ask the operator for the reason.</div>`}
    ${account.status === "closing" && html`<div class="banner" role="status">This account will be deleted. <a href=${href("/account/data")}>See when, or keep the account</a>.</div>`}
    ${!user.emailVerified && html`<div class="banner" role="status">Confirm your address ${user.email} to create API keys. <button type="button" class="link-button" onClick=${send}>Send the email again</button></div>`}`;
}

/** What may lie over any page: palette, calls, keys, sign-in, toasts. */
function Overlays({ groups }) {
  useShortcuts(groups);
  const close = () => { open.value = null; };
  return html`
    ${open.value === "palette" && html`<${Lazy} load=${loadPalette} name="Palette" groups=${groups} onClose=${close} />`}
    ${open.value === "calls" && html`<${Lazy} load=${loadCalls} name="Calls" onClose=${close} />`}
    ${open.value === "notices" && html`<${Lazy} load=${loadNotices} name="Notices" onClose=${close} />`}
    ${open.value === "keys" && html`<${Keys} groups=${groups} onClose=${close} />`}
    ${signInNeeded.value && html`<${SignInOver} />`}
    <${Toasts} />`;
}

const loadPalette = () => import("../parts/palette.js");
const loadNotices = () => import("../parts/notices.js");
const loadCalls = () => import("../parts/calls.js");
const loadOutside = () => import("../pages/outside.js");

/** The sign-in form over the page: drafts below it stay. */
function SignInOver() {
  const leave = () => window.location.assign(`${CONSOLE}/sign-in`);
  return html`<${Dialog} title="Your session has ended" onClose=${leave}>
    <p>Sign in again to continue. Nothing on this page is lost.</p>
    <${Lazy} load=${loadOutside} name="SignInForm" email=${session.value?.user.email} onDone=${setSession} />
  <//>`;
}

const isMac = () => navigator.platform.startsWith("Mac");

/** The keys of the shell: ⌘K or Ctrl+K, /, g and a letter, ?. */
function useShortcuts(groups) {
  useEffect(() => {
    let waiting = 0; // the time of the last g
    const press = (event) => {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        show("palette");
        return;
      }
      if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented || inField(event.target) || document.querySelector("dialog[open]")) return;
      const routes = groups.flatMap(([, all]) => all);
      if (Date.now() - waiting < 1500) {
        waiting = 0;
        const target = routes.find((route) => route.key === event.key);
        if (target) {
          event.preventDefault();
          go(target.path);
          return;
        }
      }
      if (event.key === "g") waiting = Date.now();
      else if (event.key === "n") show("notices");
      else if (event.key === "?") show("keys");
      else if (event.key === "/") {
        event.preventDefault();
        const search = document.querySelector("main [data-search]");
        if (search) search.focus();
        else show("palette");
      }
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [groups]);
}

function Keys({ groups, onClose }) {
  const general = [[`${isMac() ? "⌘" : "Ctrl"} K`, "Search and commands"], ["/", "Search this list"], ["j, k", "Next and previous row"], ["Enter", "Open the row"], ["x", "Select the row"], ["n", "Notices"], ["Esc", "Close"], ["?", "These shortcuts"]];
  const places = groups.flatMap(([, routes]) => routes).filter((route) => route.key).map((route) => [`g ${route.key}`, route.title]);
  const list = (items) => html`<dl class="facts">${items.map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>`;
  return html`<${Dialog} title="Keyboard shortcuts" wide onClose=${onClose}><div class="columns"><div class="stack-tight"><h3>Everywhere</h3>${list(general)}</div><div class="stack-tight"><h3>Go to</h3>${list(places)}</div></div><//>`;
}

