// Build elements, format numbers, and fetch from the server. Text never becomes markup.

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
  return value < 1 ? `${rounded(value * 1000)} µs` : `${rounded(value)} ms`;
}

export function size(bytes) {
  return `${rounded(bytes / 2 ** 20)} MiB`;
}

export function showTiles(tiles) {
  document.getElementById("tiles").replaceChildren(
    ...tiles.map(([label, value]) => el("div", { class: "tile" }, el("b", {}, String(value)), el("span", {}, label))));
}

export function showTable(where, id, title, columns, rows) {
  const cells = (row) => row.map((cell) => el("td", typeof cell === "number" ? { class: "number" } : {},
    cell instanceof Node ? cell : String(cell)));
  where.append(el("h2", {}, title), el("table", { id },
    el("thead", {}, el("tr", {}, ...columns.map((column) => el("th", {}, column)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells(row))))));
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
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) values.push(Number(at.toPrecision(10)));
  return values;
}
