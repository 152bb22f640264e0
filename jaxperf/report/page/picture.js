// ---- The picture: rows, boxes, waits, and what is in view.

class Picture {
  constructor(tasks) {
    this.tasks = tasks;
    this.meta = tasks.meta;
    this.canvas = $("canvas");
    this.frame = $("frame");
    this.view = [0, this.meta.window_us];
    this.show = this.meta.measured ? "both" : "replayed";
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
    for (const name of ["panel", "sunk", "line", "ink", "soft", "accent"]) this.colours[name] = colour(name);
    this.classColours = this.meta.classes.map(colour);
    // Black or white, whichever reads better on the colour.
    this.classInk = this.classColours.map((hex) => {
      const [r, g, b] = [1, 3, 5].map((at) => (parseInt(hex.slice(at, at + 2), 16) / 255) ** 2.2);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000" : "#fff";
    });
    this.classBits = this.classColours.map((hex) => {
      const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
      return r | g << 8 | b << 16;
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
      const tracks = shown.map((name, k) => ({ name, line: this.tasks.lines[name], y: y + 2 + k * (height + 1), height }));
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
    this.draw(); // at once: a new size has cleared the canvas, and the next frame would show that
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
  /** The timeline that stands for a row where one has to. */
  get main() { return this.show === "measured" ? "measured" : "replayed"; }

  get scale() { return (this.width - this.gutter) / (this.view[1] - this.view[0]); }

  draw() {
    const began = performance.now(), g = this.canvas.getContext("2d"), { colours } = this;
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
    // For tests, and for whoever wonders why it is slow.
    document.body.dataset.drawnSlices = this.drawn;
    document.body.dataset.drawMs = (performance.now() - began).toFixed(1);
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
    brush.finish();
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
      const words = this.tasks.waitWords(task, cause);
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
    const kind = this.tasks.classOf[task];
    brush.add(this.x(line.start[task]), this.x(line.end[task]), kind, task);
  }

  /**
   * Fills boxes of a track. Those narrower than a pixel are gathered: the pixel takes the class with
   * the most time, fainter the less of it is busy. All such pixels are drawn at once, as one picture
   * of one row, because a thousand small rectangles take longer than a frame has.
   */
  brush(g, y, height) {
    const { classColours, classInk, gutter } = this, left = gutter - 2, right = this.width + 2;
    const ratio = devicePixelRatio, pixels = new Uint32Array(Math.ceil((this.width - gutter) * ratio));
    const share = new Float64Array(classColours.length), wide = [];
    let pixel = -1, isUsed = false;
    const flush = () => {
      let most = 0, sum = 0, kind = -1;
      for (let c = 0; c < share.length; c++) {
        sum += share[c];
        if (share[c] > most) { most = share[c]; kind = c; }
        share[c] = 0;
      }
      if (kind >= 0 && pixel >= 0 && pixel < pixels.length) {
        pixels[pixel] = this.classBits[kind] | Math.round(255 * Math.min(1, Math.max(0.35, sum))) << 24;
        isUsed = true;
        this.drawn++;
      }
    };
    const add = (x0, x1, kind, task) => {
      if ((x1 - x0) * ratio < 1) {
        const at = Math.floor((x0 - gutter) * ratio);
        if (at !== pixel) { flush(); pixel = at; }
        share[kind] += Math.max((x1 - x0) * ratio, 1e-9);
      } else {
        wide.push(Math.max(x0, left), Math.min(x1, right), kind, task);
      }
    };
    const finish = () => {
      flush();
      if (isUsed) g.drawImage(strip(pixels), gutter, y, pixels.length / ratio, height);
      let colour = -1;
      for (let i = 0; i < wide.length; i += 4) {
        const [x0, x1, kind] = [wide[i], wide[i + 1], wide[i + 2]];
        if (kind !== colour) g.fillStyle = classColours[colour = kind];
        g.fillRect(x0, y, x1 - x0 - (x1 - x0 > 3 ? 0.75 : 0), height);
      }
      this.drawn += wide.length / 4;
      g.font = "10.5px system-ui, sans-serif";
      g.textBaseline = "middle";
      for (let i = 0; i < wide.length; i += 4) {
        const x0 = wide[i], room = wide[i + 1] - x0;
        if (room < 30) continue;
        const most = Math.floor((room - 6) / 5.9), name = this.tasks.brief(wide[i + 3]);
        g.fillStyle = classInk[wide[i + 2]];
        g.fillText(name.length > most ? name.slice(0, most - 1) + "…" : name, x0 + 4, y + height / 2 + 0.5, room - 6);
      }
    };
    return { add, finish };
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
      const tasks = this.marked.byLane[row.lane];
      for (const { line, y, height } of row.tracks) {
        const brush = this.brush(g, y, height);
        for (const task of tasks) {
          if (line.end[task] >= this.view[0] && line.start[task] <= this.view[1]) this.paint(brush, line, task);
        }
        brush.finish();
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
    const line = this.tasks.lines[this.main];
    g.strokeStyle = this.colours.ink;
    g.lineWidth = 1.25;
    g.beginPath();
    let last = "";
    for (const task of this.marked.chain) {
      const cause = this.tasks.causeOf[task];
      if (cause < 0 || this.tasks.laneOf[cause] === this.tasks.laneOf[task]) continue;
      const y0 = middle[this.tasks.laneOf[cause]], y1 = middle[this.tasks.laneOf[task]];
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
    const row = visible.find((row) => row.lane === this.tasks.laneOf[this.selected]);
    if (!row) return;
    g.strokeStyle = this.colours.ink;
    g.lineWidth = 2;
    for (const { line, y, height } of row.tracks) {
      const x0 = this.x(line.start[this.selected]), x1 = this.x(line.end[this.selected]);
      g.strokeRect(x0 - 1, y - 1, Math.max(3, x1 - x0 + 1), height + 2);
    }
  }

  drawSteps(g, row) {
    const key = this.main;
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
      const classes = this.meta.classes.length, line = this.tasks.lines.replayed;
      const bins = lanes.map((lane) => line.bins(lane, this.meta.window_us, classes));
      const columns = Array.from({ length: Math.max(0, Math.floor(plot)) }, (_, x) => {
        const low = Math.floor(x / plot * BINS), high = Math.max(low + 1, Math.floor((x + 1) / plot * BINS));
        const share = new Float32Array(classes);
        for (const { kind, share: busy } of bins) for (let b = low; b < high; b++) share[kind[b]] += busy[b] / (high - low);
        return share;
      });
      const most = columns.reduce((best, share) => Math.max(best, share.reduce((sum, part) => sum + part, 0)), 1e-9);
      columns.forEach((share, x) => {
        let y = height;
        share.forEach((part, kind) => {
          if (!part) return;
          g.fillStyle = this.classColours[kind];
          g.fillRect(gutter + x, y -= part / most * (height - 4), 1, part / most * (height - 4));
        });
      });
      g.fillStyle = colours.soft;
      g.font = "11px system-ui, sans-serif";
      g.textBaseline = "middle";
      g.fillText((streams.length ? "devices" : "threads") + (gutter > 150 ? ", whole window" : ""), 8, height / 2);
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
    const line = this.tasks.lines[this.main];
    const middle = (line.start[task] + line.end[task]) / 2;
    const span = close ? Math.max(8 * (line.end[task] - line.start[task]), 1) : this.view[1] - this.view[0];
    if (close || middle < this.view[0] || middle > this.view[1]) this.look(middle - span / 2, middle + span / 2);
    const rank = this.tasks.lane(task).rank;
    if (this.collapsed.delete(rank)) this.layOut();
    const row = this.rows.find((row) => row.lane === this.tasks.laneOf[task]);
    const top = this.frame.scrollTop;
    if (row.y < top + 26) this.frame.scrollTop = row.y - 50;
    else if (row.y + row.height > top + this.height) this.frame.scrollTop = row.y + row.height - this.height + 12;
  }
}

/** One row of pixels as something that can be drawn. */
function strip(pixels) {
  if (!strip.canvas) strip.canvas = new OffscreenCanvas(1, 1);
  strip.canvas.width = pixels.length; // also clears what was drawn before
  strip.canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), pixels.length, 1), 0, 0);
  return strip.canvas;
}

function fitted(g, text, room) {
  if (g.measureText(text).width <= room) return text;
  let n = text.length;
  while (n > 1 && g.measureText(text.slice(0, n) + "…").width > room) n--;
  return text.slice(0, n) + "…";
}
