// Keeps the page up to date: by server-sent events, else by asking; and says plainly when what it shows is old.

import { clock, say, show } from "./dom.js";
import { LEVELS, listProblems, ServerView } from "./server.js";

const LATE = 12_000; // The exporter says something every 5 s.
const FORGET = 30_000; // Numbers older than this are not shown any more.
const POLL = 3_000;
const PATIENCE = 8_000;
const TRY_STREAM = 30_000;
const REFRESH = 15_000; // The last hour has a new point this often.
const HIDDEN = 60_000;
const FEW = 3; // So many servers are shown open.

const $ = (id) => document.getElementById(id);
const views = new Map();
let source = null;
let polling = null;
let silence = null;
let retry = null;
let hidden = null;
let heardMonotonic = null;
let heardClock = null;
let heardAt = null; // The exporter's own time.
let state = "connecting";
let forgotten = false;

// ---- the connection

function connect() {
  stop();
  source = new EventSource("api/v1/events");
  const told = (handle) => (event) => {
    clearTimeout(silence);
    if (forgotten && handle !== takeAll) {
      connect(); // What was forgotten is told only at a stream's beginning.
      return;
    }
    handle(JSON.parse(event.data));
    heard("live");
  };
  source.addEventListener("servers", told(takeAll));
  source.addEventListener("changes", told(takeChanges));
  source.addEventListener("heartbeat", told((data) => (heardAt = new Date(data.at))));
  source.addEventListener("error", () => {
    // A stream that was refused stays closed; of a broken one the browser tries to make a new one by itself.
    if (source.readyState === EventSource.CLOSED) poll();
    else ask();
  });
  silence = setTimeout(poll, PATIENCE); // Some proxies keep events back.
}

function stop() {
  source?.close();
  for (const timer of [silence, retry]) clearTimeout(timer);
  clearInterval(polling);
  source = polling = null;
}

function poll() {
  stop();
  ask();
  polling = setInterval(ask, POLL);
  retry = setTimeout(connect, TRY_STREAM);
}

async function ask() {
  let problem = "kvexporter does not answer";
  try {
    const answer = await fetch("api/v1/servers", { signal: AbortSignal.timeout(PATIENCE) });
    if (answer.ok) {
      takeAll(await answer.json());
      heard("polling");
      return;
    }
    problem = answer.status === 401 ? "kvexporter wants a password: reload the page" : `kvexporter answers with ${answer.status}`;
  } catch {
    // Said below.
  }
  lose(problem);
}

function heard(how) {
  const lost = state === "lost";
  heardMonotonic = performance.now();
  heardClock = Date.now();
  state = how;
  if (lost) say($("news"), "Connected again.");
  showLink();
}

function age() {
  // Either clock may stand still: the one while the machine sleeps, the other when it is set.
  return heardMonotonic === null ? null : Math.max(performance.now() - heardMonotonic, Date.now() - heardClock, 0);
}

function lose(why) {
  if (state !== "lost" || $("stale").dataset.why !== why) {
    state = "lost";
    $("stale").dataset.why = why;
    // The age is said elsewhere: this text is read aloud whenever it changes.
    const shown = heardMonotonic === null ? "" : ` What is below is of ${clock(heardAt)} and old.`;
    say($("stale"), `${why}.${shown}`);
  }
  showLink();
}

function tick() {
  const old = age();
  if (old !== null && old > LATE && state !== "lost") lose("No word from kvexporter");
  if (old !== null && old > FORGET && !forgotten) {
    forgotten = true;
    for (const view of views.values()) view.forget();
    say($("stale"), `No connection to kvexporter since ${clock(heardAt)}. Older numbers are not shown.`);
  }
  showLink();
}

function showLink() {
  const old = age();
  const texts = {
    connecting: "Connecting …",
    live: "Live",
    polling: `Asking every ${POLL / 1000} s`,
    lost: old === null ? "No connection" : `No connection: ${Math.round(old / 1000)} s old`,
  };
  show($("link"), true); // Without scripts there is no connection to tell of.
  $("link").dataset.link = state;
  say($("link-text"), texts[state]);
  show($("stale"), state === "lost");
  document.body.classList.toggle("old", state === "lost");
  showTitle();
}

