// ---- Data: what jaxperf/report/_columns.py packed.

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

/** Every task of the replay, in order of lane and replayed start, with both timelines. */
class Tasks {
  constructor(meta, columns) {
    Object.assign(this, { meta, label: columns.label, why: columns.why, lines: {} });
    this.briefNames = meta.names.map(brief);
    const { label, gap, duration, back, why } = columns;
    const n = label.length, us = meta.quantum_us;
    const shift = summed(columns.shift), { stretch } = columns;
    const times = {
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
    Object.assign(this, { count: n, laneOf, classOf, causeOf });
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
      this.lines[name] = new Timeline(start, end, wait, meta.lanes, classOf);
    }
  }

  name(task) { return this.meta.names[this.meta.labels[this.label[task]][0]]; }
  brief(task) { return this.briefNames[this.meta.labels[this.label[task]][0]]; }
  kind(task) { return this.meta.kinds[this.meta.labels[this.label[task]][1]]; }
  lane(task) { return this.meta.lanes[this.laneOf[task]]; }
  place(task) { return `rank ${this.lane(task).rank}, ${this.lane(task).name}`; }
  classWords(task) { return this.meta.class_words[this.classOf[task]]; }

  waitWords(task, cause) {
    if (cause < 0) return "waits";
    const { rank, name } = this.lane(cause);
    return "waits for " + (rank === this.lane(task).rank ? name : `rank ${rank}`);
  }

  /** The task and what caused it, back to the start; the earliest first. */
  chain(task) {
    const chain = [];
    for (let at = task; at >= 0 && chain.length < this.count; at = this.causeOf[at]) chain.push(at);
    return chain.reverse();
  }

  /** The task that ends last: its chain of causes is the critical path. */
  last() {
    const { end } = this.lines.replayed;
    return end.reduce((best, time, k) => time > end[best] ? k : best, 0);
  }
}
