// The first email from the page itself: for a signed-in reader it makes a key, sends, and shows the waybill as it grows.
import { ask, element, ownDomain, session } from "./docs.js";

const POLL_MS = 400;
const MAX_POLLS = 150;

/** Call the API as the reader, or with the new key; throws the message of a refusal. */
async function call(path, { key, csrf, body } = {}) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  if (csrf) headers["X-CSRF-Token"] = csrf;
  const root = document.querySelector("main").dataset.docs.slice(0, -"/docs".length);
  const answer = await fetch(root + path, {
    method: body ? "POST" : "GET", headers, credentials: key ? "omit" : "same-origin", body: body && JSON.stringify(body),
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error?.message ?? `HTTP ${answer.status}`);
  return found;
}

function field(label, value) {
  const input = element("input", { type: "email", value, required: true, autocomplete: "off" });
  return [element("label", {}, label, input), input];
}

async function offer() {
  const signedIn = await session();
  if (!signedIn) return;
  const [domain, instance] = await Promise.all([ownDomain(), ask("/v1/instance")]);
  if (!domain || !instance) return;
  const [fromLabel, from] = field("From", `hello@${domain}`);
  const [toLabel, to] = field("To", `delivered@simulator.${instance.mailHost}`);
  const button = element("button", { type: "submit", className: "button primary", textContent: "Create a key and send" });
  const result = element("div", {});
  result.setAttribute("aria-live", "polite");
  const form = element("form", { className: "try" }, element("h2", { textContent: "Send it from this page" }), fromLabel, toLabel, button, result);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await run(signedIn, from.value, to.value, result);
    } catch (error) {
      result.append(element("p", { textContent: error.message }));
    }
    button.disabled = false;
  });
  document.querySelector(".lead").after(form);
}

async function run(signedIn, from, to, result) {
  const scopes = ["emails:send", "messages:read"];
  const made = await call("/v1/api-keys", { csrf: signedIn.csrfToken, body: { name: "First email", scopes } });
  result.replaceChildren(
    element("p", {}, "The key, shown only now: ", element("code", { textContent: made.token })),
    element("pre", { tabIndex: 0 }, element("code", { textContent: `export KEY=${made.token}` })),
  );
  const body = { from, to: [to], subject: "Hello", text: "It works." };
  const sent = await call("/v1/emails", { key: made.token, body });
  const events = element("ol", {});
  result.append(element("p", {}, "Message ", element("code", { textContent: sent.id })), events);
  for (let poll = 0; poll < MAX_POLLS; poll += 1) {
    const message = await call(`/v1/messages/${sent.id}`, { key: made.token });
    events.replaceChildren(...message.waybill.map((one) => element("li", {},
      element("time", { dateTime: one.createdAt, textContent: new Date(one.createdAt).toLocaleTimeString() }),
      element("code", { textContent: one.type }))));
    if (!["queued", "scheduled", "deferred", "sending"].includes(message.status)) {
      const root = document.querySelector("main").dataset.docs.slice(0, -"/docs".length);
      result.append(element("p", {}, element("a", { href: `${root}/console/messages/${sent.id}`, textContent: "The message in the console" })));
      return;
    }
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}

offer();