// ---- what it tells

function takeAll(data) {
  const names = new Set(data.servers.map((server) => server.name));
  const first = heardMonotonic === null;
  for (const [name, view] of views) {
    if (names.has(name)) continue;
    view.root.remove();
    views.delete(name);
  }
  forgotten = false;
  takeChanges(data, first);
  if (first && data.servers.length <= FEW) for (const view of views.values()) view.root.open = true;
  show($("empty"), data.servers.length === 0);
}

function takeChanges(data, first = false) {
  heardAt = new Date(data.at);
  if (data.exporter) takeExporter(data.exporter);
  const news = [];
  for (const server of data.servers) {
    let view = views.get(server.name);
    const before = view?.data?.standing.level;
    const incidents = view?.incidentCount;
    if (!view) views.set(server.name, (view = new ServerView(server.name, refresh)));
    view.update(server);
    // A row whose level stays has news too when somebody has died again.
    const more = view.incidentCount > (incidents ?? view.incidentCount);
    if (!first && (more || server.standing.level !== before)) news.push(`${server.name}: ${server.standing.text}`);
    if (view.root.open && (view.incidentCount !== incidents || !view.detail)) refresh(view);
  }
  if (news.length) say($("news"), news.slice(0, 5).join(". "));
  order();
  summarize();
}

function takeExporter(exporter) {
  const found = exporter.problems.length;
  const box = $("exporter-problems");
  show(box, found > 0);
  say(box.querySelector("summary"), `kvexporter could not read all: ${found} ${found === 1 ? "problem" : "problems"}`);
  listProblems(box.querySelector("ul"), exporter.problems);
  say($("version"), `kvexporter ${exporter.version}${exporter.ready ? "" : ", not ready yet: it is still reading"}`);
}

// In danger first, then by name: within a level rows stay where they are.
function order() {
  const wanted = [...views.values()].sort(
    (one, other) => one.rank - other.rank || one.name.localeCompare(other.name, "en", { numeric: true }),
  );
  const list = $("servers");
  const focused = document.activeElement;
  wanted.forEach((view, index) => {
    if (list.children[index] !== view.root) list.insertBefore(view.root, list.children[index] ?? null);
  });
  if (focused !== document.activeElement && list.contains(focused)) focused.focus({ preventScroll: true });
}

function summarize() {
  const numbers = levels();
  const parts = Object.entries(LEVELS).filter(([level]) => numbers[level]);
  const text = parts.map(([level, word]) => `${numbers[level]} ${word.toLowerCase()}`).join(", ");
  const servers = views.size === 1 ? "1 server" : `${views.size} servers`;
  say($("summary"), views.size ? `${servers}: ${text}` : "");
}

function levels() {
  const numbers = {};
  for (const view of views.values()) {
    const level = view.data?.standing.level ?? "unknown";
    numbers[level] = (numbers[level] ?? 0) + 1;
  }
  return numbers;
}

function showTitle() {
  const { page = 0, warning = 0 } = levels();
  const mark = state === "lost" ? "(?) " : page ? `(${page}!) ` : warning ? `(${warning}) ` : "";
  if (document.title !== `${mark}kvexporter`) document.title = `${mark}kvexporter`;
}

async function refresh(view) {
  if (view.loading || state === "lost") return;
  view.loading = true;
  try {
    const path = view.name.split("/").map(encodeURIComponent).join("/");
    const answer = await fetch(`api/v1/servers/${path}`, { signal: AbortSignal.timeout(PATIENCE) });
    if (answer.ok && views.get(view.name) === view && !forgotten) view.updateDetail((await answer.json()).server);
  } catch {
    // The stream tells whether the exporter is there; the next round asks again.
  } finally {
    view.loading = false;
  }
}

// ---- the page's own life

document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) {
    // A page that nobody sees costs the exporter nothing.
    hidden = setTimeout(stop, HIDDEN);
  } else {
    tick();
    if (!source && !polling) connect();
  }
});
setInterval(tick, 1000);
setInterval(() => {
  for (const view of views.values()) if (view.root.open && !document.hidden) refresh(view);
}, REFRESH);
showLink();
connect();
