// Charts over time, as step curves and stacked bars: each value holds until the next one. Histograms of durations.

import { context, el, milliseconds, rounded, ticks } from "./parts.js";

const HEIGHT = 130, LEFT = 58, RIGHT = 16, BOTTOM = 18, TOP = 8;

export function legend(entries) {
  return el("p", { class: "legend" }, ...entries.map(([name, color]) => {
    const mark = el("i");
    mark.style.background = color;
    return el("span", {}, mark, name);
  }));
}

/**
 * Append a chart to the element `where`.
 *
 * at: times in seconds. series: {name, color, values, stacked}. end: end of the time axis in seconds; default: last time.
 * most: upper end of the value axis; default: the largest value.
 */
export function chart(where, title, at, series, { end, most } = {}) {
  const canvas = el("canvas", { role: "img", "aria-label": title });
  where.append(el("h2", {}, title), legend(series.map(({ name, color }) => [name, color])), canvas);
  const paint = () => draw(canvas, at, series, end ?? at.at(-1), most);
  paint();
  if (end !== undefined) new ResizeObserver(paint).observe(canvas);
}

/**
 * Append a histogram of durations. Bins are of equal width on the screen, although they grow with the durations.
 *
 * edges: of the bins in milliseconds, one more than there are bins.
 */
export function histogram(where, title, edges, counts, color) {
  const canvas = el("canvas", { role: "img", "aria-label": title });
  where.append(el("h2", {}, title), canvas);
  const paint = () => drawHistogram(canvas, edges, counts, color);
  paint();
  new ResizeObserver(paint).observe(canvas);
}

/** Draw lines and numbers for values from 0 to `most`, and return the function from values to heights on the canvas. */
function drawValueAxis(pen, width, height, most, ink, line) {
  const y = (value) => height - BOTTOM - (value / most) * (height - BOTTOM - TOP);
  pen.fillStyle = ink;
  pen.strokeStyle = line;
  pen.textAlign = "right";
  for (const value of ticks(0, most, 3)) {
    pen.fillText(rounded(value), LEFT - 6, y(value) + 4);
    pen.beginPath();
    pen.moveTo(LEFT, y(value));
    pen.lineTo(width - RIGHT, y(value));
    pen.stroke();
  }
  pen.textAlign = "center";
  return y;
}

function drawHistogram(canvas, edges, counts, color) {
  const { draw: pen, width, height, ink, line } = context(canvas, HEIGHT);
  const most = Math.max(1, ...counts);
  const bin = Math.min((width - LEFT - RIGHT) / counts.length, 40);
  const y = drawValueAxis(pen, width, height, most, ink, line);
  const every = Math.max(1, Math.ceil(70 / bin));
  for (let i = 0; i < edges.length; i += every) pen.fillText(milliseconds(edges[i]), LEFT + i * bin, height - 5);
  pen.fillStyle = color;
  counts.forEach((count, i) => {
    if (count) pen.fillRect(LEFT + i * bin, Math.min(y(count), height - BOTTOM - 1), bin - 1, Math.max(height - BOTTOM - y(count), 1));
  });
}

function draw(canvas, at, series, end, given) {
  const { draw: pen, width, height, ink, line } = context(canvas, HEIGHT);
  const bases = series.map(() => at.map(() => 0));
  for (let i = 1; i < series.length; i += 1) {
    if (series[i].stacked) bases[i] = at.map((_, k) => bases[i - 1][k] + series[i - 1].values[k]);
  }
  const tops = series.map(({ values }, i) => values.map((value, k) => bases[i][k] + value));
  const most = given ?? Math.max(1e-9, ...tops.map((values) => values.reduce((a, b) => Math.max(a, b), 0)));
  const begin = end === at.at(-1) ? at[0] : 0;
  const x = (time) => LEFT + ((time - begin) / (end - begin || 1)) * (width - LEFT - RIGHT);
  const y = drawValueAxis(pen, width, height, most, ink, line);
  for (const time of ticks(begin, end, 10)) pen.fillText(`${rounded(time)} s`, x(time), height - 5);

  series.forEach(({ color, stacked }, i) => {
    pen.beginPath();
    at.forEach((time, k) => {
      const next = x(at[k + 1] ?? end);
      if (stacked) {
        pen.rect(x(time), y(tops[i][k]), Math.max(next - x(time), 0.5), y(bases[i][k]) - y(tops[i][k]));
      } else {
        pen.lineTo(x(time), y(tops[i][k]));
        pen.lineTo(next, y(tops[i][k]));
      }
    });
    pen.fillStyle = pen.strokeStyle = color;
    pen.lineWidth = 1.6;
    if (stacked) pen.fill();
    else pen.stroke();
  });
}
