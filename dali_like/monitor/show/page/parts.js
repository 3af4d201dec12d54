// Build elements, format numbers, and fetch from the server. Text never becomes markup.

export const COLORS = { run: "#c9ced6", wait: "#d9534f", assemble: "#f0ad4e", step: "#5cb85c", build: "#8e7cc3" };
export const OTHERS = ["#4a7fb5", "#48a9a6", "#7b9e3c", "#b58900", "#6c71c4", "#2f5d8a", "#d45087", "#9c755f", "#a05195", "#86bcb6"];
export const MIB = 2 ** 20;
/** Key in the details of a part of another span, as in dali_like/monitor/trace/trace_records.py. */
export const PART_OF = "part of";

const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";

/** Fetch JSON from the server. The token in the page's address authorizes the request. */
export async function get(path) {
  const response = await fetch(path, { headers: { Authorization: `Bearer ${token}` } });
  if (!response.ok) throw new Error((await response.text()) || `the server responded with status ${response.status}`);
  return response.json();
}

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function rounded(value) {
  return value >= 100 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(3)).toString();
}

export function percent(share) {
  return `${Math.round(share * 100)} %`;
}

export function milliseconds(value) {
  if (value >= 10000) return `${rounded(value / 1000)} s`;
  return value < 1 ? `${rounded(value * 1000)} µs` : `${rounded(value)} ms`;
}

export function size(bytes) {
  return `${rounded(bytes / MIB)} MiB`;
}

export function showTiles(tiles) {
  document.getElementById("tiles").replaceChildren(
    ...tiles.map(([label, value]) => el("div", { class: "tile" }, el("b", {}, String(value)), el("span", {}, label))));
}

export function showTable(where, id, title, columns, rows) {
  const cells = (row) => row.map((cell) => el("td", typeof cell === "number" ? { class: "number" } : {},
    cell instanceof Node ? cell : String(cell)));
  where.append(el("h2", {}, title), el("div", { class: "table" }, el("table", { id },
    el("thead", {}, el("tr", {}, ...columns.map((column) => el("th", {}, column)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells(row)))))));
}

export function meter(share) {
  return el("span", {}, el("meter", { value: Math.min(share, 1), min: 0, max: 1 }), ` ${percent(share)}`);
}

/** Show the bottleneck on top of the page, above it the rank that holds the job up. `found` is empty if it is unknown. */
export function showDiagnosis(found, slowestRank = "") {
  const box = document.getElementById("diagnosis");
  box.hidden = !found?.bottleneck;
  if (box.hidden) return;
  const { bottleneck, sentence, advice, expected } = found;
  box.replaceChildren(...(slowestRank ? [el("p", {}, slowestRank)] : []), el("b", {}, `Bottleneck: ${bottleneck}`),
    ...[sentence, advice, expected].filter(Boolean).map((text) => el("p", {}, text)));
}

/** Append a table of operators: {name, place, seconds} of each. */
export function showOperators(where, operators) {
  const spent = operators.filter((each) => each.seconds > 0).sort((a, b) => b.seconds - a.seconds);
  const whole = spent.reduce((total, each) => total + each.seconds, 0);
  if (!whole) return;
  showTable(where, "operators", "Operators", ["operator", "in", "time", "share"],
    spent.map((each) => [each.name, each.place, milliseconds(each.seconds * 1000), meter(each.seconds / whole)]));
}

/** Show an error instead of what the page is about. */
export function fail(message) {
  const about = document.getElementById("about");
  about.textContent = message;
  about.className = "failed";
}

/** Show text next to the pointer; null hides it. */
export function tip(event, text) {
  const box = document.getElementById("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  box.style.left = `${Math.min(event.clientX + 14, innerWidth - 260)}px`;
  box.style.top = `${event.clientY + 14}px`;
}

/** Return a drawing context in CSS pixels, on a canvas with the resolution of the screen. */
export function context(canvas, height) {
  const width = canvas.clientWidth || 1190;
  const ratio = devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const draw = canvas.getContext("2d");
  draw.scale(ratio, ratio);
  draw.clearRect(0, 0, width, height);
  draw.font = "11px system-ui, sans-serif";
  const styles = getComputedStyle(document.documentElement);
  return { draw, width, height, ink: styles.getPropertyValue("--faint"), line: styles.getPropertyValue("--line") };
}

/** Return about `about` round numbers between `low` and `high`. */
export function ticks(low, high, about) {
  const raw = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw);
  const values = [];
  // Multiples of the step, since sums would not hit zero.
  for (let i = Math.ceil(low / step - 1e-6); i * step <= high + step / 1e6; i += 1) values.push(Number((i * step).toPrecision(10)));
  return values;
}
