// What is drawn: the pool to scale, one slot's window, memory, and the last hour. All in SVG, with positions in percent.

import { count, percent, svg } from "./dom.js";

const WIDEST = 1.5; // The pool's end stays where it can be seen, however much is needed.
const MOST_TICKS = 64;
const LETTER = 7; // Pixels, at the size of the labels.
const TOP = 8;
const HEIGHT = 34;

const at = (part) => `${(part * 100).toFixed(3)}%`;

function label(part, width, texts) {
  const fitting = texts.find((text) => text.length * LETTER + 10 < width);
  return fitting ? svg("text", { x: at(part), dx: 5, y: TOP + 22 }, fitting) : null;
}

function box(start, part, kind, title, y = TOP, height = HEIGHT) {
  const shape = svg("rect", { x: at(start), y, width: at(part), height, class: kind });
  if (title) shape.append(svg("title", {}, title));
  return shape;
}

const line = (x, from, to, kind) => svg("line", { x1: at(x), x2: at(x), y1: from, y2: to, class: kind });

// Everybody's tokens in the pool. Gives the marks: kind, and what a reader has to be told of it.
export function drawPool(target, server) {
  const capacity = server.geometry.capacity_tokens;
  target.replaceChildren();
  if (!capacity) return [];
  const known = server.slots.filter((slot) => slot.tokens);
  const { committed_tokens: sureNeed = null, demand_tokens: need = null } = server.pool ?? {};
  const held = known.reduce((sum, slot) => sum + slot.tokens, 0);
  const scale = Math.min(Math.max(capacity, sureNeed, need, held), capacity * WIDEST);
  target.append(box(0, capacity / scale, "room"));
  if (!server.pool && !known.length) {
    target.append(svg("text", { x: 8, y: TOP + 22, class: "unknown" }, "who holds it is not known now"));
  }
  const end = drawWorking(target, known, server.geometry, scale);
  const marks = drawTicks(target, server.geometry, scale);
  if (capacity < scale) target.append(line(capacity / scale, 2, TOP + HEIGHT + 6, "end"));
  marks.push(["end", `pool of ${count(capacity)}`]);
  const kept = known.reduce((sum, slot) => sum + (slot.processing ? 0 : slot.tokens), 0);
  if (kept) {
    // Lower than what works: room that can be had.
    const part = Math.min(kept / scale, Math.max(0, 1 - end));
    target.append(box(end, part, "idle", `Idle cache: ${count(kept)} tokens`, TOP + HEIGHT / 2, HEIGHT / 2));
    marks.push(["idle", `idle cache ${count(kept)}`]);
  }
  if (sureNeed) marks.push(drawNeed(target, sureNeed, scale, "need", "once read, at least"));
  if (need && need !== sureNeed) marks.push(drawNeed(target, need, scale, "most", "written to the end, up to"));
  return marks;
}

// The slots at work, one after the other. Gives where they end.
function drawWorking(target, known, { guaranteed_tokens: sure, shared }, scale) {
  const working = known.filter((slot) => slot.processing);
  const biggest = Math.max(...working.map((slot) => slot.tokens), 0);
  const pixels = target.clientWidth || 600;
  let start = 0;
  working.forEach((slot, index) => {
    const part = slot.tokens / scale;
    const kind = working.length > 1 && slot.tokens === biggest ? "biggest" : index % 2 ? "odd" : "even";
    const text = `Slot ${slot.slot}: ${count(slot.tokens)} tokens, ${percent(slot.share)} of the pool`;
    target.append(box(start, part, `slot ${kind}`, text));
    if (shared && sure && slot.tokens > sure) {
      const over = start + sure / scale;
      target.append(box(over, (slot.tokens - sure) / scale, "over", "above what the slot is sure of", TOP, 5));
      target.append(line(over, TOP, TOP + 12, "sure"));
    }
    const short = `${slot.slot}: ${count(slot.tokens)}`;
    const name = label(start, part * pixels, [`slot ${short} (${percent(slot.share)})`, short, `${slot.slot}`]);
    if (name) target.append(name);
    start += part;
  });
  return start;
}

// Where each slot's sure part would end if all took just that.
function drawTicks(target, { guaranteed_tokens: sure, shared, slots }, scale) {
  if (!shared || !sure || slots > MOST_TICKS) return [];
  for (let slot = 1; slot <= slots; slot++) {
    target.append(line((sure * slot) / scale, TOP + HEIGHT, TOP + HEIGHT + 8, "tick"));
  }
  return [["tick", `each slot is sure of ${count(sure)}`]];
}

function drawNeed(target, tokens, scale, kind, words) {
  const x = Math.min(tokens / scale, 1);
  target.append(line(x, 0, TOP + HEIGHT + 4, kind), svg("circle", { cx: at(x), cy: 4, r: 4, class: kind }));
  return [kind, `${words} ${count(tokens)}${tokens / scale > 1.001 ? " (beyond this scale)" : ""}`];
}

// The same in one line, for a row of the list.
export function drawSmall(target, server) {
  target.replaceChildren(box(0, 1, "room", null, 0, 10));
  const fill = server.pool?.fill_ratio;
  if (fill === null || fill === undefined) return;
  target.append(box(0, Math.min(fill, 1), "slot even", null, 0, 10));
  const peak = server.pool.fill_peak_ratio;
  if (peak !== null && peak > fill) target.append(line(Math.min(peak, 0.998), 0, 10, "sure"));
}

// One slot in its own window, with the mark of what it is sure of.
export function drawWindow(slot, geometry) {
  const window = geometry.slot_context_tokens;
  const picture = svg("svg", { class: "window", width: "100%", height: 12, "aria-hidden": "true" });
  if (!window) return picture;
  const part = Math.min((slot.tokens ?? 0) / window, 1);
  picture.append(box(0, 1, "room", null, 2, 8), box(0, part, slot.processing ? "slot even" : "idle", null, 2, 8));
  const sure = geometry.guaranteed_tokens;
  if (sure && sure < window) picture.append(line(sure / window, 0, 12, "sure"));
  return picture;
}

export function drawMemory(target, memory) {
  target.replaceChildren();
  let start = 0;
  for (const { kind, name, bytes } of memory.parts) {
    const part = bytes / memory.total_bytes;
    target.append(box(start, part, `memory-${kind}`, name, 0, 16));
    start += part;
  }
}

// The last hour. Where nothing was known there is no line.
export function drawHour(target, history, incidents) {
  const values = history.highest_ratios;
  const y = (ratio) => (46 - Math.min(ratio, 1.05) * 40).toFixed(1);
  target.replaceChildren(svg("line", { x1: 0, x2: values.length, y1: y(1), y2: y(1), class: "full" }));
  let path = "";
  let area = "";
  for (let index = 0; index < values.length; index++) {
    if (values[index] === null) continue;
    const begins = index === 0 || values[index - 1] === null;
    const ends = index === values.length - 1 || values[index + 1] === null;
    path += `${begins ? "M" : "L"}${index} ${y(values[index])}H${index + 1}`;
    area += `${begins ? `M${index} 46V` : `L${index} `}${y(values[index])}H${index + 1}${ends ? "V46Z" : ""}`;
  }
  target.append(svg("path", { d: area, class: "area" }), svg("path", { d: path, class: "course" }));
  const start = Date.parse(history.start);
  for (const incident of incidents) {
    const x = (Date.parse(incident.ended) - start) / 1000 / history.step_seconds;
    if (x >= 0 && x <= values.length) {
      target.append(svg("line", { x1: x, x2: x, y1: 0, y2: 46, class: `incident ${incident.cause}` }));
    }
  }
}
