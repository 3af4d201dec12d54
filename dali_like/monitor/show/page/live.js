// Running pipelines: their rates, charts over the last minutes, and tables; one of them at a time, or all ranks compared.

import { chart, histogram } from "./charts.js";
import { COLORS, MIB, OTHERS, el, fail, get, meter, milliseconds, percent, rounded, showDiagnosis, showOperators, showTable,
  showTiles, size } from "./parts.js";

const PERIOD_MS = 500;
const MAX_HISTORY = 240; // two minutes
const STALE_S = 2;

/** Limit a share to the range that it can have: times are read one after another. */
const share = (value) => Math.min(Math.max(value, 0), 1);

/** Return the rates between two snapshots, per second. */
function rates(before, now) {
  const seconds = (now.at_ns - before.at_ns) / 1e9;
  return {
    at: now.at_ns / 1e9,
    samples: (now.samples - before.samples) / seconds,
    batches: (now.batches - before.batches) / seconds,
    wait: share((now.wait_s - before.wait_s) / seconds),
    busy: now.workers.map((worker, i) => share((worker.busy_s - (before.workers[i]?.busy_s ?? 0)) / seconds)),
    ready: now.ready,
    in_use: now.slots_in_use,
    slots: now.bytes / MIB,
    main: now.memory.main_bytes / MIB,
    workers: now.memory.worker_bytes / MIB,
    all: now.memory.bytes / MIB,
  };
}

/** The pipelines that have been seen: by id, the last snapshot and the history of rates. */
const known = new Map();
let chosen = null;
let isPaused = false;

function take(answer) {
  for (const now of answer.pipelines) {
    const old = known.get(now.id);
    if (!old) known.set(now.id, { now, history: [] });
    else if (now.at_ns === old.now.at_ns) old.now = now;
    else known.set(now.id, { now, history: [...old.history, rates(old.now, now)].slice(-MAX_HISTORY) });
  }
  const running = new Set(answer.pipelines.map((each) => each.id));
  for (const id of known.keys()) if (!running.has(id)) known.delete(id);
  if (!known.has(chosen)) chosen = known.keys().next().value ?? null;
}

function title(now) {
  const rank = now.num_ranks > 1 ? `, rank ${now.rank} of ${now.num_ranks}` : "";
  return `${now.name}, process ${now.pid}${rank}`;
}

/** Show the choice of a pipeline if there are several, and the button that pauses the page. */
function showControls() {
  const select = document.getElementById("choice");
  const ids = [...known.keys()];
  if (ids.join() !== [...select.options].map((option) => option.value).join()) {
    select.replaceChildren(...ids.map((id) => el("option", { value: id }, title(known.get(id).now))));
  }
  select.value = chosen;
  document.getElementById("controls").hidden = false;
  select.hidden = ids.length < 2;
}

export async function showLive() {
  const select = document.getElementById("choice");
  const button = document.getElementById("pause");
  let answer = null;
  const redraw = () => answer && known.has(chosen) && draw(answer.slowest_rank);
  select.addEventListener("change", () => {
    chosen = select.value;
    redraw();
  });
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Continue" : "Pause";
    document.body.dataset.paused = isPaused;
  });
  showPictureButtons();
  for (;;) {
    if (!isPaused) {
      try {
        answer = await get("live.json");
      } catch (error) {
        fail(error.message);
        return;
      }
      if (!isPaused) { // not paused meanwhile
        take(answer);
        if (known.size) showControls();
        redraw();
      }
    }
    await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
  }
}

/** Add the buttons that ask the chosen program for a picture of its next batch, or for the steps of one of its samples. */
function showPictureButtons() {
  const sample = el("input", { id: "sample", type: "number", min: 0, value: 0, "aria-label": "number of the sample" });
  const ask = el("button", { id: "ask" }, "Show a batch");
  const askSteps = el("button", { id: "ask-steps" }, "Steps of sample");
  document.getElementById("controls").append(ask, askSteps, sample);
  ask.addEventListener("click", () => show(ask, "pictures.json", "Batch"));
  askSteps.addEventListener("click", () => {
    const number = Math.max(Math.trunc(Number(sample.value)) || 0, 0);
    show(askSteps, `pictures.json?sample=${number}`, `Steps of sample ${number} of a batch`);
  });
}

