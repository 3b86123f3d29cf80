// Small helpers. Text gets into the page through textContent alone, so nothing that a server is named becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

// Leaves what is the same alone: a screen reader would read it again, and a selection would be lost.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

export const UNKNOWN = "unknown";
export const count = (number) => (number === null || number === undefined ? UNKNOWN : number.toLocaleString("en"));
export const percent = (ratio) => (ratio === null || ratio === undefined ? UNKNOWN : `${(ratio * 100).toFixed(1)}%`);

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const whole = Math.round(seconds);
  if (whole < 100) return `${whole} s`;
  if (whole < 6000) return `${Math.round(whole / 60)} min`;
  return whole < 172800 ? `${Math.round(whole / 3600)} h` : `${Math.round(whole / 86400)} d`;
}

const pad = (number) => String(number).padStart(2, "0");
export const clock = (date) => `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;

// In the reader's own time zone; the exact time in UTC is in the attribute.
export function time(iso) {
  const date = new Date(iso);
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return el("time", { datetime: iso, title: iso }, `${day} ${clock(date)}`);
}

// A table with a caption; cells are texts or nodes. The first cell of a row is its heading.
export function table(caption, heads, rows, feet = []) {
  const row = (cells) =>
    el("tr", {}, ...cells.map((cell, index) => (index ? el("td", {}, cell) : el("th", { scope: "row" }, cell))));
  return el(
    "table",
    {},
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map(row)),
    feet.length ? el("tfoot", {}, ...feet.map(row)) : null,
  );
}
