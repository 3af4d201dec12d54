// A recorded trace: timeline, charts and tables.

import { chart, histogram, legend } from "./charts.js";
import { COLORS, MIB, OTHERS, PART_OF, el, meter, milliseconds, percent, rounded, showDiagnosis, showOperators, showTable, showTiles,
  tip } from "./parts.js";
import { Timeline } from "./timeline.js";

const SLOWEST = 10;
const CALLBACK = "callback"; // as in dali_like/monitor/trace/trace_records.py

/** Return the tracks with their spans, and the counters of a trace file. Times are in milliseconds. */
function parse(trace) {
  const tracks = new Map();
  const counts = {};
  for (const event of trace.traceEvents) {
    if (event.name === "thread_name") {
      tracks.set(`${event.pid}/${event.tid}`, { name: event.args.name, group: event.pid, spans: [], marks: [] });
    } else if (event.ph === "X") {
      const begin = event.ts / 1000;
      const span = { name: event.name, begin, end: begin + event.dur / 1000, details: event.args };
      tracks.get(`${event.pid}/${event.tid}`).spans.push(span);
    } else if (event.ph === "i") {
      tracks.get(`${event.pid}/${event.tid}`)?.marks.push({ at: event.ts / 1000, name: event.name });
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

/** Return the tasks of a worker's track, without the parts of tasks. */
function tasksOf(track) {
  return track.spans.filter((span) => !(PART_OF in span.details));
}

/** Return the busy share of a worker's track. Its tasks do not overlap. */
function busyShare(track, duration) {
  return sum(tasksOf(track).map((span) => span.end - span.begin)) / duration;
}

/** Return the time of each operator, in workers and in threads. */
function operatorsOf(tracks) {
  const found = new Map();
  for (const track of tracks) {
    const place = track.group === 1 ? "workers" : "threads";
    for (const span of track.spans.filter((each) => PART_OF in each.details && each.name !== CALLBACK)) {
      const key = `${place} ${span.name}`;
      if (!found.has(key)) found.set(key, { name: span.name, place, seconds: 0 });
      found.get(key).seconds += (span.end - span.begin) / 1000;
    }
  }
  return [...found.values()];
}

/** Append a histogram of the mean time of a sample in each task. */
function showTaskTimes(where, made) {
  const times = made.map((task) => (task.end - task.begin) / numSamples(task)).filter((time) => time > 0);
  if (!times.length) return;
  const binOf = (time) => Math.floor(4 * Math.log2(time));
  const first = binOf(times.reduce((a, b) => Math.min(a, b)));
  const counts = Array(binOf(times.reduce((a, b) => Math.max(a, b))) - first + 1).fill(0);
  for (const time of times) counts[binOf(time) - first] += 1;
  const edges = Array.from({ length: counts.length + 1 }, (_, i) => 2 ** ((first + i) / 4));
  histogram(where, "Tasks by mean time of a sample", edges, counts, OTHERS[0]);
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

export function showTrace(trace, name) {
  const { tracks, counts, end } = parse(trace);
  const batches = batchesOf(tracks);
  const workers = tracks.filter((track) => track.group === 1);
  const tasks = workers.flatMap((track) => tasksOf(track).map((span) => ({ ...span, worker: track.name })));
  const made = tasks.filter((task) => !task.details.ended);
  const whole = sum(batches.map((batch) => batch.wait + batch.work + batch.step));
  const { lost_records: lost, dropped_records: dropped } = trace.otherData;
  document.getElementById("about").textContent =
    name + (lost || dropped ? ` (${lost} tasks were lost, ${dropped} records were dropped)` : "");

  showDiagnosis(trace.otherData.diagnosis);
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
    const mark = span && timeline.markOf(event.offsetY, span);
    tip(event, span && `${span.name}: ${milliseconds(span.end - span.begin)}\n${mark ? `${mark.name}\n` : ""}` +
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
  if (counts["shared memory"]) {
    chart(charts, "Shared memory, MiB", counts["shared memory"].map((count) => count.at / 1000), [
      { name: "memory behind batches", color: OTHERS[4], values: counts["shared memory"].map((count) => count.bytes / MIB) },
    ], { end: end / 1000 });
  }
  showTaskTimes(charts, made);

  const tables = document.getElementById("tables");
  showOperators(tables, operatorsOf(tracks));
  if (workers.length) {
    showTable(tables, "workers", "Workers", ["worker", "busy", "tasks"],
      workers.map((track) => [track.name, meter(busyShare(track, end)), tasksOf(track).length]));
  }
  const slowest = [...made].sort((a, b) => b.end - b.begin - (a.end - a.begin)).slice(0, SLOWEST);
  if (slowest.length) {
    showTable(tables, "slowest", "Slowest tasks", ["took", "source", "epoch", "iteration", "samples", "worker"],
      slowest.map((task) => [milliseconds(task.end - task.begin), task.name, task.details.epoch, task.details.iteration,
        task.details.samples, task.worker]));
  }
}
