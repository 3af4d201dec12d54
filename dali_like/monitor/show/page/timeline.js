// Timeline of a trace: one row per track, with marks at slow tasks. The wheel zooms, dragging moves.

import { PART_OF, context, rounded, ticks } from "./parts.js";

const ROW = 26, LEFT = 120, RIGHT = 24, AXIS = 22;

export class Timeline {
  constructor(canvas, tracks, colors, end) {
    Object.assign(this, { canvas, tracks, colors, end, from: 0, to: end });
    canvas.addEventListener("wheel", (event) => this.zoom(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => event.buttons && this.move(event.movementX));
    canvas.addEventListener("dblclick", () => this.show(0, this.end));
    new ResizeObserver(() => this.draw()).observe(canvas);
    this.draw();
  }

  show(from, to) {
    const span = Math.min(Math.max(to - from, 0.001), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - span);
    this.to = this.from + span;
    this.draw();
  }

  zoom(event) {
    event.preventDefault();
    const at = this.time(event.offsetX);
    const factor = 1.0015 ** event.deltaY;
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  move(pixels) {
    const shift = (pixels * (this.to - this.from)) / (this.width - LEFT - RIGHT);
    const span = this.to - this.from;
    const from = Math.min(Math.max(this.from - shift, 0), this.end - span);
    this.show(from, from + span);
  }

  time(x) {
    return this.from + ((x - LEFT) / (this.width - LEFT - RIGHT)) * (this.to - this.from);
  }

  x(time) {
    return LEFT + ((time - this.from) / (this.to - this.from || 1)) * (this.width - LEFT - RIGHT);
  }

  /** Return the span at a point of the canvas. Spans nest, so the shortest one wins. */
  at(x, y) {
    const track = this.tracks[Math.floor((y - AXIS) / ROW)];
    if (!track || x < LEFT) return null;
    const time = this.time(x);
    const slack = (this.to - this.from) / (this.width - LEFT - RIGHT);
    const hits = track.spans.filter((span) => span.begin - slack <= time && time <= span.end + slack);
    return hits.sort((a, b) => a.end - a.begin - (b.end - b.begin))[0] ?? null;
  }

  /** Return the mark of a slow task, given a point on its row and the task. */
  markOf(y, span) {
    return this.tracks[Math.floor((y - AXIS) / ROW)].marks.find((mark) => mark.at === span.begin);
  }

  draw() {
    const { draw: pen, width, height, ink, line } = context(this.canvas, AXIS + this.tracks.length * ROW + 4);
    this.width = width;
    pen.fillStyle = ink;
    pen.strokeStyle = line;
    pen.textAlign = "center";
    for (const time of ticks(this.from, this.to, 10)) {
      pen.fillText(time >= 1000 ? `${rounded(time / 1000)} s` : `${rounded(time)} ms`, this.x(time), 13);
      pen.beginPath();
      pen.moveTo(this.x(time), AXIS);
      pen.lineTo(this.x(time), height);
      pen.stroke();
    }
    this.tracks.forEach((track, row) => this.drawTrack(pen, track, AXIS + row * ROW, ink));
  }

  drawTrack(pen, track, top, ink) {
    const ends = new Map(); // by color: the last pixel drawn; narrower spans before it are invisible
    // Nested spans on top: of runs, and of tasks their parts.
    const level = (span) => (span.name === "run" ? 0 : PART_OF in span.details ? 2 : 1);
    for (const span of [0, 1, 2].flatMap((wanted) => track.spans.filter((each) => level(each) === wanted))) {
      if (span.end < this.from || span.begin > this.to) continue;
      const begin = Math.max(this.x(span.begin), LEFT);
      const end = Math.min(Math.max(this.x(span.end), begin + 0.6), this.width - RIGHT);
      if (end <= (ends.get(span.name) ?? 0)) continue;
      ends.set(span.name, end);
      pen.fillStyle = this.colors[span.name];
      pen.fillRect(begin, top + 3, end - begin, ROW - 6);
    }
    pen.fillStyle = ink;
    for (const { at } of track.marks) {
      if (at < this.from || at > this.to) continue;
      const x = this.x(at);
      pen.beginPath(); // a triangle that points at the beginning of a slow task
      pen.moveTo(x - 4, top - 2);
      pen.lineTo(x + 4, top - 2);
      pen.lineTo(x, top + 5);
      pen.fill();
    }
    pen.textAlign = "right";
    pen.fillText(track.name, LEFT - 8, top + ROW / 2 + 4, LEFT - 12);
  }
}
