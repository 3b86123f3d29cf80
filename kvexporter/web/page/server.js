// One server's part of the page: a row that opens. Made once and then kept up to date, so that focus and what is open stay.

import { count, duration, el, percent, say, show, svg, table, time, UNKNOWN } from "./dom.js";
import { drawHour, drawMemory, drawPool, drawSmall, drawWindow } from "./draw.js";

export const LEVELS = { page: "Act now", warning: "Watch", unknown: "Unknown", info: "Note", ok: "Fine" };
const MOST_SLOTS = 64;
const MOST_INCIDENTS = 10;
const FACTS = [
  ["fill", "Fill", true],
  ["demand", "Need", false],
  ["time_left", "Time left", true],
  ["state", "State", true],
  ["speed", "Speed", false],
  ["pool", "Shape", true],
  ["pool_remedy", "To mend it", false],
  ["kv_cache", "KV cache", false],
];
const CAUSES = { pool: "The pool ran out", slot: "A slot's own limit" };

const heading = (text) => el("h3", {}, text);

export class ServerView {
  constructor(name, opened) {
    this.name = name;
    this.data = null;
    this.detail = null;
    this.parts = {};
    this.facts = {};
    this.incidents = new Map();
    this.root = el("details", { class: "server" }, this.row(), this.body());
    this.root.addEventListener("toggle", () => {
      if (!this.root.open) return;
      this.draw();
      opened(this);
    });
    new ResizeObserver(() => this.draw()).observe(this.parts.pool);
  }

  row() {
    const p = this.parts;
    p.level = el("span", { class: "level" });
    p.headline = el("span", { class: "headline" });
    p.small = svg("svg", { class: "small", width: "100%", height: 10, "aria-hidden": "true" });
    p.fill = el("span", { class: "fill" });
    p.left = el("span", { class: "left" });
    return el("summary", {}, p.level, el("h2", {}, this.name), p.headline, p.small, p.fill, p.left);
  }

  body() {
    const p = this.parts;
    p.about = el("p", { class: "about" });
    const facts = el("dl", { class: "facts" });
    for (const [key, title] of FACTS) {
      this.facts[key] = el("dd");
      facts.append(el("div", {}, el("dt", {}, title), this.facts[key]));
    }
    p.pool = svg("svg", { class: "pool", width: "100%", height: 52, role: "img" });
    p.marks = el("figcaption", { class: "marks" });
    p.slots = el("div");
    p.hour = svg("svg", { class: "hour", width: "100%", height: 64, viewBox: "0 0 240 48", role: "img" });
    p.hour.setAttribute("preserveAspectRatio", "none");
    p.hourText = el("figcaption");
    p.hourFigure = el("figure", {}, heading("The last hour"), p.hour, p.hourText);
    p.incidentList = el("div");
    p.incidentText = el("p");
    p.advice = el("details", { class: "advice" }, el("summary", {}, "What would prevent it"), el("ul"));
    p.memory = svg("svg", { class: "memory", width: "100%", height: 16, role: "img" });
    p.memoryText = el("figcaption");
    p.memoryFigure = el("figure", {}, heading("Memory"), p.memory, p.memoryText);
    p.problems = el("ul");
    p.problemSection = el("section", { class: "problems" }, heading("What is not known, and why"), p.problems);
    return el(
      "div",
      { class: "body" },
      p.about,
      el("figure", { class: "whole" }, p.pool, p.marks),
      facts,
      p.slots,
      el("div", { class: "side" }, p.hourFigure, p.memoryFigure),
      el("section", { class: "whole" }, heading("Incidents"), p.incidentText, p.incidentList, p.advice),
      p.problemSection,
    );
  }

  get rank() {
    return this.data?.standing.rank ?? 2;
  }

