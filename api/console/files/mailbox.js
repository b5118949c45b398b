// One form that calls the API. The token comes behind the # of the link: browsers send that to no server.
"use strict";

const form = document.querySelector("form");
const told = document.getElementById("told");
const button = form.querySelector("button");
const wantsToken = form.hasAttribute("data-token");
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) history.replaceState(null, "", location.pathname); // out of the address bar, and so of screenshots

function tell(kind, ...parts) {
  told.className = kind;
  told.replaceChildren(...parts);
  told.hidden = false;
  told.focus();
}

function words(title, text) {
  const heading = document.createElement("h2");
  const line = document.createElement("p");
  heading.textContent = title;
  line.textContent = text;
  return [heading, line];
}

function from(template) {
  return document.getElementById(template).content.cloneNode(true);
}

async function problem(answer) {
  const wait = Number(answer.headers.get("Retry-After"));
  try {
    const { error } = await answer.json();
    return error.message;
  } catch {
    return wait ? `Try again in ${wait} s.` : "Try again in a moment.";
  }
}

async function send(event) {
  event.preventDefault();
  if (!form.reportValidity()) return;
  const body = wantsToken ? { token } : {};
  for (const field of form.querySelectorAll("input[name]")) body[field.name] = field.value;
  button.disabled = true;
  try {
    const answer = await fetch(form.dataset.call, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      referrerPolicy: "no-referrer",
    });
    if (answer.ok) {
      form.hidden = true;
      tell("good", from("done"));
    } else {
      tell("fault", ...words("That did not work", await problem(answer)));
    }
  } catch {
    tell("fault", ...words("The service can't be reached", "Check your connection and press the button again."));
  } finally {
    button.disabled = false;
  }
}

const show = document.getElementById("show");
if (show) show.addEventListener("change", () => {
  document.getElementById("password").type = show.checked ? "text" : "password";
});
form.addEventListener("submit", send);
if (wantsToken && !token) {
  form.hidden = true;
  tell("fault", from("incomplete"));
}
