// Start a private Waybill for tests in Node, or use the one that another process has started, in Python or JavaScript.
// In its folder, `processes` has a file for each process that uses it, named after its pid; the last one stops the service.
// `lock` is a directory: its owner, whose pid it holds, may start or stop the service.

import { execFile, spawnSync } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const START_MS = 180_000; // the first start installs database servers
const TURN_MS = 2 * START_MS;
const POLL_MS = 50;
const PORTS = 12; // in a row, which a service takes at most
const TRIES = 5;
const HOST = "127.0.0.1";

let known = null;

// Return `{ baseUrl, apiKey, mxPort }` of the service. It runs until the last process that uses it ends.
export function runningService() {
  known ??= joined();
  return known;
}

async function joined() {
  const folder = ownFolder();
  const user = join(folder, "processes", `${process.pid}-${randomBytes(4).toString("hex")}`);
  for (const ends = Date.now() + TURN_MS; !takeTurn(folder); ) await passed(ends, folder);
  try {
    const service = (await answering(folder)) ?? (await start(folder));
    writeFileSync(user, "");
    process.once("exit", () => leave(folder, user));
    return service;
  } finally {
    endTurn(folder);
  }
}

function leave(folder, user) {
  const ends = Date.now() + START_MS;
  while (!takeTurn(folder)) {
    if (Date.now() > ends) return;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, POLL_MS);
  }
  try {
    rmSync(user, { force: true });
    if (process.env.WAYBILL_TWIN_KEEP || isUsed(folder)) return;
    const [program, ...words] = command();
    spawnSync(program, [...words, "stop", "--now"], { env: environ(folder), stdio: "ignore", timeout: START_MS });
  } finally {
    endTurn(folder);
  }
}

function ownFolder() {
  if (!process.getuid) throw new Error("The service for tests runs on Linux and macOS; use WSL on Windows.");
  const folder = join(tmpdir(), `waybill-twin-${process.getuid()}`);
  mkdirSync(folder, { mode: 0o700, recursive: true });
  if (statSync(folder).uid !== process.getuid()) throw new Error(`${folder} belongs to another user. Set TMPDIR to a folder of your own.`);
  mkdirSync(join(folder, "processes"), { recursive: true });
  return folder;
}

function isUsed(folder) {
  const users = join(folder, "processes");
  for (const name of readdirSync(users)) {
    if (runs(parseInt(name, 10))) return true;
    rmSync(join(users, name), { force: true });
  }
  return false;
}

// A full directory cannot be renamed onto another full one, so one process at a time gets the turn, pid and all.
function takeTurn(folder) {
  const [turn, mine] = [join(folder, "lock"), join(folder, `lock-${process.pid}`)];
  mkdirSync(mine, { recursive: true });
  writeFileSync(join(mine, "pid"), `${process.pid}`);
  try {
    renameSync(mine, turn);
    return true;
  } catch (error) {
    if (!["ENOTEMPTY", "EEXIST"].includes(error.code)) throw error;
    rmSync(mine, { recursive: true });
  }
  return inherit(turn);
}

// Take the turn of a process that has died. The directory `after-<pid>` lets one process do so.
function inherit(turn) {
  const owner = ownerOf(turn);
  if (Number.isNaN(owner) || runs(owner)) return false;
  const mark = join(turn, `after-${owner}`);
  try {
    mkdirSync(mark);
  } catch {
    return false;
  }
  if (ownerOf(turn) === owner) {
    writeFileSync(join(turn, "pid"), `${process.pid}`);
    return true;
  }
  rmdirSync(mark);
  return false;
}

function endTurn(folder) {
  const ended = join(folder, `lock-${process.pid}`);
  renameSync(join(folder, "lock"), ended);
  rmSync(ended, { recursive: true });
}

function ownerOf(turn) {
  try {
    return parseInt(readFileSync(join(turn, "pid"), "utf8"), 10);
  } catch {
    return NaN;
  }
}

function runs(pid) {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error.code === "EPERM";
  }
}