/** Ask the chosen program for pictures, and show them below a title. */
async function show(button, path, title) {
  const box = document.getElementById("batch");
  const failed = (message) => box.replaceChildren(el("h2", {}, title), el("p", { class: "failed" }, message));
  button.disabled = true;
  try {
    const { png, steps, error } = (await get(path))[chosen] ?? { error: "the program has ended" };
    if (error) failed(error);
    else box.replaceChildren(el("h2", {}, title), png ? picture(png, "the samples of a batch")
      : el("div", { class: "steps" }, ...steps.map(step)));
  } catch (error) {
    failed(error.message);
  }
  button.disabled = false;
}

const picture = (png, alt) => el("img", { src: `data:image/png;base64,${png}`, alt });

/** Return the figure of a source or an operator: what it makes of the sample. */
function step({ name, outputs }) {
  const parts = outputs.map(({ png, about }) => el("div", {}, ...(png ? [picture(png, `the sample after ${name}`)] : []),
    el("p", { class: "hint" }, about)));
  return el("figure", {}, el("figcaption", {}, name), ...parts);
}

function draw(slowestRank) {
  const { now, history } = known.get(chosen);
  const rate = history.at(-1);
  document.title = `dali_like: ${now.name}`;
  document.getElementById("about").textContent = title(now) +
    (now.age_s > STALE_S ? `; no batch requested for ${rounded(now.age_s)} s` : "");
  showDiagnosis(now.recent.diagnosis, slowestRank);
  const tiles = [["batches", now.batches], ["restarts of workers", now.restarts], ["errors", now.errors]];
  if (rate) {
    tiles.unshift(["samples/s", rounded(rate.samples)], ["batches/s", rounded(rate.batches)],
      ["of the loop's time is waiting", percent(rate.wait)]);
  }
  showTiles([...tiles, ["of shared memory", size(now.bytes)], ["in all processes", size(now.memory.bytes)]]);
  drawCharts(now, history);
  drawTables(now, rate);
  document.body.dataset.state = history.length ? "drawn" : "begun";
}

function drawCharts(now, history) {
  const charts = document.getElementById("charts");
  charts.replaceChildren();
  if (history.length) {
    const at = history.map((entry) => entry.at - history.at(-1).at);
    const line = (name, color, key) => ({ name, color, values: history.map((entry) => entry[key]) });
    chart(charts, "Throughput, samples/s", at, [line("samples/s", OTHERS[0], "samples")]);
    chart(charts, "Waiting, share of the loop's time", at, [line("waiting", COLORS.wait, "wait")], { most: 1 });
    chart(charts, "Ring, batches", at,
      [line("slots in use", OTHERS[0], "in_use"), line("ready batches", COLORS.step, "ready")]);
    chart(charts, "Memory, MiB", at, [line("all processes", OTHERS[0], "all"), line("main process", COLORS.step, "main"),
      line("workers", COLORS.assemble, "workers"), line("shared, behind batches", OTHERS[4], "slots")]);
  }
  for (const calls of now.calls) {
    histogram(charts, `Time of a ${calls.unit} in ${calls.source}, number of calls so far`,
      calls.edges_s.map((edge) => edge * 1000), calls.counts, OTHERS[0]);
  }
}

function drawTables(now, rate) {
  const tables = document.getElementById("tables");
  tables.replaceChildren();
  if (known.size > 1) {
    const all = [...known.values()].map((each) => each.now).sort((a, b) => a.rank - b.rank);
    showTable(tables, "pipelines", "All pipelines", ["pipeline", "bottleneck", "waiting", "a batch", "for"],
      all.map((each) => [title(each), each.recent.diagnosis.bottleneck, meter(each.recent.wait_share),
        milliseconds(each.recent.wait_s * 1000), stagesText(each)]));
  }
  if (now.recent.stages.length) {
    showTable(tables, "stages", "Waiting by stage", ["stage", "share", "a batch"],
      now.recent.stages.map((stage) => [stage.name, meter(stage.share), milliseconds(stage.wait_s * 1000)]));
  }
  showOperators(tables, now.operators);
  showTable(tables, "workers", "Workers", ["worker", "process", "busy"],
    now.workers.map((worker, i) => [`worker ${worker.number}`, worker.pid, rate ? meter(rate.busy[i]) : ""]));
  showTable(tables, "slowest", "Slowest samples", ["took", "source", "sample", "epoch"],
    now.slowest.map((call) => [milliseconds(call.duration_s * 1000), call.source, call.sample, call.epoch]));
}

function stagesText(shown) {
  return shown.recent.stages.slice(0, 2).map((stage) => `${stage.name} ${percent(stage.share)}`).join(", ");
}
