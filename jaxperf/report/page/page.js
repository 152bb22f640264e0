"use strict";
// The timeline of the report. Everything else on the page is plain HTML.
// Names come from traces and may hold anything: they reach the page as text, never as markup.

const $ = (id) => document.getElementById(id);

// What a test, or a person with a console, sees of a fault.
addEventListener("error", (event) => { document.body.dataset.error = event.message; });
addEventListener("unhandledrejection", (event) => { document.body.dataset.error = String(event.reason); });

// ---------------------------------------------------------------- data

/** Columns of whole numbers from the packed text; see jaxperf/report/_columns.py. */
async function unpack(columns) {
  const packed = atob($("data").textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const plain = new Uint8Array(await new Response(stream).arrayBuffer());
  const result = {};
  let offset = 0;
  for (const [name, n] of columns) {
    const column = new Int32Array(n);
    for (let i = 0, at = offset; i < n; i++, at++) {
      const zigzag = plain[at] | plain[at + n] << 8 | plain[at + 2 * n] << 16 | plain[at + 3 * n] << 24;
      column[i] = (zigzag >>> 1) ^ -(zigzag & 1);
    }
    offset += 4 * n;
    result[name] = column;
  }
  return result;
}

function summed(column) {
  for (let i = 1; i < column.length; i++) column[i] += column[i - 1];
  return column;
}

/** First i in 0..n for which after(i) holds, where it holds from some i on. */
function firstWhere(n, after) {
  let low = 0, high = n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (after(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

const BINS = 8192; // of the whole window: what is drawn when tasks are too small to see

class Timeline {
  constructor(start, end, wait, lanes, classOf) {
    Object.assign(this, { start, end, wait, classOf });
    this.lanes = lanes.map((lane) => this.indexed(lane));
  }

  /** Order by start, and how far the tasks up to each one reach, so that a search finds long ones too. */
  indexed({ first, tasks: n }) {
    const { start, end } = this;
    let order = null;
    for (let i = first + 1; i < first + n && !order; i++) {
      if (start[i] < start[i - 1]) order = Int32Array.from({ length: n }, (_, k) => first + k).sort((a, b) => start[a] - start[b]);
    }
    const reach = new Float64Array(n);
    for (let i = 0, far = 0; i < n; i++) reach[i] = far = Math.max(far, end[order ? order[i] : first + i]);
    return { first, n, order, reach, bins: null };
  }

  /** Calls visit(task) for the tasks of a lane in view, in order of start. */
  each(lane, t0, t1, visit) {
    const { first, n, order, reach } = this.lanes[lane];
    for (let i = firstWhere(n, (k) => reach[k] >= t0); i < n; i++) {
      const task = order ? order[i] : first + i;
      if (this.start[task] > t1) break;
      if (this.end[task] >= t0) visit(task);
    }
  }

  eachWait(lane, t0, t1, visit) {
    const { task, begin, end, cause, offset } = this.wait;
    const low = offset[lane], n = offset[lane + 1] - low;
    for (let i = low + firstWhere(n, (k) => end[low + k] >= t0); i < low + n && begin[i] <= t1; i++) {
      visit(begin[i], end[i], task[i], cause[i]);
    }
  }

  /** Per bin of the window: the class with the most time, and the share of the bin that is busy. */
  bins(lane, windowUs, classes) {
    const index = this.lanes[lane];
    if (index.bins) return index.bins;
    const time = new Float32Array(BINS * classes), binUs = windowUs / BINS;
    for (let task = index.first; task < index.first + index.n; task++) {
      const { [task]: s } = this.start, { [task]: e } = this.end;
      for (let b = Math.floor(s / binUs); b < BINS && b * binUs < e; b++) {
        time[b * classes + this.classOf[task]] += Math.min(e, (b + 1) * binUs) - Math.max(s, b * binUs);
      }
    }
    const kind = new Uint8Array(BINS), share = new Float32Array(BINS);
    for (let b = 0; b < BINS; b++) {
      let most = 0, sum = 0;
      for (let c = 0; c < classes; c++) {
        const t = time[b * classes + c];
        sum += t;
        if (t > most) { most = t; kind[b] = c; }
      }
      share[b] = Math.min(1, sum / binUs);
    }
    return index.bins = { kind, share };
  }
}

function timelines(meta, columns) {
  const { label, gap, duration, back, why } = columns;
  const n = label.length, us = meta.quantum_us;
  const shift = summed(columns.shift), { stretch } = columns;
  const lines = {}, times = {
    replayed: [new Float64Array(n), new Float64Array(n)],
    measured: [new Float64Array(n), new Float64Array(n)],
  };
  const laneOf = new Int32Array(n), classOf = new Uint8Array(n), causeOf = new Int32Array(n);
  let first = 0;
  meta.lanes.forEach((lane, k) => { lane.first = first; laneOf.fill(k, first, first += lane.tasks); });
  for (let i = 0, end = 0; i < n; i++) {
    const start = end + gap[i];
    end = start + duration[i];
    times.replayed[0][i] = start * us;
    times.replayed[1][i] = end * us;
    times.measured[0][i] = (start + shift[i]) * us;
    times.measured[1][i] = (end + shift[i] + stretch[i]) * us;
    classOf[i] = meta.labels[label[i]][2];
    causeOf[i] = why[i] ? i - back[i] : -1;
  }
  for (const [name, [start, end]] of Object.entries(times)) {
    const task = summed(columns[name + "_wait_task"]), begin = summed(columns[name + "_wait_begin"]);
    const length = columns[name + "_wait_length"], toCause = columns[name + "_wait_back"];
    const wait = {
      task,
      begin: Float64Array.from(begin, (t) => t * us),
      end: Float64Array.from(begin, (t, i) => (t + length[i]) * us),
      cause: task.map((t, i) => toCause[i] ? t - toCause[i] : -1),
      offset: meta.lanes.map((lane) => firstWhere(task.length, (k) => task[k] >= lane.first)).concat(task.length),
    };
    lines[name] = new Timeline(start, end, wait, meta.lanes, classOf);
  }
  return { lines, laneOf, classOf, causeOf, label, why };
}

// ---------------------------------------------------------------- words

function timeText(us) {
  const size = Math.abs(us);
  const [scale, unit] = size >= 999950 ? [1e6, "s"] : size >= 999.95 ? [1e3, "ms"] : [1, "µs"];
  const value = us / scale;
  return value.toFixed(Math.abs(value) < 9.9995 ? 3 : Math.abs(value) < 99.995 ? 2 : 1) + " " + unit;
}

const CLASS_WORDS = {
  gemm: "matrix multiplication", moe: "expert routing", memcpy: "copies", host: "host work",
  launch: "launches", other: "other kernels",
};
const KIND_WORDS = {
  host_work: "host work", host_call: "call", host_return: "return of a blocking call", kernel: "kernel",
  memcpy: "copy", memset: "set", collective: "collective", arrival: "arrival at a collective",
};
const WHY_WORDS = {
  thread_order: "the task before it on its thread ended", hand_over: "another thread handed over to it",
  launch: "it was launched", stream_order: "the task before it on its stream ended",
  event_wait: "the event it waits for was reached", host_sync: "the device work it waits for ended",
  queue_full: "the launch queue had room again", rendezvous: "the last rank arrived",
};

/** A kernel's name without return type and template arguments, for a small box. */
const brief = (name) => name.replace(/^void\s+/, "").replace(/[<(].*$/s, "") || name;

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

// ---------------------------------------------------------------- the picture

class Picture {
  constructor(meta, data) {
    Object.assign(this, { meta, ...data });
    this.canvas = $("canvas");
    this.frame = $("frame");
    this.view = [0, meta.window_us];
    this.show = "both";
    this.selected = -1;
    this.marked = null; // tasks that stand out: a chain of causes, or what a search found
    this.collapsed = new Set();
    this.queued = false;
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    this.colours = {};
    for (const name of ["page", "panel", "sunk", "line", "ink", "soft", "accent"]) this.colours[name] = colour(name);
    this.classColours = this.meta.classes.map(colour);
    // Black or white, whichever reads better on the colour.
    this.classInk = this.classColours.map((hex) => {
      const [r, g, b] = [1, 3, 5].map((at) => (parseInt(hex.slice(at, at + 2), 16) / 255) ** 2.2);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000" : "#fff";
    });
    this.hatch = null;
  }

  hatching(g) {
    if (!this.hatch) {
      const size = 7 * devicePixelRatio;
      const tile = element("canvas", { width: size, height: size });
      const pen = tile.getContext("2d");
      pen.strokeStyle = this.colours.soft;
      pen.lineWidth = devicePixelRatio;
      for (const x of [-size, 0, size]) {
        pen.moveTo(x, size);
        pen.lineTo(x + size, 0);
      }
      pen.stroke();
      this.hatch = g.createPattern(tile, "repeat");
      this.hatch.setTransform(new DOMMatrix().scale(1 / devicePixelRatio));
    }
    return this.hatch;
  }

  /** Rows from top to bottom, each with the tracks of the timelines that are shown. */
  layOut() {
    const shown = this.show === "both" ? ["measured", "replayed"] : [this.show];
    const height = shown.length > 1 ? 15 : 19;
    this.rows = [];
    let y = 26, rank = null;
    this.meta.lanes.forEach((lane, index) => {
      if (lane.rank !== rank) {
        rank = lane.rank;
        this.rows.push({ rank, y, height: 22 });
        y += 24;
      }
      if (this.collapsed.has(rank)) return;
      const tracks = shown.map((name, k) => ({ name, line: this.lines[name], y: y + 2 + k * (height + 1), height }));
      this.rows.push({ lane: index, y, height: shown.length * (height + 1) + 6, tracks });
      y += shown.length * (height + 1) + 8;
    });
    this.fullHeight = y + 6;
    $("content").style.height = this.fullHeight + "px";
    // A small job needs no tall frame.
    this.frame.style.height = `min(${this.fullHeight + 2}px, 66vh)`;
    this.resize();
  }

  resize() {
    this.width = this.frame.clientWidth;
    this.height = Math.min(this.frame.clientHeight, this.fullHeight);
    this.gutter = this.width < 700 ? 112 : 196;
    for (const [canvas, height] of [[this.canvas, this.height], [$("overview"), 42]]) {
      canvas.width = Math.round(this.width * devicePixelRatio);
      canvas.height = Math.round(height * devicePixelRatio);
      canvas.style.height = height + "px";
    }
    this.overviewPicture = null;
    this.redraw();
  }

  redraw() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.draw();
    });
  }

  x(us) { return this.gutter + (us - this.view[0]) * this.scale; }
  time(x) { return this.view[0] + (x - this.gutter) / this.scale; }
  get scale() { return (this.width - this.gutter) / (this.view[1] - this.view[0]); }

  draw() {
    const g = this.canvas.getContext("2d"), { colours } = this;
    g.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    g.fillStyle = colours.panel;
    g.fillRect(0, 0, this.width, this.height);
    this.drawn = 0;
    const scroll = this.frame.scrollTop;
    g.save();
    g.translate(0, -scroll);
    const visible = this.rows.filter((row) => row.y + row.height > scroll && row.y < scroll + this.height);
    g.save();
    g.beginPath();
    g.rect(this.gutter, 0, this.width, this.fullHeight);
    g.clip();
    for (const row of visible) {
      if (row.tracks) for (const track of row.tracks) this.drawTrack(g, row.lane, track);
      else this.drawSteps(g, row);
    }
    if (this.marked) this.drawMarked(g, visible);
    this.drawSelected(g, visible);
    g.restore();
    for (const row of visible) this.drawName(g, row);
    g.restore();
    this.drawRuler(g);
    this.drawOverview();
    document.body.dataset.drawnSlices = this.drawn;
  }

  drawTrack(g, lane, track) {
    const { line, y, height } = track, { view, colours } = this;
    g.fillStyle = colours.sunk;
    g.fillRect(this.gutter, y, this.width - this.gutter, height);
    const brush = this.brush(g, y, height);
    if ((view[1] - view[0]) / this.meta.window_us * BINS > 2 * this.width && this.meta.lanes[lane].tasks > BINS) {
      this.drawBins(line.bins(lane, this.meta.window_us, this.meta.classes.length), brush);
    } else {
      line.each(lane, view[0], view[1], (task) => this.paint(brush, line, task));
    }
    brush.flush();
    line.eachWait(lane, view[0], view[1], (begin, end, task, cause) => {
      const x0 = Math.max(this.x(begin), this.gutter - 2), x1 = Math.min(this.x(end), this.width + 2);
      if (x1 - x0 < 1.5) return;
      g.fillStyle = this.hatching(g);
      g.globalAlpha = 0.55;
      g.fillRect(x0, y + 1, x1 - x0, height - 2);
      g.globalAlpha = 1;
      g.strokeStyle = colours.soft;
      g.lineWidth = 0.75;
      g.strokeRect(x0 + 0.5, y + 1.5, x1 - x0 - 1, height - 3);
      const words = this.waitWords(task, cause);
      if (x1 - x0 > words.length * 6 + 10) {
        g.font = "10.5px system-ui, sans-serif";
        const width = g.measureText(words).width;
        g.fillStyle = colours.sunk;
        g.fillRect(x0 + 3, y + 2, width + 6, height - 4);
        g.fillStyle = colours.ink;
        g.fillText(words, x0 + 6, y + height / 2 + 0.5);
      }
    });
  }

  paint(brush, line, task) {
    const kind = this.classOf[task];
    brush.add(this.x(line.start[task]), this.x(line.end[task]), kind, task);
  }

  /** Fills boxes; those narrower than a pixel are gathered, and the pixel takes the class with the most time. */
  brush(g, y, height) {
    const { classColours, classInk } = this, left = this.gutter - 2, right = this.width + 2;
    const share = new Float64Array(classColours.length);
    let pixel = NaN, colour = -1;
    g.font = "10.5px system-ui, sans-serif";
    g.textBaseline = "middle";
    const fill = (x0, x1, kind) => {
      if (kind !== colour) { g.fillStyle = classColours[kind]; colour = kind; }
      g.fillRect(x0, y, x1 - x0, height);
      this.drawn++;
    };
    const flush = () => {
      let most = 0, sum = 0, kind = -1;
      for (let c = 0; c < share.length; c++) {
        sum += share[c];
        if (share[c] > most) { most = share[c]; kind = c; }
        share[c] = 0;
      }
      if (kind >= 0) {
        g.globalAlpha = Math.min(1, Math.max(0.35, sum));
        fill(pixel, pixel + 1, kind);
        g.globalAlpha = 1;
      }
      pixel = NaN;
    };
    const add = (x0, x1, kind, task) => {
      if (x1 - x0 < 1) {
        const at = Math.floor(x0);
        if (at !== pixel) { flush(); pixel = at; }
        share[kind] += Math.max(x1 - x0, 1e-9);
        return;
      }
      flush();
      x0 = Math.max(x0, left);
      x1 = Math.min(x1, right);
      fill(x0, x1 - (x1 - x0 > 3 ? 0.75 : 0), kind);
      if (x1 - x0 > 26 && task !== undefined) {
        const room = Math.floor((x1 - x0 - 6) / 5.9);
        const name = brief(this.meta.names[this.meta.labels[this.label[task]][0]]);
        g.fillStyle = classInk[kind];
        g.fillText(name.length > room ? name.slice(0, room - 1) + "…" : name, x0 + 4, y + height / 2 + 0.5, x1 - x0 - 6);
        colour = -1;
      }
    };
    return { add, flush };
  }

  drawBins({ kind, share }, brush) {
    const binUs = this.meta.window_us / BINS;
    const last = Math.min(BINS, Math.ceil(this.view[1] / binUs));
    for (let b = Math.max(0, Math.floor(this.view[0] / binUs)); b < last; b++) {
      const x = this.x(b * binUs);
      if (share[b] > 0) brush.add(x, x + share[b] * binUs * this.scale, kind[b]);
    }
  }

  /** The marked tasks in full colour over the others, which fade; with the way from cause to effect. */
  drawMarked(g, visible) {
    g.globalAlpha = 0.72;
    g.fillStyle = this.colours.panel;
    for (const row of visible) if (row.tracks) g.fillRect(this.gutter, row.y, this.width, row.height);
    g.globalAlpha = 1;
    for (const row of visible) {
      if (!row.tracks) continue;
      const tasks = this.marked.byLane[row.lane] || [];
      for (const { line, y, height } of row.tracks) {
        const brush = this.brush(g, y, height);
        for (const task of tasks) {
          if (line.end[task] >= this.view[0] && line.start[task] <= this.view[1]) this.paint(brush, line, task);
        }
        brush.flush();
      }
    }
    if (this.marked.chain) this.drawWay(g);
  }

  drawWay(g) {
    const middle = [];
    for (const row of this.rows) {
      if (row.tracks) {
        const track = row.tracks[row.tracks.length - 1];
        middle[row.lane] = track.y + track.height / 2;
      }
    }
    const line = this.lines[this.show === "measured" ? "measured" : "replayed"];
    g.strokeStyle = this.colours.ink;
    g.lineWidth = 1.25;
    g.beginPath();
    let last = "";
    for (const task of this.marked.chain) {
      const cause = this.causeOf[task];
      if (cause < 0 || this.laneOf[cause] === this.laneOf[task]) continue;
      const y0 = middle[this.laneOf[cause]], y1 = middle[this.laneOf[task]];
      const x0 = this.x(Math.min(line.end[cause], line.start[task])), x1 = this.x(line.start[task]);
      if (y0 === undefined || y1 === undefined || x1 < this.gutter || x0 > this.width) continue;
      const arrow = `${Math.round(x1)} ${y0} ${y1}`; // one of those that fall on each other is enough
      if (arrow === last) continue;
      last = arrow;
      g.moveTo(x0, y0);
      g.lineTo(x1, y1);
      const up = y1 < y0 ? 1 : -1;
      g.moveTo(x1 - 3, y1 + 4 * up);
      g.lineTo(x1, y1);
      g.lineTo(x1 + 3, y1 + 4 * up);
    }
    g.stroke();
  }

  drawSelected(g, visible) {
    if (this.selected < 0) return;
    const row = visible.find((row) => row.lane === this.laneOf[this.selected]);
    if (!row) return;
    g.strokeStyle = this.colours.ink;
    g.lineWidth = 2;
    for (const { line, y, height } of row.tracks) {
      const x0 = this.x(line.start[this.selected]), x1 = this.x(line.end[this.selected]);
      g.strokeRect(x0 - 1, y - 1, Math.max(3, x1 - x0 + 1), height + 2);
    }
  }

  drawSteps(g, row) {
    const key = this.show === "measured" ? "measured" : "replayed";
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    for (const step of this.meta.steps) {
      if (step.rank !== row.rank) continue;
      const x0 = this.x(step[key][0]), x1 = this.x(step[key][1]);
      if (x1 < this.gutter || x0 > this.width || x1 - x0 < 2) continue;
      g.fillStyle = this.colours.line;
      g.fillRect(x0, row.y + 4, x1 - x0 - 1, 15);
      const left = Math.max(x0, this.gutter) + 6, room = Math.min(x1, this.width) - left - 6;
      if (room > 40) {
        g.fillStyle = this.colours.ink;
        g.fillText(`${step.name} · ${timeText(step[key][1] - step[key][0])}`, left, row.y + 12, room);
      }
    }
  }

  drawName(g, row) {
    const { colours, gutter } = this;
    g.textBaseline = "middle";
    g.fillStyle = colours.panel;
    g.fillRect(0, row.y, gutter, row.height + 2);
    g.fillStyle = colours.ink;
    if (!row.tracks) {
      g.font = "600 12px system-ui, sans-serif";
      g.fillText(`${this.collapsed.has(row.rank) ? "▸" : "▾"} rank ${row.rank}`, 8, row.y + 12);
      return;
    }
    const lane = this.meta.lanes[row.lane], narrow = gutter < 150;
    const tag = narrow || row.tracks.length < 2 ? 4 : 58;
    g.font = "11.5px system-ui, sans-serif";
    g.fillText(fitted(g, lane.name, gutter - 20 - tag), 20, row.y + row.height / 2);
    if (tag > 4) {
      g.font = "10px system-ui, sans-serif";
      g.fillStyle = colours.soft;
      g.textAlign = "right";
      for (const { name, y, height } of row.tracks) g.fillText(name, gutter - 6, y + height / 2 + 0.5);
      g.textAlign = "left";
    }
  }

  drawRuler(g) {
    const { colours, view, gutter } = this, span = view[1] - view[0];
    g.fillStyle = colours.panel;
    g.fillRect(0, 0, this.width, 24);
    g.fillStyle = colours.line;
    g.fillRect(0, 23, this.width, 1);
    g.fillRect(gutter - 1, 0, 1, this.height);
    const rough = span / Math.max(2, (this.width - gutter) / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const tick = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    const [unit, scale] = tick >= 1e5 ? ["s", 1e6] : tick >= 100 ? ["ms", 1e3] : ["µs", 1];
    const digits = Math.max(0, -Math.floor(Math.log10(tick / scale) + 1e-9));
    for (let t = Math.ceil(view[0] / tick) * tick; t <= view[1]; t += tick) {
      g.fillStyle = colours.line;
      g.fillRect(this.x(t), 17, 1, 6);
      g.fillStyle = colours.soft;
      g.fillText(`${(t / scale).toFixed(digits)} ${unit}`, this.x(t) + 4, 12);
    }
    g.fillStyle = colours.soft;
    g.fillText(gutter > 150 ? `in view: ${timeText(span)}` : timeText(span), 8, 12);
  }

  /** How busy the devices are over the whole window, and which part of it is in view. */
  drawOverview() {
    const canvas = $("overview"), g = canvas.getContext("2d"), height = 42;
    const { colours, gutter } = this, plot = this.width - gutter;
    if (!this.overviewPicture) {
      g.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
      g.fillStyle = colours.panel;
      g.fillRect(0, 0, this.width, height);
      const streams = this.meta.lanes.flatMap((lane, k) => lane.stream ? [k] : []);
      const lanes = streams.length ? streams : this.meta.lanes.map((_, k) => k);
      const classes = this.meta.classes.length, line = this.lines.replayed, share = new Float64Array(classes);
      const bins = lanes.map((lane) => line.bins(lane, this.meta.window_us, classes));
      const ranks = new Set(lanes.map((k) => this.meta.lanes[k].rank)).size;
      for (let x = 0; x < plot; x++) {
        share.fill(0);
        const low = Math.floor(x / plot * BINS), high = Math.max(low + 1, Math.floor((x + 1) / plot * BINS));
        for (const { kind, share: busy } of bins) for (let b = low; b < high; b++) share[kind[b]] += busy[b] / (high - low);
        let y = height;
        for (let c = 0; c < classes; c++) {
          if (!share[c]) continue;
          const h = share[c] / ranks / 2 * height; // two busy streams of a rank fill it
          g.fillStyle = this.classColours[c];
          g.fillRect(gutter + x, y -= h, 1, h);
        }
      }
      g.fillStyle = colours.soft;
      g.font = "11px system-ui, sans-serif";
      g.textBaseline = "middle";
      g.fillText(gutter > 150 ? "devices, whole window" : "devices", 8, height / 2);
      this.overviewPicture = g.getImageData(0, 0, canvas.width, canvas.height);
    }
    g.putImageData(this.overviewPicture, 0, 0);
    const [x0, x1] = this.view.map((t) => gutter + t / this.meta.window_us * plot);
    g.fillStyle = colours.panel;
    g.globalAlpha = 0.65;
    g.fillRect(gutter, 0, x0 - gutter, height);
    g.fillRect(x1, 0, this.width - x1, height);
    g.globalAlpha = 1;
    g.strokeStyle = colours.accent;
    g.lineWidth = 2;
    g.strokeRect(x0 + 1, 1, Math.max(2, x1 - x0 - 2), height - 2);
  }

  // ------------------------------------------------------------ moving

  look(t0, t1) {
    const whole = this.meta.window_us, span = Math.min(whole, Math.max(t1 - t0, whole / 1e7, 0.01));
    const start = Math.min(Math.max(0, (t0 + t1 - span) / 2), whole - span);
    this.view = [start, start + span];
    this.redraw();
    clearTimeout(this.linking);
    this.linking = setTimeout(() => this.link(), 250);
  }

  /** The address says what is in view, so that it can be sent to a colleague. */
  link() {
    const [t0, t1] = this.view;
    const whole = t1 - t0 >= this.meta.window_us && this.selected < 0;
    const parts = [t0.toFixed(3), t1.toFixed(3)].concat(this.selected < 0 ? [] : [this.selected]);
    try {
      history.replaceState(null, "", whole ? "#" : "#" + parts.join(","));
    } catch { /* a page inside another one may not change its address */ }
  }

  follow() {
    const [t0, t1, task] = location.hash.slice(1).split(",").map(Number);
    if (task >= 0 && task < this.label.length) this.select(task);
    if (t1 > t0) this.look(t0, t1);
  }

  zoom(factor, x = (this.gutter + this.width) / 2) {
    const at = this.time(Math.max(x, this.gutter));
    this.look(at - (at - this.view[0]) * factor, at + (this.view[1] - at) * factor);
  }

  move(us) {
    const span = this.view[1] - this.view[0];
    const start = Math.min(Math.max(0, this.view[0] + us), this.meta.window_us - span);
    this.look(start, start + span);
  }

  reveal(task, close = false) {
    const line = this.lines[this.show === "measured" ? "measured" : "replayed"];
    const middle = (line.start[task] + line.end[task]) / 2;
    const span = close ? Math.max(8 * (line.end[task] - line.start[task]), 1) : this.view[1] - this.view[0];
    if (close || middle < this.view[0] || middle > this.view[1]) this.look(middle - span / 2, middle + span / 2);
    const rank = this.meta.lanes[this.laneOf[task]].rank;
    if (this.collapsed.delete(rank)) this.layOut();
    const row = this.rows.find((row) => row.lane === this.laneOf[task]);
    const top = this.frame.scrollTop;
    if (row.y < top + 26) this.frame.scrollTop = row.y - 50;
    else if (row.y + row.height > top + this.height) this.frame.scrollTop = row.y + row.height - this.height + 12;
  }

  // ------------------------------------------------------------ asking

  /** What lies under a point: a task, or else a wait. */
  pick(x, y) {
    y += this.frame.scrollTop;
    const row = this.rows.find((row) => y >= row.y && y < row.y + row.height);
    if (!row || !row.tracks) return row ? { row } : null;
    const track = row.tracks.find((track) => y < track.y + track.height) || row.tracks[row.tracks.length - 1];
    if (x < this.gutter) return { row };
    const t = this.time(x), near = 3 / this.scale, { line } = track;
    let task = -1, best = near;
    line.each(row.lane, t - near, t + near, (k) => {
      const away = Math.max(line.start[k] - t, t - line.end[k], 0);
      if (away < best || (away === best && away === 0)) { best = away; task = k; }
    });
    const found = { row, track, task, wait: null };
    if (task < 0 || best > 0) {
      line.eachWait(row.lane, t, t, (begin, end, of, cause) => {
        if (begin <= t && t <= end) Object.assign(found, { task: of, wait: { begin, end, cause } });
      });
    }
    return found.task < 0 ? { row } : found;
  }

  nameOf(task) { return this.meta.names[this.meta.labels[this.label[task]][0]]; }
  kindOf(task) { return this.meta.kinds[this.meta.labels[this.label[task]][1]]; }
  whereIs(task) {
    const lane = this.meta.lanes[this.laneOf[task]];
    return `rank ${lane.rank}, ${lane.name}`;
  }
  classWords(task) {
    const name = this.meta.classes[this.classOf[task]];
    return CLASS_WORDS[name] || name;
  }

  waitWords(task, cause) {
    if (cause < 0) return "waits";
    const lane = this.meta.lanes[this.laneOf[cause]];
    return "waits for " + (lane.rank === this.meta.lanes[this.laneOf[task]].rank ? lane.name : `rank ${lane.rank}`);
  }

  /** What a task is, when it ran, and why it started when it did. */
  describe(task) {
    const { measured, replayed } = this.lines;
    const row = (words, line) => element("tr", {}, element("th", { textContent: words }),
      element("td", { textContent: timeText(line.start[task]) }), element("td", { textContent: timeText(line.end[task] - line.start[task]) }));
    const table = element("table", {}, element("tbody", {},
      element("tr", {}, ...["", "start", "duration"].map((textContent) => element("th", { textContent }))),
      row("measured", measured), row("replayed", replayed)));
    const cause = this.causeOf[task];
    const why = cause < 0
      ? "Starts when it was recorded: nothing in the trace bounds it."
      : `Starts when ${WHY_WORDS[this.meta.dependencies[this.why[task] - 1]]}: ${brief(this.nameOf(cause))} (${this.whereIs(cause)}).`;
    const what = [...new Set([this.classWords(task), KIND_WORDS[this.kindOf(task)], this.whereIs(task)])].join(" · ");
    return { name: this.nameOf(task), what, table, why };
  }

  tip(found, x, y) {
    const tip = $("tip");
    tip.hidden = !found || found.task === undefined;
    if (tip.hidden) return;
    const { name, what, table, why } = this.describe(found.task);
    const wait = found.wait && element("p", {}, element("strong", {
      textContent: `${this.waitWords(found.task, found.wait.cause)}: ${timeText(found.wait.end - found.wait.begin)}`,
    }));
    tip.replaceChildren(wait || "", element("b", { textContent: name }), element("p", { className: "soft", textContent: what }), table, element("p", { textContent: why }));
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - width - 8)) + "px";
    tip.style.top = (y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18) + "px";
  }

  select(task) {
    this.selected = task;
    if (task < 0) {
      this.marked = null;
      $("details").replaceChildren();
    } else {
      const chain = [];
      for (let at = task; at >= 0 && chain.length < this.label.length; at = this.causeOf[at]) chain.push(at);
      this.mark(chain.reverse(), true);
      this.explain(task, chain);
    }
    $("critical").setAttribute("aria-pressed", task >= 0 && task === this.lastTask());
    this.look(...this.view);
  }

  mark(tasks, isChain = false) {
    const byLane = {};
    for (const task of tasks) (byLane[this.laneOf[task]] ||= []).push(task);
    this.marked = { byLane, chain: isChain ? tasks : null };
  }

  explain(task, chain) {
    const { replayed } = this.lines, time = new Float64Array(this.meta.classes.length);
    for (const k of chain) time[this.classOf[k]] += replayed.end[k] - replayed.start[k];
    const whole = replayed.end[task] - replayed.start[chain[0]];
    const order = [...time.keys()].filter((c) => time[c] > 0).sort((a, b) => time[b] - time[a]);
    const part = (c) => element("span", { title: `${this.meta.classes[c]}: ${timeText(time[c])}`, style: `width:${100 * time[c] / whole}%;background:${this.classColours[c]}` });
    const words = order.slice(0, 4).map((c) => `${CLASS_WORDS[this.meta.classes[c]] || this.meta.classes[c]} ${(100 * time[c] / whole).toFixed(0)} %`);
    const { name, what, table, why } = this.describe(task);
    const cause = this.causeOf[task];
    $("details").replaceChildren(
      element("h3", { textContent: name }),
      element("div", { className: "row" }, element("span", { className: "soft", textContent: what }),
        element("button", { type: "button", textContent: "Zoom to it", onclick: () => this.reveal(task, true) }),
        cause < 0 ? null : element("button", { type: "button", textContent: "Go to its cause", onclick: () => this.goTo(cause) }),
        element("button", { type: "button", textContent: "Clear", onclick: () => this.select(-1) })),
      element("div", { className: "row" }, table, element("p", { textContent: why })),
      element("p", { textContent: `Its chain of causes: ${chain.length.toLocaleString("en")} tasks over ${timeText(whole)} back to the start; ${words.join(", ")}; the rest is latency.` }),
      element("div", { className: "bar" }, ...order.map(part)),
    );
  }

  goTo(task) {
    this.select(task);
    this.reveal(task);
  }

  /** The task that ends last: its chain of causes is the critical path. */
  lastTask() {
    if (this.last === undefined) {
      const { end } = this.lines.replayed;
      this.last = end.reduce((best, time, k) => time > end[best] ? k : best, 0);
    }
    return this.last;
  }
}

// ---------------------------------------------------------------- hands

function fitted(g, text, room) {
  if (g.measureText(text).width <= room) return text;
  let n = text.length;
  while (n > 1 && g.measureText(text.slice(0, n) + "…").width > room) n--;
  return text.slice(0, n) + "…";
}

function listenToPointer(picture) {
  const { canvas, frame } = picture;
  let from = null, hint = 0;
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = point(event);
    from = { x, y, view: picture.view, scroll: frame.scrollTop, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = point(event);
    if (!from) return picture.tip(picture.pick(x, y), event.clientX, event.clientY);
    if (Math.hypot(x - from.x, y - from.y) > 4) from.moved = true;
    if (!from.moved) return;
    canvas.classList.add("dragging");
    $("tip").hidden = true;
    picture.move(from.view[0] - (x - from.x) / picture.scale - picture.view[0]);
    frame.scrollTop = from.scroll - (y - from.y);
  });
  canvas.addEventListener("pointerup", (event) => {
    canvas.classList.remove("dragging");
    if (from && !from.moved) {
      const found = picture.pick(...point(event));
      if (found && found.row.rank !== undefined) {
        const { rank } = found.row;
        if (!picture.collapsed.delete(rank)) picture.collapsed.add(rank);
        picture.layOut();
      } else {
        picture.select(found && found.task !== undefined ? found.task : -1);
      }
    }
    from = null;
  });
  canvas.addEventListener("pointercancel", () => { from = null; });
  canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  canvas.addEventListener("wheel", (event) => {
    const [x] = point(event);
    // A wheel that only passes by scrolls the page: a picture that traps it is a nuisance.
    if (!event.ctrlKey && !event.metaKey && (document.activeElement !== canvas || x < picture.gutter)) {
      if (x >= picture.gutter && Math.abs(event.deltaY) > Math.abs(event.deltaX)) {
        $("hint").hidden = false;
        clearTimeout(hint);
        hint = setTimeout(() => { $("hint").hidden = true; }, 1200);
      }
      return;
    }
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) picture.move((event.deltaX || event.deltaY) / picture.scale);
    else picture.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.002))), x);
  }, { passive: false });
  frame.addEventListener("scroll", () => picture.redraw());
  const overview = $("overview");
  const jump = (event) => {
    if (!event.buttons) return;
    const plot = picture.width - picture.gutter, span = picture.view[1] - picture.view[0];
    const t = (event.clientX - overview.getBoundingClientRect().left - picture.gutter) / plot * picture.meta.window_us;
    picture.move(t - span / 2 - picture.view[0]);
  };
  overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); jump(event); });
  overview.addEventListener("pointermove", jump);
}

