// What script adds to the documentation: search, remembered tabs, copying, and the reader's own domain and ids in samples.

const docs = document.querySelector("main").dataset.docs;
const root = docs.slice(0, -"/docs".length);
const LANGUAGE = "docs-language";

/** Create an element with properties and children; text is always text. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Return the JSON of an answer of the API, null for a refusal. */
export async function ask(path, options = {}) {
  const answer = await fetch(root + path, { credentials: "same-origin", ...options });
  return answer.ok ? answer.json() : null;
}

let asked;
/** Return the session of the reader, null if nobody is signed in. */
export function session() {
  asked ??= ask("/v1/auth/me").then((found) => (found?.csrfToken ? found : null), () => null);
  return asked;
}

// Tabs: a choice holds for all samples and the next pages.
function chooseLanguage(label) {
  for (const box of document.querySelectorAll(".tabs > input")) if (box.dataset.tab === label) box.checked = true;
}
document.addEventListener("change", (event) => {
  const label = event.target.dataset?.tab;
  if (!label) return;
  localStorage.setItem(LANGUAGE, label);
  chooseLanguage(label);
});
chooseLanguage(localStorage.getItem(LANGUAGE));

// On phones the list of pages is closed at first.
if (matchMedia("(max-width: 760px)").matches) document.querySelector(".pages").open = false;
document.querySelector(".pages [aria-current]")?.scrollIntoView({ block: "center" });

for (const block of document.querySelectorAll("main pre")) {
  const button = element("button", { type: "button", className: "button small", textContent: "Copy" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.textContent);
      button.textContent = "Copied";
    } catch { // forbidden by the person, or a page over plain HTTP, which has no clipboard
      button.textContent = "The browser refused to copy";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  const holder = element("div", { className: "copied" });
  block.replaceWith(holder);
  holder.append(block, button);
}

// Search
const form = document.querySelector(".search");
const field = form.querySelector("input");
const list = form.querySelector("ul");
let loading;
let found = [];
let chosen = -1;
form.hidden = false;

/** Return the search over the index; both load with the first word typed. */
async function loaded() {
  const [{ searcher }, answer] = await Promise.all([import("./search.js"), fetch(`${docs}/search.json`)]);
  return searcher(await answer.json());
}

async function search() {
  loading ??= loaded();
  const find = await loading;
  found = find(field.value);
  choose(found.length ? 0 : -1);
}

function choose(at) {
  chosen = at;
  list.replaceChildren(...found.map(({ address, title, place }, number) => {
    const line = element("li", { id: `found-${number}`, role: "option" }, title, element("span", { textContent: place }));
    line.setAttribute("aria-selected", String(number === at));
    line.addEventListener("mousedown", (event) => { event.preventDefault(); open(address); });
    return line;
  }));
  if (!found.length && field.value.trim()) list.replaceChildren(element("li", { role: "option", textContent: "Nothing found" }));
  list.hidden = !field.value.trim();
  field.setAttribute("aria-expanded", String(!list.hidden));
  if (at >= 0) field.setAttribute("aria-activedescendant", `found-${at}`); else field.removeAttribute("aria-activedescendant");
  list.children[at]?.scrollIntoView({ block: "nearest" });
}

function open(address) {
  list.hidden = true;
  field.value = "";
  location.href = address;
}

field.addEventListener("input", search);
field.addEventListener("blur", () => { list.hidden = true; field.setAttribute("aria-expanded", "false"); });
field.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") choose(Math.min(chosen + 1, found.length - 1));
  else if (event.key === "ArrowUp") choose(Math.max(chosen - 1, 0));
  else if (event.key === "Escape") { field.value = ""; choose(-1); field.blur(); }
  else return;
  event.preventDefault();
});
form.addEventListener("submit", (event) => { event.preventDefault(); if (found[chosen]) open(found[chosen].address); });
document.addEventListener("keydown", (event) => {
  const writing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !writing && !event.metaKey && !event.ctrlKey) { event.preventDefault(); field.focus(); }
});

// Samples with the reader's own domain and ids, where somebody is signed in.
const OWN = {
  brd: "/v1/broadcasts?limit=1", con: "/v1/contacts?limit=1", dom: "/v1/domains?limit=1", lst: "/v1/lists?limit=1",
  msg: "/v1/messages?limit=1", tpl: "/v1/templates?limit=1", whk: "/v1/webhooks?limit=1",
};
const ID = /\b([a-z]{3})_[0-9a-hjkmnp-tv-z]{26}\b/g;

/** Return the verified domain that the reader sends from, null without one. */
export async function ownDomain() {
  const domains = await ask("/v1/domains");
  return domains?.data.find((one) => one.status === "verified")?.name ?? null;
}

async function fillSamples() {
  if (!document.querySelector("main pre") || !(await session())) return;
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) if (walker.currentNode.parentElement.closest("pre")) texts.push(walker.currentNode);
  const all = texts.map((one) => one.data).join(" ");
  const replaced = new Map();
  const domain = /hello\.test|hello@example\.com/.test(all) ? await ownDomain() : null;
  if (domain) replaced.set("hello.test", domain).set("hello@example.com", `hello@${domain}`);
  for (const [id, prefix] of all.matchAll(ID)) {
    if (OWN[prefix] && !replaced.has(id)) replaced.set(id, (await ask(OWN[prefix]))?.data[0]?.id);
  }
  for (const text of texts) for (const [from, to] of replaced) if (to && text.data.includes(from)) text.data = text.data.replaceAll(from, to);
}
fillSamples();
