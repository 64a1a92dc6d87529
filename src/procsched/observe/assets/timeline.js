// Timeline: runs on lanes, one for each worker, on a canvas; zoom, pan, hover. No library, no network.
//
//   const timeline = new Timeline(element, {lanes: ["worker 0", …], jobs: ["name", …]});
//   timeline.set({lane, job, start, end, late, bad, info})   arrays of equal length, by start; seconds
//   timeline.marks = [{at, lane, name}]; timeline.counts = [[at, executing, ready], …]
//   timeline.fit()
//
// Text from outside reaches the page by textContent and fillText alone.
"use strict";

const LANE = 30, BAR = 20, HEAD = 26, COUNTS = 64, GUTTER = 146;
const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]];

/** A length of time with three digits. */
function lengthOf(seconds) {
  const value = Math.abs(seconds);
  if (value >= 5400) return (seconds / 3600).toFixed(1) + " h";
  if (value >= 90) return (seconds / 60).toFixed(1) + " min";
  for (const [unit, name] of UNITS) if (value >= unit || unit === 1e-6) return (seconds / unit).toPrecision(3) * 1 + " " + name;
}

/** A colour that a job keeps: neighbours in the list are far apart on the wheel. */
function colourOf(number, style) {
  const hue = (number * 137.508 + 205) % 360;
  return `hsl(${hue.toFixed(0)} ${style.getPropertyValue("--saturation")} ${style.getPropertyValue("--lightness")})`;
}