async function passed(ends, folder) {
  if (Date.now() > ends) throw new Error(`Another process has held ${join(folder, "lock")} for ${TURN_MS / 1000} s. End it, or remove the directory.`);
  await new Promise((resolve) => setTimeout(resolve, POLL_MS));
}

async function answering(folder) {
  try {
    const { base_url: baseUrl, api_key: apiKey, mx_port: mxPort } = JSON.parse(readFileSync(join(folder, "service.json"), "utf8"));
    const response = await fetch(`${baseUrl}/readyz`, { signal: AbortSignal.timeout(5_000) });
    await response.arrayBuffer();
    return response.status === 200 ? { baseUrl, apiKey, mxPort } : null;
  } catch {
    return null;
  }
}

async function start(folder) {
  for (let tries = 1; ; tries += 1) {
    const started = environ(folder, await freePorts());
    const { failed, output } = await run(started, "up", "--detach");
    if (!failed) return noted(folder, started);
    // It does not answer, or its tests were killed before they noted its address.
    if (output.includes("already runs")) await run(started, "stop", "--now");
    else if (tries === TRIES || !output.includes("in use")) throw new Error(`Waybill did not start:\n${output.slice(-4_000)}`);
    if (tries === TRIES) throw new Error(`Waybill runs in ${folder}, but does not answer:\n${output.slice(-4_000)}`);
  }
}

async function noted(folder, started) {
  const { apiKey } = JSON.parse(readFileSync(join(folder, "state", "first-run.json"), "utf8"));
  const value = async (name) => JSON.parse((await run(started, "config", name, "--json")).output).value;
  const [api, mxPort] = [await value("api_port"), Number(await value("mx_port"))];
  const baseUrl = `http://${HOST}:${api}`;
  writeFileSync(join(folder, "service.json"), JSON.stringify({ base_url: baseUrl, api_key: apiKey, mx_port: mxPort }), { mode: 0o600 });
  return { baseUrl, apiKey, mxPort };
}

// The environment variables of the service: no settings of the caller's reach it.
function environ(folder, ports) {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("WAYBILL_"));
  const own = { WAYBILL_STATE: join(folder, "state"), WAYBILL_PROFILE: "small", WAYBILL_DURABLE: "false" };
  return { ...Object.fromEntries(kept), ...own, ...(ports === undefined ? {} : { WAYBILL_PORT_BASE: `${ports}` }) };
}

// The words of the command line in WAYBILL_COMMAND; quotes hold spaces.
function command() {
  const words = (process.env.WAYBILL_COMMAND || "waybill").match(/(?:[^\s"']|"[^"]*"|'[^']*')+/g) ?? ["waybill"];
  return words.map((word) => word.replace(/"([^"]*)"|'([^']*)'/g, (_, double, single) => double ?? single));
}

function run(env, ...words) {
  const [program, ...first] = command();
  return new Promise((resolve, reject) => {
    const child = execFile(program, [...first, ...words], { env, timeout: START_MS, maxBuffer: 2 ** 24 }, (error, output, errors) => {
      if (error?.code !== "ENOENT") return resolve({ failed: error !== null, output: output + errors });
      reject(new Error(`There is no command ${program}. Install Waybill (\`pipx install waybill\`), or set WAYBILL_COMMAND to the command line that runs it.`));
    });
    child.stdin.end();
  });
}

// Return the first of some ports in a row that are free now.
async function freePorts() {
  for (let tries = 0; tries < 100; tries += 1) {
    const base = randomInt(20_000, 32_000);
    const servers = Array.from({ length: PORTS }, () => createServer());
    const bound = await Promise.allSettled(servers.map((server, place) => listening(server, base + place)));
    await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
    if (bound.every((one) => one.status === "fulfilled")) return base;
  }
  throw new Error("No free ports were found for the service.");
}

function listening(server, port) {
  return new Promise((resolve, reject) => server.once("error", reject).listen(port, HOST, resolve));
}
