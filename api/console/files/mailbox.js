// One form that calls the API. The token is in the fragment (#) of the link, which browsers send to no server.
"use strict";

const form = document.querySelector("form");
const result = document.getElementById("result");
const button = form.querySelector("button");
const wantsToken = form.hasAttribute("data-token");
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) history.replaceState(null, "", location.pathname); // keeps the token out of the address bar and of screenshots

function show(kind, ...parts) {
  result.className = kind;
  result.replaceChildren(...parts);
  result.hidden = false;
  result.focus();
}

function heading(title, text) {
  const first = document.createElement("h2");
  const line = document.createElement("p");
  first.textContent = title;
  line.textContent = text;
  return [first, line];
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
      show("good", from("done"));
    } else {
      show("fault", ...heading("The request failed", await problem(answer)));
    }
  } catch {
    show("fault", ...heading("The service can't be reached", "Check your connection and press the button again."));
  } finally {
    button.disabled = false;
  }
}

const showPassword = document.getElementById("show");
if (showPassword) showPassword.addEventListener("change", () => {
  document.getElementById("password").type = showPassword.checked ? "text" : "password";
});
form.addEventListener("submit", send);
if (wantsToken && !token) {
  form.hidden = true;
  show("fault", from("incomplete"));
}