  // Takes the newest numbers.
  update(data) {
    this.data = data;
    const p = this.parts;
    this.root.dataset.level = data.standing.level;
    say(p.level, LEVELS[data.standing.level] ?? LEVELS.unknown);
    say(p.headline, data.standing.text);
    say(p.fill, data.pool?.fill_ratio === null || !data.pool ? "?" : percent(data.pool.fill_ratio));
    const left = duration(data.pool?.seconds_to_full);
    say(p.left, left && `${left} left`);
    say(p.about, [data.model, data.build, data.unit, data.url].filter(Boolean).join(" · ") || "nothing else is known");
    for (const [key, , always] of FACTS) {
      show(this.facts[key].parentNode, Boolean(data.words[key]) || always);
      say(this.facts[key], data.words[key] ?? UNKNOWN);
    }
    this.problems(data.problems);
    this.memory(data.memory);
    this.incidentSummary(data.counts);
    drawSmall(p.small, data);
    if (this.root.open) this.draw();
  }

  // What is of another exporter's life, or too old, is shown as not known.
  forget() {
    this.data = this.detail = null;
    const p = this.parts;
    for (const node of [p.fill, p.left]) say(node, "?");
    say(p.headline, "not known: no connection to kvexporter");
    say(p.level, LEVELS.unknown);
    this.root.dataset.level = "unknown";
    for (const fact of Object.values(this.facts)) say(fact, UNKNOWN);
    for (const node of [p.pool, p.small, p.marks, p.slots, p.hour, p.memory]) node.replaceChildren();
    for (const node of [p.hourText, p.memoryText, p.incidentText]) say(node, UNKNOWN);
    p.pool.setAttribute("aria-label", "The pool: unknown");
    p.hour.setAttribute("aria-label", "The last hour: unknown");
    p.memory.setAttribute("aria-label", "Memory: unknown");
  }

  // The part that is costly, and seen only while it is open.
  draw() {
    if (!this.data || !this.root.open) return;
    const { data, parts: p } = this;
    const marks = drawPool(p.pool, data);
    p.pool.classList.toggle("none", !marks.length);
    p.pool.setAttribute("aria-label", `The pool to scale. ${data.words.fill ?? "Its content is not known."}`);
    p.marks.replaceChildren(
      ...marks.map(([kind, text]) => el("span", {}, el("i", { class: `mark ${kind}`, "aria-hidden": "true" }), text)),
    );
    if (!marks.length) say(p.marks, "The pool's size is not known, so it cannot be drawn to scale.");
    this.slots(data);
  }

  slots(data) {
    const rows = data.slots.slice(0, MOST_SLOTS).map((slot) => [
      `${slot.slot}`,
      slot.processing ? "works" : "idle",
      count(slot.tokens),
      percent(slot.share),
      drawWindow(slot, data.geometry),
      slot.processing ? duration(slot.task_age_seconds) || UNKNOWN : "",
    ]);
    if (!rows.length) {
      this.parts.slots.replaceChildren();
      return;
    }
    const more = data.slots.length - rows.length;
    const caption = more > 0 ? `Slots (${more} more are not shown)` : "Slots";
    const made = table(caption, ["Slot", "", "Tokens", "Of the pool", "Of its window", "Runs for"], rows);
    made.className = "slots";
    made.querySelectorAll("th")[1].append(el("span", { class: "unseen" }, "State"));
    this.parts.slots.replaceChildren(made);
  }

  memory(memory) {
    const p = this.parts;
    show(p.memoryFigure, Boolean(memory));
    if (!memory) return;
    drawMemory(p.memory, memory);
    p.memory.setAttribute("aria-label", memory.text);
    say(p.memoryText, memory.text);
  }

  problems(found) {
    const p = this.parts;
    show(p.problemSection, found.length > 0);
    listProblems(p.problems, found);
  }

  incidentSummary(counts) {
    let text = "Its log is not read, so nobody has counted.";
    if (counts) {
      const { pool, slot } = counts.incidents;
      const most = counts.lower_bound ? "At least" : "So far";
      text = pool + slot === 0 ? "None so far." : `${most} ${pool} of a full pool, ${slot} of a slot's own limit.`;
    }
    say(this.parts.incidentText, text);
  }

