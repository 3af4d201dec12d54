// A profile of workers: a flame graph, the hottest lines, and the workers.

import { OTHERS, context, el, meter, milliseconds, percent, rounded, showTable, showTiles, tip } from "./parts.js";

const ROW = 18, LEAST = 0.5, NS = 1e6; // nanoseconds of a millisecond
const ALL = "all workers";

/** Return the tree of the calls of a worker, or of all: each node has a name, its time in ms, and its calls by name. */
function treeOf(profile, wanted) {
  const root = { name: wanted, at: "", wall: 0, cpu: 0, free: 0, calls: new Map() };
  for (const [worker, { frames, stacks }] of Object.entries(profile.workers)) {
    if (wanted !== ALL && worker !== wanted) continue;
    for (const [numbers, , wall, cpu, free] of stacks) {
      let node = root;
      const add = () => { node.wall += wall / NS; node.cpu += cpu / NS; node.free += free / NS; };
      add();
      for (const number of numbers) {
        const [file, name, line] = frames[number];
        const at = `${profile.files[file] ?? file}:${line}`;
        const key = `${name} ${at}`;
        if (!node.calls.has(key)) node.calls.set(key, { name, at, wall: 0, cpu: 0, free: 0, calls: new Map() });
        node = node.calls.get(key);
        add();
      }
    }
  }
  return root;
}

function depthOf(node) {
  return 1 + Math.max(0, ...[...node.calls.values()].map(depthOf));
}

/** A color by the file, so that the frames of one library look alike. */
function colorOf(node) {
  const folder = node.at.split("/")[0];
  let sum = 0;
  for (const letter of folder) sum = (sum * 31 + letter.codePointAt(0)) % 997;
  return OTHERS[sum % OTHERS.length];
}

/** Draw a flame graph, its root at the top. Return the boxes: {node, x, y, width}. */
function draw(canvas, root) {
  const { draw: pen, width, ink } = context(canvas, depthOf(root) * ROW + 2);
  const boxes = [];
  const place = (node, x, room, row) => {
    boxes.push({ node, x, y: row * ROW, width: room });
    pen.fillStyle = row ? colorOf(node) : ink;
    pen.fillRect(x, row * ROW, Math.max(room - 1, LEAST), ROW - 1);
    if (room > 30) {
      pen.save();
      pen.beginPath();
      pen.rect(x, row * ROW, room - 4, ROW);
      pen.clip();
      pen.fillStyle = "#fff";
      pen.fillText(`${node.name} ${node.at}`, x + 4, row * ROW + 13);
      pen.restore();
    }
    let from = x;
    for (const call of [...node.calls.values()].sort((a, b) => b.wall - a.wall)) {
      const part = room * (call.wall / node.wall);
      if (part >= LEAST) place(call, from, part, row + 1);
      from += part;
    }
  };
  if (root.wall) place(root, 0, width, 0);
  return boxes;
}

export function showProfile(profile, name) {
  document.getElementById("about").textContent = name;
  const whole = treeOf(profile, ALL);
  const idle = Object.values(profile.workers).reduce((total, { idle_ns: ns }) => total + ns / NS, 0);
  showTiles([
    ["in functions of the program", milliseconds(whole.wall)],
    ["of that CPU time", percent(whole.cpu / (whole.wall || 1))],
    ["of the CPU time without the GIL", percent(whole.free / (whole.cpu || 1))],
    ["workers idle", milliseconds(idle)],
  ]);
  const box = document.getElementById("diagnosis");
  box.hidden = !profile.advice.length;
  box.replaceChildren(...profile.advice.map((text) => el("p", {}, text)));

  const charts = document.getElementById("charts");
  const choice = el("select", { id: "worker", "aria-label": "worker" },
    ...[ALL, ...Object.keys(profile.workers)].map((each) => el("option", {}, each)));
  const canvas = el("canvas", { class: "flames", role: "img", "aria-label": "flame graph" });
  charts.append(el("h2", {}, "Flame graph"), choice, canvas,
    el("p", { class: "hint" }, "click: the calls below a frame; click the first row: all"));
  let root = whole, boxes = [];
  const paint = () => { boxes = draw(canvas, root); };
  const find = (event) => boxes.find(({ x, y, width }) =>
    event.offsetX >= x && event.offsetX < x + width && event.offsetY >= y && event.offsetY < y + ROW)?.node;
  choice.addEventListener("change", () => { root = treeOf(profile, choice.value); paint(); });
  canvas.addEventListener("click", (event) => {
    const node = find(event);
    if (!node) return;
    root = node === root ? treeOf(profile, choice.value) : node;
    paint();
  });
  canvas.addEventListener("pointermove", (event) => {
    const node = find(event);
    tip(event, node && `${node.name} ${node.at}\n${milliseconds(node.wall)}, ${percent(node.wall / whole.wall)}\n` +
      `CPU ${percent(node.cpu / node.wall)}, without the GIL ${percent(node.free / node.wall)}`);
  });
  canvas.addEventListener("pointerleave", (event) => tip(event, null));
  paint();
  window.addEventListener("resize", paint);

  const tables = document.getElementById("tables");
  showTable(tables, "lines", "Hottest lines", ["share", "line", "function", "called from", "time", "waiting"],
    profile.lines.map(([file, line, fn, caller, share, wall, cpu]) =>
      [meter(share), `${file}:${line}`, fn, caller, milliseconds(wall * 1000), percent(1 - cpu / wall)]));
  showTable(tables, "workers", "Workers", ["worker", "time", "samples", "idle"],
    Object.entries(profile.workers).map(([worker, { stacks, idle_ns: ns }]) => [worker,
      milliseconds(treeOf(profile, worker).wall), rounded(stacks.reduce((sum, stack) => sum + stack[1], 0)), milliseconds(ns / NS)]));
}