function listenToKeys(picture) {
  const step = (by) => {
    const at = picture.selected;
    if (at < 0) {
      let first = -1;
      for (const row of picture.rows) {
        if (row.tracks && first < 0) row.tracks[0].line.each(row.lane, ...picture.view, (task) => { if (first < 0) first = task; });
      }
      if (first >= 0) picture.goTo(first);
    } else if (picture.laneOf[at + by] === picture.laneOf[at]) {
      picture.goTo(at + by);
    }
  };
  const span = () => picture.view[1] - picture.view[0];
  const keys = {
    w: () => picture.zoom(1 / 1.5), s: () => picture.zoom(1.5),
    a: () => picture.move(-0.2 * span()), d: () => picture.move(0.2 * span()),
    ArrowLeft: () => picture.move(-0.2 * span()), ArrowRight: () => picture.move(0.2 * span()),
    "+": () => picture.zoom(1 / 1.5), "-": () => picture.zoom(1.5),
    ArrowUp: () => { picture.frame.scrollTop -= 60; }, ArrowDown: () => { picture.frame.scrollTop += 60; },
    0: () => picture.look(0, picture.meta.window_us), Escape: () => picture.select(-1),
    ",": () => step(-1), ".": () => step(1),
    c: () => { if (picture.causeOf[picture.selected] >= 0) picture.goTo(picture.causeOf[picture.selected]); },
    f: () => { if (picture.selected >= 0) picture.reveal(picture.selected, true); },
    "/": () => $("search").focus(),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, button")) return;
    const isArrow = event.key.startsWith("Arrow");
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act || (isArrow && document.activeElement !== picture.canvas)) return;
    event.preventDefault();
    act();
  });
}