class Timeline {
  constructor(element, {lanes, jobs, begun}) {
    this.element = element;
    this.lanes = lanes;
    this.jobs = jobs;
    this.begun = begun;               // seconds since the epoch
    this.hidden = new Set();          // numbers of jobs
    this.marks = [];
    this.counts = [];
    this.byLane = lanes.map(() => []);
    this.runs = {lane: [], job: [], start: [], end: [], late: [], bad: [], info: []};
    this.canvas = element.appendChild(document.createElement("canvas"));
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.tip = element.appendChild(document.createElement("div"));
    this.tip.className = "tip";
    this.from = 0;
    this.to = 1;
    this.cursor = -1;                 // the run that the keyboard is on
    this.describe = (index) => [];    // rows of the tip: [[name, value], …]
    this._listen();
    new ResizeObserver(() => this.draw()).observe(element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  set(runs) {
    this.runs = runs;
    this.byLane = this.lanes.map(() => []);
    for (let i = 0; i < runs.start.length; i++) this.byLane[runs.lane[i]]?.push(i);
    // The longest bar of a lane, lateness included, tells how far before the view something may begin.
    this.longest = this.byLane.map((list) => list.reduce((most, i) => Math.max(most, runs.end[i] - runs.start[i] + runs.late[i]), 0));
    this.draw();
  }

  /** All of it. */
  fit() {
    const {start, end} = this.runs;
    let last = 0, first = Infinity;
    for (let i = 0; i < start.length; i++) { if (end[i] > last) last = end[i]; if (start[i] < first) first = start[i]; }
    if (!start.length) first = 0;
    const margin = Math.max((last - first) * 0.02, 1e-6);
    this.show(first - margin, last + margin);
  }

  show(from, to) {
    const least = 2e-6;
    if (to - from < least) { const middle = (from + to) / 2; from = middle - least / 2; to = middle + least / 2; }
    this.from = from;
    this.to = to;
    this.draw();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(part) {
    const by = (this.to - this.from) * part;
    this.show(this.from + by, this.to + by);
  }

  /** To the next run that is bad, or that matches; -1 for the one before. */
  seek(direction, wanted = (i) => this.runs.bad[i]) {
    const {start, end} = this.runs, count = start.length;
    for (let step = 1; step <= count; step++) {
      const i = ((this.cursor < 0 ? (direction > 0 ? -1 : 0) : this.cursor) + direction * step + count * 2) % count;
      if (!wanted(i) || this.hidden.has(this.runs.job[i])) continue;
      this.cursor = i;
      const span = this.to - this.from;
      if (start[i] < this.from || end[i] > this.to) this.show(start[i] - span / 3, start[i] + span * 2 / 3);
      this.draw();
      this._tell(i, this._x(Math.max(start[i], this.from)), HEAD + this.runs.lane[i] * LANE);
      return;
    }
  }

  _x(time) { return this.gutter + (time - this.from) / (this.to - this.from) * (this.width - this.gutter); }
  _time(x) { return this.from + (x - this.gutter) / (this.width - this.gutter) * (this.to - this.from); }

  draw() {
    if (!this._asked) { this._asked = true; requestAnimationFrame(() => { this._asked = false; this._draw(); }); }
  }

  _draw() {
    const style = getComputedStyle(document.documentElement), scale = devicePixelRatio || 1;
    const look = (name) => style.getPropertyValue(name).trim();
    this.width = this.element.clientWidth;
    this.gutter = this.width < 560 ? 64 : GUTTER;
    const height = HEAD + this.lanes.length * LANE + COUNTS;
    if (this.canvas.width !== Math.round(this.width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(this.width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.height = height + "px";
    }
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, this.width, height);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this._axis(pen, look, height);
    const colours = this.jobs.map((_, number) => colourOf(number, style));
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, 0, this.width - this.gutter, height);
    pen.clip();
    for (let lane = 0; lane < this.lanes.length; lane++) this._lane(pen, lane, colours, look);
    this._marks(pen, look, height);
    this._counts(pen, look, height);
    pen.restore();
    pen.fillStyle = look("--ink");
    for (let lane = 0; lane < this.lanes.length; lane++) {
      const short = this.gutter < GUTTER ? this.lanes[lane].replace(/^worker /, "w").replace(/ \(.*/, "") : this.lanes[lane];
      pen.fillText(this._fitting(pen, short, this.gutter - 14), 10, HEAD + lane * LANE + LANE / 2);
    }
    const most = (column) => this.counts.reduce((found, count) => Math.max(found, count[column]), 0);
    for (const [word, column, y, colour] of [["executing", 1, 22, look("--focus")], ["waiting", 2, 42, look("--wait")]]) {
      pen.fillStyle = colour;
      pen.fillText(this.gutter < GUTTER ? word : `${word}, ≤ ${most(column)}`, 10, height - COUNTS + y, this.gutter - 14);
    }
  }

  _axis(pen, look, height) {
    const span = this.to - this.from, room = this.width - this.gutter;
    let step = 10 ** Math.floor(Math.log10(span / Math.max(2, room / 110)));
    for (const factor of [1, 2, 5, 10]) if (step * factor * room / span >= 80) { step *= factor; break; }
    if (step > 20) step = [30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400].find((s) => s >= step) || step;
    pen.strokeStyle = look("--line");
    pen.fillStyle = look("--faint");
    pen.lineWidth = 1;
    pen.beginPath();
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = Math.round(this._x(at)) + 0.5;
      if (x < this.gutter) continue;
      pen.moveTo(x, HEAD - 6);
      pen.lineTo(x, height);
      pen.fillText(step >= 1 ? this._clock(at) : lengthOf(Math.round(at / step) * step), x + 3, HEAD / 2 - 1);
    }
    for (let lane = 0; lane <= this.lanes.length; lane++) {
      pen.moveTo(0, HEAD + lane * LANE + 0.5);
      pen.lineTo(this.width, HEAD + lane * LANE + 0.5);
    }
    pen.stroke();
  }

  _clock(at) {
    return new Date((this.begun + at) * 1000).toLocaleTimeString([], {hour12: false});
  }

  _lane(pen, lane, colours, look) {
    const {job, start, end, late, bad} = this.runs, list = this.byLane[lane];
    const top = HEAD + lane * LANE + (LANE - BAR) / 2, begin = this.from - (this.longest?.[lane] || 0);
    let low = 0, high = list.length;
    while (low < high) { const middle = (low + high) >> 1; if (start[list[middle]] < begin) low = middle + 1; else high = middle; }
    const badColour = look("--bad"), lateColour = look("--late");
    let lastX = -1, lastJob = -1;
    const failures = [];
    for (let n = low; n < list.length; n++) {
      const i = list[n];
      if (start[i] - late[i] > this.to) { if (start[i] > this.to + (this.longest[lane] || 0)) break; continue; }
      if (this.hidden.has(job[i])) continue;
      const x = this._x(start[i]), width = Math.max(1, this._x(end[i]) - x);
      if (bad[i]) failures.push(i);
      if (x + width < lastX + 1 && job[i] === lastJob) continue;   // it would cover the same pixels
      if (late[i] > 0) {
        const due = this._x(start[i] - late[i]);
        if (x - due >= 1.5) { pen.fillStyle = lateColour; pen.fillRect(due, top + BAR - 6, x - due, 6); }
      }
      pen.fillStyle = colours[job[i]];
      pen.fillRect(x, top, width > 3 ? width - 0.6 : width, BAR);
      if (width > 44) {
        pen.fillStyle = "#10141a";
        const left = Math.max(x, this.gutter) + 5, room = x + width - left - 5;
        if (room > 24) pen.fillText(this._fitting(pen, this.jobs[job[i]], room), left, top + BAR / 2 + 0.5);
      }
      lastX = x + width;
      lastJob = job[i];
    }
    pen.strokeStyle = pen.fillStyle = badColour;
    pen.lineWidth = 2;
    let last = -9;
    for (const i of failures) {
      const x = this._x(start[i]), width = Math.max(2, this._x(end[i]) - x);
      if (x < last + 2) continue;
      last = x;
      if (width > 4) pen.strokeRect(x + 1, top + 1, width - 2, BAR - 2);
      pen.beginPath();                                            // a flag above it: not by colour alone
      pen.moveTo(x, top - 4); pen.lineTo(x + 6, top - 4); pen.lineTo(x, top + 3);
      pen.fill();
    }
    if (this.cursor >= 0 && this.runs.lane[this.cursor] === lane) {
      const x = this._x(start[this.cursor]), width = Math.max(4, this._x(end[this.cursor]) - x);
      pen.strokeStyle = look("--focus");
      pen.strokeRect(x - 2, top - 2, width + 4, BAR + 4);
    }
  }

  _fitting(pen, text, room) {
    if (pen.measureText(text).width <= room) return text;
    let length = Math.floor(text.length * room / pen.measureText(text).width);
    while (length > 0 && pen.measureText(text.slice(0, length) + "…").width > room) length--;
    return length > 0 ? text.slice(0, length) + "…" : "";
  }

  _marks(pen, look, height) {
    pen.strokeStyle = look("--bad");
    pen.lineWidth = 1;
    pen.setLineDash([3, 3]);
    pen.beginPath();
    for (const {at, lane, name} of this.marks) {
      if (at < this.from || at > this.to || !/Lost/.test(name)) continue;
      const x = Math.round(this._x(at)) + 0.5, top = lane < 0 ? HEAD : HEAD + lane * LANE;
      pen.moveTo(x, top);
      pen.lineTo(x, lane < 0 ? height - COUNTS : top + LANE);
    }
    pen.stroke();
    pen.setLineDash([]);
  }

  _counts(pen, look, height) {
    const top = height - COUNTS + 14, room = COUNTS - 26;
    for (const [column, colour] of [[1, look("--focus")], [2, look("--wait")]]) {
      let most = 1;
      for (const count of this.counts) most = Math.max(most, count[column]);
      pen.beginPath();
      let open = false, before = 0;
      for (const count of this.counts) {
        const x = this._x(count[0]), y = top + room - count[column] / most * room;
        if (open) { pen.lineTo(x, before); pen.lineTo(x, y); } else { pen.moveTo(x, y); open = true; }
        before = y;
      }
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      pen.stroke();
    }
  }

  _at(x, y) {
    const lane = Math.floor((y - HEAD) / LANE), list = this.byLane[lane];
    if (!list || x < this.gutter) return -1;
    const {start, end, job} = this.runs, time = this._time(x), slack = (this.to - this.from) / (this.width - this.gutter) * 3;
    let best = -1, nearest = slack;
    let low = 0, high = list.length;
    const begin = time - (this.longest[lane] || 0) - slack;
    while (low < high) { const middle = (low + high) >> 1; if (start[list[middle]] < begin) low = middle + 1; else high = middle; }
    for (let n = low; n < list.length && start[list[n]] <= time + slack; n++) {
      const i = list[n], distance = Math.max(start[i] - time, time - end[i], 0);
      if (distance <= nearest && !this.hidden.has(job[i])) { best = i; nearest = distance; }
    }
    return best;
  }

  _tell(i, x, y) {
    if (i < 0) { this.tip.style.display = "none"; return; }
    this.tip.replaceChildren();
    const title = this.tip.appendChild(document.createElement("b"));
    title.textContent = this.jobs[this.runs.job[i]];
    const table = this.tip.appendChild(document.createElement("table"));
    for (const [name, value, bad] of this.describe(i)) {
      const row = table.insertRow();
      row.insertCell().textContent = name;
      const cell = row.insertCell();
      cell.textContent = value;
      if (bad) cell.className = "bad";
    }
    this.tip.style.display = "block";
    const wide = this.tip.offsetWidth;
    this.tip.style.left = Math.max(4, Math.min(x + 14, this.width - wide - 6)) + "px";
    this.tip.style.top = y + LANE + 6 + "px";
  }

  _listen() {
    const canvas = this.canvas, pointers = new Map();
    let moved = false;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((event.deltaX || event.deltaY) / 900);
      else this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.004), this._time(event.offsetX));
    }, {passive: false});
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event.offsetX);
      moved = false;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointers.has(event.pointerId)) {
        this._tell(this._at(event.offsetX, event.offsetY), event.offsetX, event.offsetY - LANE / 2);
        return;
      }
      const before = [...pointers.values()], old = pointers.get(event.pointerId);
      pointers.set(event.pointerId, event.offsetX);
      const after = [...pointers.values()];
      if (Math.abs(event.offsetX - old) > 1) { moved = true; this._tell(-1); }
      if (after.length === 1) this.pan((old - event.offsetX) / (this.width - this.gutter));
      else if (after.length === 2) {
        const wide = Math.max(8, Math.abs(before[0] - before[1])), now = Math.max(8, Math.abs(after[0] - after[1]));
        this.zoom(wide / now, this._time((after[0] + after[1]) / 2));
      }
    });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => {
      pointers.delete(event.pointerId);
      if (kind === "pointerup" && !moved) {
        this.cursor = this._at(event.offsetX, event.offsetY);
        this._tell(this.cursor, event.offsetX, event.offsetY - LANE / 2);
        this.draw();
      }
    });
    canvas.addEventListener("pointerleave", () => { if (!pointers.size) this._tell(-1); });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.35, this._time(event.offsetX)));
    canvas.addEventListener("keydown", (event) => {
      const deeds = {
        ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15), "+": () => this.zoom(0.7), "=": () => this.zoom(0.7),
        "-": () => this.zoom(1.4), 0: () => this.fit(), Home: () => this.fit(), n: () => this.seek(1, () => true),
        p: () => this.seek(-1, () => true), f: () => this.seek(1), F: () => this.seek(-1),
        Escape: () => { this.cursor = -1; this._tell(-1); this.draw(); },
      };
      if (deeds[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); deeds[event.key](); }
    });
  }
}
