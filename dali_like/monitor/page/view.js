// Page of `dali-like view`: shows a trace or a running pipeline, as docs/tracing.md describes. No library, no build step.

import { chart, legend } from "./charts.js";
import { el, get, milliseconds, percent, rounded, showTable, showTiles, size, tip } from "./parts.js";
import { Timeline } from "./timeline.js";

const COLORS = { run: "#c9ced6", wait: "#d9534f", assemble: "#f0ad4e", step: "#5cb85c", build: "#8e7cc3" };
const OTHERS = ["#4a7fb5", "#48a9a6", "#7b9e3c", "#b58900", "#6c71c4", "#2f5d8a"];
const SLOWEST = 10;
const PERIOD_MS = 500;
const MAX_SNAPSHOTS = 240; // two minutes

// Traces

/** Return the tracks with their spans, and the counters of a trace file. Times are in milliseconds. */
function parse(trace) {
  const tracks = new Map();
  const counts = {};
  for (const event of trace.traceEvents) {
    if (event.name === "thread_name") {
      tracks.set(`${event.pid}/${event.tid}`, { name: event.args.name, group: event.pid, spans: [] });
    } else if (event.ph === "X") {
      const begin = event.ts / 1000;
      const span = { name: event.name, begin, end: begin + event.dur / 1000, details: event.args };
      tracks.get(`${event.pid}/${event.tid}`).spans.push(span);
    } else if (event.ph === "C") {
      (counts[event.name] ||= []).push({ at: event.ts / 1000, ...event.args });
    }
  }
  for (const track of tracks.values()) track.spans.sort((a, b) => a.begin - b.begin);
  return { tracks: [...tracks.values()], counts, end: (trace.otherData.end_ns - trace.otherData.begin_ns) / 1e6 };
}

/** Return the request time of each batch, and its durations: waiting, other work in the pipeline, and the program's step. */
function batchesOf(tracks) {
  const batches = [];
  for (const { spans } of tracks.filter((track) => track.group === 0)) {
    let batch = null;
    for (const span of spans) {
      const took = span.end - span.begin;
      if (span.name === "run") {
        batch = { at: span.begin, end: span.end, wait: 0, work: took, step: 0 };
        batches.push(batch);
      } else if (span.name === "wait" && batch && span.begin < batch.end) {
        batch.wait += took;
        batch.work -= took;
      } else if (span.name === "step" && batch) {
        batch.step = took;
      }
    }
  }
  return batches.sort((a, b) => a.at - b.at);
}

function numSamples(span) {
  const [first, last] = String(span.details.samples).split(" to ").map(Number);
  return last - first + 1;
}

