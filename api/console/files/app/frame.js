// The sandboxed page that draws the HTML of a mail. It has an origin of its own, no cookies, and no access to the
// console; its policy runs no script but this one and loads nothing from other hosts unless the reader asked for it.
"use strict";

const remoteAllowed = location.pathname.endsWith("/remote-images");
const IMAGES = `${location.origin}${location.pathname.split("/console-frame")[0]}/images/`;
const UPLOADED = /\/images\/([0-9a-f]{64}\.[a-z]{3,4})$/; // an image of an account, named by the hash of its content

// A fragment has no body, but the look of a mail may depend on these attributes of its body tag.
const BODY_TAG = /<body\b((?:"[^"]*"|'[^']*'|[^>"'])*)>/i;
const LOOKS = ["style", "class", "id", "bgcolor", "text", "dir", "lang"];

// Mail programs show a mail on dark ground that speaks of colour schemes itself, or that sets no background at all. With
// a background of its own, a mail stays as it is: the light text of a dark page would be invisible on it.
const SPEAKS_OF_SCHEMES = /color-scheme/i;
const SETS_BACKGROUND = /\bbgcolor\s*=|\bbackground(?:-color)?\s*[:=]/i;

// Links are reported to the console, which shows the address before it opens anything. In SVG the attribute is
// xlink:href, and in MathML every element may have one.
const LINKS = "a[*|href], area[href], math[href], math [href]";
document.addEventListener("click", follow);
document.addEventListener("auxclick", follow); // the middle button opens a tab

function follow(event) {
  const link = event.button !== 2 && event.target instanceof Element && event.target.closest(LINKS); // 2: the context menu
  if (!link) return;
  event.preventDefault();
  parent.postMessage({ kind: "link", href: link.getAttribute("href") ?? link.getAttributeNS("http://www.w3.org/1999/xlink", "href"), text: link.textContent.trim().slice(0, 200) }, "*");
}
document.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") parent.postMessage({ kind: "escape" }, "*");
});

// A refresh would empty the frame, the name of a linked host would be looked up, and what the policy keeps from loading
// in an inner frame would show as an empty box.
const REMOVED = "base, meta, link, iframe, frame, frameset, object, embed, applet, portal, fencedframe";

let isDark = false;

addEventListener("message", (event) => {
  if (event.source !== parent || typeof event.data?.html !== "string") return;
  const { html, dark } = event.data;
  isDark = dark && (SPEAKS_OF_SCHEMES.test(html) || !SETS_BACKGROUND.test(html));
  document.documentElement.style.colorScheme = isDark ? "dark" : "light";
  const parsed = fragment(html);
  for (const element of parsed.querySelectorAll(REMOVED)) element.remove();
  takeUploaded(parsed);
  if (!remoteAllowed) dropRemote(parsed);
  const body = fragment(`<div${BODY_TAG.exec(html)?.[1] ?? ""}></div>`).firstElementChild;
  for (const name of LOOKS) {
    if (body.hasAttribute(name)) document.body.setAttribute(name, body.getAttribute(name));
    else document.body.removeAttribute(name);
  }
  document.body.replaceChildren(parsed);
  for (const style of document.body.querySelectorAll("style")) followScheme(style.sheet?.cssRules ?? []);
  report();
  new ResizeObserver(report).observe(document.body);
});

// The reader of the preview chooses the scheme; a media query would follow the system instead.
function followScheme(rules) {
  for (const rule of rules) {
    if (rule.media) rule.media.mediaText = rule.media.mediaText.replace(/\(prefers-color-scheme: (dark|light)\)/g, (_, scheme) => ((scheme === "dark") === isDark ? "(min-width: 0px)" : "(max-width: 0px)"));
    followScheme(rule.cssRules ?? []);
  }
}

// The address of an uploaded image has the public host of the service; the console may be open at another one.
function takeUploaded(content) {
  for (const image of content.querySelectorAll("img[src]")) {
    const found = URL.canParse(image.getAttribute("src")) && UPLOADED.exec(new URL(image.getAttribute("src")).pathname);
    if (found) image.setAttribute("src", IMAGES + found[1]);
  }
}

// The policy refuses what is of other hosts; without the attributes the browser does not even try, nor warn.
const REMOTE = ["src", "srcset", "background", "poster"];
function dropRemote(content) {
  for (const element of content.querySelectorAll(REMOTE.map((name) => `[${name}]`).join())) {
    for (const name of REMOTE) {
      const isOwn = /^data:image\//i.test(element.getAttribute(name)?.trim()) || (name === "src" && element.getAttribute(name)?.startsWith(IMAGES));
      if (element.hasAttribute(name) && !isOwn) element.removeAttribute(name);
    }
  }
}

/** Return the elements of an HTML text; scripts inserted this way never run, and the policy forbids inline handlers. */
function fragment(html) {
  const parsed = document.createElement("template");
  parsed.innerHTML = html;
  return parsed.content;
}

function report() {
  parent.postMessage({ kind: "height", height: Math.ceil(document.documentElement.scrollHeight), dark: isDark }, "*");
}

parent.postMessage({ kind: "ready" }, "*");