function listenToSearch(picture) {
  const input = $("search"), { start, end } = picture.lines.replayed;
  let found = [], at = -1;
  input.addEventListener("input", () => {
    const text = input.value.trim().toLowerCase();
    picture.select(-1);
    found = [];
    at = -1;
    if (text) {
      const wanted = picture.meta.labels.map(([name]) => picture.meta.names[name].toLowerCase().includes(text));
      let time = 0;
      picture.label.forEach((label, task) => {
        if (wanted[label] && end[task] > start[task]) { found.push(task); time += end[task] - start[task]; }
      });
      picture.mark(found);
      $("found").textContent = found.length ? `${found.length.toLocaleString("en")} tasks, ${timeText(time)}; Enter: next` : "none";
      found.sort((a, b) => start[a] - start[b]);
    } else {
      $("found").textContent = "";
    }
    picture.redraw();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      input.value = "";
      input.dispatchEvent(new Event("input"));
      picture.canvas.focus();
    }
    if (event.key !== "Enter" || !found.length) return;
    at = (at + (event.shiftKey ? found.length - 1 : 1) + (at < 0 && event.shiftKey ? 1 : 0)) % found.length;
    picture.goTo(found[at]);
    picture.mark(found);
    $("found").textContent = `${(at + 1).toLocaleString("en")} of ${found.length.toLocaleString("en")}`;
  });
}

