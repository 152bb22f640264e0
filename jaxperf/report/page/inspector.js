// ---- Asking: what lies under the pointer, and why a task started when it did.

class Inspector {
  constructor(picture) {
    this.picture = picture;
    this.tasks = picture.tasks;
    this.meta = picture.meta;
    this.last = this.tasks.last();
  }

  /** What lies under a point: a task, or else a wait. */
  pick(x, y) {
    const { picture } = this;
    y += picture.frame.scrollTop;
    const row = picture.rows.find((row) => y >= row.y && y < row.y + row.height);
    if (!row || !row.tracks) return row ? { row } : null;
    const track = row.tracks.find((track) => y < track.y + track.height) || row.tracks[row.tracks.length - 1];
    if (x < picture.gutter) return { row };
    const t = picture.time(x), near = 3 / picture.scale, { line } = track;
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

  /** What a task is, when it ran, and why it started when it did. */
  describe(task) {
    const { tasks } = this, { measured, replayed } = tasks.lines;
    const times = ({ start, end }) => [start[task], end[task] - start[task]];
    const [before, after] = [times(measured), times(replayed)];
    const difference = after.map((time, k) => time - before[k]);
    const row = (words, cells) => element("tr", {}, element("th", { textContent: words }),
      ...cells.map((textContent) => element("td", { className: "n", textContent })));
    const rows = this.meta.measured
      ? [row("measured", before.map(timeText)), row("replayed", after.map(timeText)), row("difference", difference.map(changeText))]
      : [row("estimated", after.map(timeText))];
    const table = element("table", {}, element("tbody", {}, row("", ["start", "duration"]), ...rows));
    const cause = tasks.causeOf[task];
    const why = cause < 0
      ? this.meta.measured ? "Starts when it was recorded: nothing in the trace bounds it." : "Starts at once: nothing bounds it."
      : `Starts when ${WHY_WORDS[this.meta.dependencies[tasks.why[task] - 1]]}: ${tasks.brief(cause)} (${tasks.place(cause)}).`;
    const what = [...new Set([tasks.classWords(task), KIND_WORDS[tasks.kind(task)], tasks.place(task)])].join(" · ");
    return { name: tasks.name(task), what, table, why };
  }

  tip(found, x, y) {
    const tip = $("tip"), isLane = found && found.row.tracks && x < this.picture.canvas.getBoundingClientRect().left + this.picture.gutter;
    tip.hidden = !found || (found.task === undefined && !isLane);
    if (tip.hidden) return;
    if (isLane) tip.replaceChildren(this.meta.lanes[found.row.lane].name);
    else this.fillTip(tip, found);
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - width - 8)) + "px";
    tip.style.top = (y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18) + "px";
  }

  fillTip(tip, found) {
    const { name, what, table, why } = this.describe(found.task);
    const wait = found.wait && element("p", {}, element("strong", {
      textContent: `${this.tasks.waitWords(found.task, found.wait.cause)}: ${timeText(found.wait.end - found.wait.begin)}`,
    }));
    tip.replaceChildren(wait || "", element("b", { textContent: name }), element("p", { className: "soft", textContent: what }), table, element("p", { textContent: why }));
  }

  select(task) {
    const { picture } = this;
    picture.selected = task;
    if (task < 0) {
      picture.marked = null;
      $("details").replaceChildren();
    } else {
      const chain = this.tasks.chain(task);
      this.mark(chain, true);
      this.explain(task, chain);
    }
    $("critical").setAttribute("aria-pressed", task === this.last);
    picture.look(...picture.view);
  }

  mark(tasks, isChain = false) {
    const byLane = this.meta.lanes.map(() => []);
    for (const task of tasks) byLane[this.tasks.laneOf[task]].push(task);
    this.picture.marked = { byLane, chain: isChain ? tasks : null };
  }

  explain(task, chain) {
    const { tasks, meta } = this, { start, end } = tasks.lines.replayed;
    const time = new Float64Array(meta.classes.length);
    for (const k of chain) time[tasks.classOf[k]] += end[k] - start[k];
    const whole = end[task] - start[chain[0]], share = (c) => 100 * time[c] / whole;
    const order = [...time.keys()].filter((c) => share(c) >= 0.5).sort((a, b) => time[b] - time[a]);
    const words = order.slice(0, 4).map((c) => `${meta.class_words[c]} ${share(c).toFixed(0)} %`);
    const part = (c) => element("span", {
      title: `${meta.class_words[c]}: ${timeText(time[c])}`, style: `width:${share(c)}%;background:var(--${meta.classes[c]})`,
    });
    const button = (textContent, onclick) => element("button", { type: "button", textContent, onclick });
    const { name, what, table, why } = this.describe(task), cause = tasks.causeOf[task];
    $("details").replaceChildren(
      element("h3", { textContent: name }),
      element("div", { className: "row" }, element("span", { className: "soft", textContent: what }),
        button("Zoom to it", () => this.picture.reveal(task, true)),
        cause < 0 ? null : button("Go to its cause", () => this.goTo(cause)),
        button("Clear", () => this.select(-1))),
      element("div", { className: "row" }, table, element("div", {}, element("p", { textContent: why }), element("p", {
        textContent: `Its chain of causes: ${chain.length.toLocaleString("en")} tasks over ${timeText(whole)} back to the start; ${words.join(", ")}; the rest is latency.`,
      }))),
      element("div", { className: "bar" }, ...order.map(part)),
    );
  }

  goTo(task) {
    this.select(task);
    this.picture.reveal(task);
  }

  /** Show what the address asks for; see Picture.link. */
  follow() {
    const [t0, t1, task] = location.hash.slice(1).split(",").map(Number);
    if (task >= 0 && task < this.tasks.count) this.select(task);
    if (t1 > t0) this.picture.look(t0, t1);
  }
}