  get incidentCount() {
    const counts = this.data?.counts?.incidents;
    return counts ? counts.pool + counts.slot : 0;
  }

  // Takes what changes seldom: the last hour, incidents, advice.
  updateDetail(detail) {
    this.detail = detail;
    const p = this.parts;
    show(p.hourFigure, Boolean(detail.fill_history));
    if (detail.fill_history) {
      drawHour(p.hour, detail.fill_history, detail.incidents);
      const known = detail.fill_history.highest_ratios.filter((ratio) => ratio !== null);
      const from = Date.parse(detail.fill_history.start);
      const lately = detail.incidents.filter((incident) => Date.parse(incident.ended) >= from).length;
      const happened = lately === 1 ? "1 incident" : `${lately || "no"} incidents`;
      const text = `From an hour ago to now: at most ${percent(Math.max(...known))} full, ${happened}.`;
      p.hour.setAttribute("aria-label", text);
      say(p.hourText, text);
    }
    this.listIncidents(detail.incidents.slice(0, MOST_INCIDENTS));
    show(p.advice, detail.advice.length > 0);
    const options = detail.advice.map((way) =>
      el(
        "li",
        {},
        way.why,
        way.flags.length ? el("code", {}, way.flags.join(" ")) : null,
        way.flags_any_build.length ? "Builds that do not know one of these:" : null,
        way.flags_any_build.length ? el("code", {}, way.flags_any_build.join(" ")) : null,
        way.memory ? ` Memory for the KV cache: ${way.memory}.` : null,
      ),
    );
    p.advice.querySelector("ul").replaceChildren(...options);
  }

  listIncidents(incidents) {
    const nodes = incidents.map((incident) => {
      const key = `${incident.cause} ${incident.started}`;
      if (!this.incidents.has(key)) this.incidents.set(key, incidentView(incident));
      return this.incidents.get(key);
    });
    const list = this.parts.incidentList;
    if (nodes.length !== list.children.length || nodes.some((node, index) => list.children[index] !== node)) {
      list.replaceChildren(...nodes);
      this.incidents = new Map([...this.incidents].filter(([, node]) => nodes.includes(node)));
    }
  }
}

function incidentView(incident) {
  const died = `${count(incident.requests_failed)} ${incident.requests_failed === 1 ? "request" : "requests"} died`;
  const rows = incident.slots.map((slot) => [
    slot.slot === incident.biggest_slot ? el("strong", {}, `${slot.slot}, held most`) : `${slot.slot}`,
    count(slot.tokens),
    percent(slot.share),
  ]);
  const pool = incident.capacity_tokens;
  const sum = incident.sum_tokens;
  const feet = [
    ["Sum", count(sum), sum !== null && pool ? percent(sum / pool) : UNKNOWN],
    ["Pool", count(pool), ""],
    ["Too many", count(incident.excess_tokens), ""],
  ];
  const sentences = [`${incident.text[0].toUpperCase()}${incident.text.slice(1)}.`, incident.coming];
  if (incident.adds_up) sentences.push("The excess is exactly the batch that found no room.");
  return el(
    "details",
    { class: "incident" },
    el("summary", {}, time(incident.ended), ` ${CAUSES[incident.cause] ?? incident.cause}: ${died}`),
    ...sentences.filter(Boolean).map((text) => el("p", {}, text)),
    rows.length ? table("Who held what", ["Slot", "Tokens", "Of the pool"], rows, incident.cause === "pool" ? feet : []) : null,
  );
}

export function listProblems(list, found) {
  const texts = JSON.stringify(found);
  if (list.dataset.shown === texts) return;
  list.dataset.shown = texts;
  list.replaceChildren(
    ...found.map((problem) =>
      el(
        "li",
        {},
        el("strong", {}, problem.subject),
        `: ${problem.text}`,
        problem.remedy ? el("span", { class: "remedy" }, `To mend it: ${problem.remedy}.`) : null,
      ),
    ),
  );
}