function listenToButtons(picture) {
  const choices = document.querySelectorAll("[data-show]");
  for (const button of choices) {
    button.setAttribute("aria-pressed", button.dataset.show === picture.show);
    button.onclick = () => {
      picture.show = button.dataset.show;
      for (const other of choices) other.setAttribute("aria-pressed", other === button);
      picture.layOut();
    };
  }
  $("whole").onclick = () => picture.look(0, picture.meta.window_us);
  $("critical").onclick = () => picture.select(picture.selected === picture.lastTask() ? -1 : picture.lastTask());
}

function drawLegend(picture) {
  const used = new Set(picture.meta.labels.map(([, , kind]) => kind));
  const entry = (swatch, words) => element("li", {}, swatch, words);
  $("legend").replaceChildren(
    ...picture.meta.classes.flatMap((name, k) => used.has(k)
      ? [entry(element("span", { className: "swatch", style: `background:var(--${name})` }), CLASS_WORDS[name] || name)] : []),
    entry(element("span", { className: "swatch wait" }), "waits for another task or rank"),
  );
}

async function main() {
  const meta = JSON.parse($("meta").textContent);
  const data = timelines(meta, await unpack(meta.columns));
  if (!data.label.length) {
    $("loading").textContent = "There is no task to draw.";
    document.body.dataset.ready = "true";
    return;
  }
  const picture = new Picture(meta, data);
  picture.layOut();
  drawLegend(picture);
  listenToPointer(picture);
  listenToKeys(picture);
  listenToSearch(picture);
  listenToButtons(picture);
  new ResizeObserver(() => picture.resize()).observe($("frame"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    picture.readColours();
    picture.resize();
  });
  addEventListener("hashchange", () => picture.follow());
  picture.follow();
  picture.draw();
  $("loading").remove();
  document.body.dataset.ready = "true";
}

main();
