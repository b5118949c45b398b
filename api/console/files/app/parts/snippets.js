// One call of the API as text: curl, Python with httpx, JavaScript with fetch. Pure functions.

/** The languages of snippets: [key, name]. */
export const LANGUAGES = [["curl", "curl"], ["python", "Python"], ["javascript", "JavaScript"]];

/** Return the code for one call {method, url, body} of the service at `origin` in a language of LANGUAGES. */
export function snippet(language, { method, url, body }, origin) {
  const address = origin + url;
  if (language === "python") return python(method, address, body);
  if (language === "javascript") return javascript(method, address, body);
  return curl(method, address, body);
}

/** Return the text as one word of a POSIX shell. */
export const shellWord = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

function curl(method, address, body) {
  const parts = [`curl ${method === "GET" ? "" : `-X ${method} `}${shellWord(address)}`, `-H "Authorization: Bearer $KEY"`];
  if (body != null) parts.push("-H 'Content-Type: application/json'", `-d ${shellWord(JSON.stringify(body, null, 2))}`);
  return parts.join(" \\\n  ");
}

function python(method, address, body) {
  const named = ["GET", "POST", "PUT", "PATCH", "DELETE"].includes(method);
  const lines = [JSON.stringify(address), 'headers={"Authorization": f"Bearer {os.environ[\'KEY\']}"}'];
  if (body != null) lines.push(`json=${pythonValue(body, 1)}`);
  // httpx takes a body only where the method is given as an argument of `request`.
  const call = body != null && method === "DELETE" ? 'httpx.request("DELETE", ' : named ? `httpx.${method.toLowerCase()}(` : `httpx.request("${method}", `;
  return `import os\n\nimport httpx\n\nanswer = ${call}\n${lines.map((line) => `    ${line},`).join("\n")}\n)\nanswer.raise_for_status()\nprint(answer.text)`;
}

/** Return a JSON value as a Python literal, indented by `depth` times four spaces. */
export function pythonValue(value, depth = 0) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return JSON.stringify(value).replace(/[\u007f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`).replace(/(?:\\u[dD][89abAB][0-9a-f]{2}\\u[dD][c-fC-F][0-9a-f]{2})/g, asOneCharacter);
  const inner = "    ".repeat(depth + 1);
  const outer = "    ".repeat(depth);
  if (Array.isArray(value)) {
    return value.length ? `[\n${value.map((one) => `${inner}${pythonValue(one, depth + 1)},`).join("\n")}\n${outer}]` : "[]";
  }
  const entries = Object.entries(value);
  return entries.length ? `{\n${entries.map(([name, one]) => `${inner}${pythonValue(name)}: ${pythonValue(one, depth + 1)},`).join("\n")}\n${outer}}` : "{}";
}

/** Return the two escapes of a surrogate pair as the one that Python reads as one character. */
function asOneCharacter(pair) {
  const [high, low] = pair.split("\\u").slice(1).map((hex) => parseInt(hex, 16));
  return `\\U${((high - 0xd800) * 0x400 + (low - 0xdc00) + 0x10000).toString(16).padStart(8, "0")}`;
}

function javascript(method, address, body) {
  const options = [`  method: "${method}",`, "  headers: {", "    Authorization: `Bearer ${process.env.KEY}`,"];
  if (body != null) options.push('    "Content-Type": "application/json",');
  options.push("  },");
  if (body != null) options.push(`  body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll("\n", "\n  ")}),`);
  return `const answer = await fetch(${JSON.stringify(address)}, {\n${options.join("\n")}\n});\nif (!answer.ok) throw new Error(await answer.text());\nconsole.log(await answer.text());`;
}