/** Return the busy share of a worker's track. Its spans do not overlap. */
function busyShare(track, duration) {
  return track.spans.reduce((sum, span) => sum + span.end - span.begin, 0) / duration;
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function showTrace(trace, name) {
  const { tracks, counts, end } = parse(trace);
  const batches = batchesOf(tracks);
  const workers = tracks.filter((track) => track.group === 1);
  const tasks = workers.flatMap((track) => track.spans.map((span) => ({ ...span, worker: track.name })));
  const made = tasks.filter((task) => !task.details.ended);
  const whole = sum(batches.map((batch) => batch.wait + batch.work + batch.step));
  const { lost_records: lost, dropped_records: dropped } = trace.otherData;
  document.getElementById("about").textContent =
    name + (lost || dropped ? ` (${lost} tasks were lost, ${dropped} records were dropped)` : "");

  const tiles = [["seconds", rounded(end / 1000)], ["batches", batches.length]];
  if (whole) tiles.push(["of the loop's time is waiting", percent(sum(batches.map((batch) => batch.wait)) / whole)]);
  if (made.length) {
    tiles.push(["samples/s by workers", rounded(sum(made.map(numSamples)) / (end / 1000))]);
    tiles.push(["workers busy", percent(sum(workers.map((track) => busyShare(track, end))) / workers.length)]);
  }
  showTiles(tiles);

  const charts = document.getElementById("charts");
  const colors = { ...COLORS };
  for (const track of tracks) {
    for (const span of track.spans) {
      colors[span.name] ??= OTHERS[(Object.keys(colors).length - Object.keys(COLORS).length) % OTHERS.length];
    }
  }
  const canvas = el("canvas", { class: "timeline", role: "img", "aria-label": "timeline" });
  const seen = new Set(tracks.flatMap((track) => track.spans.map((span) => span.name)));
  charts.append(el("h2", {}, "Timeline"), legend(Object.entries(colors).filter(([key]) => seen.has(key))), canvas);
  charts.append(el("p", { class: "hint" }, "wheel: zoom, drag: move, double click: show all"));
  const timeline = new Timeline(canvas, tracks, colors, end);
  canvas.addEventListener("pointermove", (event) => {
    const span = timeline.at(event.offsetX, event.offsetY);
    tip(event, span && `${span.name}: ${milliseconds(span.end - span.begin)}\n` +
      Object.entries(span.details).map(([key, value]) => `${key}: ${value}`).join("\n"));
  });
  canvas.addEventListener("pointerleave", (event) => tip(event, null));

  const at = batches.map((batch) => batch.at / 1000);
  chart(charts, "Time of the program per batch, ms", at, [
    { name: "wait", color: COLORS.wait, values: batches.map((batch) => batch.wait), stacked: true },
    { name: "work for the pipeline", color: COLORS.run, values: batches.map((batch) => batch.work), stacked: true },
    { name: "step", color: COLORS.step, values: batches.map((batch) => batch.step), stacked: true },
  ], { end: end / 1000 });
  if (counts.batches) {
    chart(charts, "Ring, batches", counts.batches.map((count) => count.at / 1000), [
      { name: "slots in use", color: OTHERS[0], values: counts.batches.map((count) => count.slots_in_use) },
      { name: "ready batches", color: COLORS.step, values: counts.batches.map((count) => count.ready) },
    ], { end: end / 1000 });
  }

  const tables = document.getElementById("tables");
  if (workers.length) {
    showTable(tables, "workers", "Workers", ["worker", "busy", "tasks"],
      workers.map((track) => [track.name, meter(busyShare(track, end)), track.spans.length]));
  }
  const slowest = [...made].sort((a, b) => b.end - b.begin - (a.end - a.begin)).slice(0, SLOWEST);
  if (slowest.length) {
    showTable(tables, "slowest", "Slowest tasks", ["took", "source", "epoch", "iteration", "samples", "worker"],
      slowest.map((task) => [milliseconds(task.end - task.begin), task.name, task.details.epoch, task.details.iteration,
        task.details.samples, task.worker]));
  }
}

function meter(share) {
  return el("span", {}, el("meter", { value: Math.min(share, 1), min: 0, max: 1 }), ` ${percent(share)}`);
}

// Running pipelines

/** Return the rates between two snapshots, per second. */
function rates(before, now) {
  const seconds = (now.at_ns - before.at_ns) / 1e9;
  return {
    at: now.at_ns / 1e9,
    samples: (now.samples - before.samples) / seconds,
    batches: (now.batches - before.batches) / seconds,
    wait: Math.min((now.wait_s - before.wait_s) / seconds, 1),
    busy: now.workers.map((worker, i) => Math.max(worker.busy_s - (before.workers[i]?.busy_s ?? 0), 0) / seconds),
    ready: now.ready,
    in_use: now.slots_in_use,
  };
}

async function showLive() {
  const snapshots = [];
  const history = [];
  for (;;) {
    let now;
    try {
      now = await get("live.json");
    } catch (error) {
      fail(error.message);
      return;
    }
    const last = snapshots.at(-1);
    if (!last || now.at_ns !== last.at_ns) {
      snapshots.push(now);
      if (last) history.push(rates(last, now));
      if (snapshots.length > MAX_SNAPSHOTS) snapshots.shift();
      if (history.length > MAX_SNAPSHOTS) history.shift();
      drawLive(now, history);
      document.body.dataset.state = history.length ? "drawn" : "begun";
    }
    document.getElementById("about").textContent = `${now.name}, process ${now.pid}` +
      (now.age_s > 2 ? `; no batch requested for ${rounded(now.age_s)} s` : "");
    await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
  }
}

function drawLive(now, history) {
  const rate = history.at(-1);
  const tiles = [["batches", now.batches], ["restarts of workers", now.restarts], ["errors", now.errors]];
  if (rate) {
    tiles.unshift(["samples/s", rounded(rate.samples)], ["batches/s", rounded(rate.batches)],
      ["of the loop's time is waiting", percent(rate.wait)]);
  }
  showTiles([...tiles, ["of shared memory", size(now.bytes)]]);
  const charts = document.getElementById("charts");
  charts.replaceChildren();
  if (history.length) {
    const at = history.map((entry) => entry.at - history.at(-1).at);
    const line = (name, color, key) => ({ name, color, values: history.map((entry) => entry[key]) });
    chart(charts, "Throughput, samples/s", at, [line("samples/s", OTHERS[0], "samples")]);
    chart(charts, "Waiting, share of the loop's time", at, [line("waiting", COLORS.wait, "wait")], { most: 1 });
    chart(charts, "Ring, batches", at,
      [line("slots in use", OTHERS[0], "in_use"), line("ready batches", COLORS.step, "ready")]);
  }
  const tables = document.getElementById("tables");
  tables.replaceChildren();
  showTable(tables, "workers", "Workers", ["worker", "process", "busy"],
    now.workers.map((worker, i) => [`worker ${worker.number}`, worker.pid, rate ? meter(rate.busy[i]) : ""]));
  showTable(tables, "slowest", "Slowest samples", ["took", "source", "sample", "epoch"],
    now.slowest.map((call) => [milliseconds(call.duration_s * 1000), call.source, call.sample, call.epoch]));
}

// Start of the page

function fail(message) {
  const about = document.getElementById("about");
  about.textContent = message;
  about.className = "failed";
}

try {
  const about = await get("about.json");
  document.title = `dali_like: ${about.name}`;
  if (about.kind === "trace") {
    showTrace(await get("trace.json"), about.name);
    document.body.dataset.state = "drawn";
  } else {
    await showLive();
  }
} catch (error) {
  fail(error.message);
}
