// ---- Pointer, keys, search and buttons.

function listenToPointer(inspector) {
  const { picture } = inspector, { canvas, frame } = picture;
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
    if (!from) return inspector.tip(inspector.pick(x, y), event.clientX, event.clientY);
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
      const found = inspector.pick(...point(event));
      if (found && found.row.rank !== undefined) {
        const { rank } = found.row;
        if (!picture.collapsed.delete(rank)) picture.collapsed.add(rank);
        picture.layOut();
      } else {
        inspector.select(found && found.task !== undefined ? found.task : -1);
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

function listenToKeys(inspector) {
  const { picture } = inspector;
  const step = (by) => {
    const at = picture.selected;
    if (at < 0) {
      let first = -1;
      for (const row of picture.rows) {
        if (row.tracks && first < 0) row.tracks[0].line.each(row.lane, ...picture.view, (task) => { if (first < 0) first = task; });
      }
      if (first >= 0) inspector.goTo(first);
    } else if (picture.tasks.laneOf[at + by] === picture.tasks.laneOf[at]) {
      inspector.goTo(at + by);
    }
  };
  const span = () => picture.view[1] - picture.view[0];
  const keys = {
    w: () => picture.zoom(1 / 1.5), s: () => picture.zoom(1.5),
    a: () => picture.move(-0.2 * span()), d: () => picture.move(0.2 * span()),
    ArrowLeft: () => picture.move(-0.2 * span()), ArrowRight: () => picture.move(0.2 * span()),
    "+": () => picture.zoom(1 / 1.5), "-": () => picture.zoom(1.5),
    ArrowUp: () => { picture.frame.scrollTop -= 60; }, ArrowDown: () => { picture.frame.scrollTop += 60; },
    0: () => picture.look(0, picture.meta.window_us), Escape: () => inspector.select(-1),
    ",": () => step(-1), ".": () => step(1),
    c: () => { if (picture.tasks.causeOf[picture.selected] >= 0) inspector.goTo(picture.tasks.causeOf[picture.selected]); },
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

function listenToSearch(inspector) {
  const { picture } = inspector;
  const input = $("search"), { start, end } = picture.tasks.lines.replayed;
  let found = [], at = -1;
  input.addEventListener("input", () => {
    const text = input.value.trim().toLowerCase();
    inspector.select(-1);
    found = [];
    at = -1;
    if (text) {
      const wanted = picture.meta.labels.map(([name]) => picture.meta.names[name].toLowerCase().includes(text));
      let time = 0;
      picture.tasks.label.forEach((label, task) => {
        if (wanted[label] && end[task] > start[task]) { found.push(task); time += end[task] - start[task]; }
      });
      inspector.mark(found);
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
    inspector.goTo(found[at]);
    inspector.mark(found);
    $("found").textContent = `${(at + 1).toLocaleString("en")} of ${found.length.toLocaleString("en")}`;
  });
}

function listenToButtons(inspector) {
  const { picture } = inspector;
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
  $("critical").onclick = () => {
    if (picture.selected === inspector.last) inspector.select(-1);
    else inspector.goTo(inspector.last);
  };
}

function drawLegend(picture) {
  const { meta } = picture, used = new Set(meta.labels.map(([, , kind]) => kind));
  const entry = (swatch, words) => element("li", {}, swatch, words);
  $("legend").replaceChildren(
    ...meta.classes.flatMap((name, k) => used.has(k)
      ? [entry(element("span", { className: "swatch", style: `background:var(--${name})` }), meta.class_words[k])] : []),
    entry(element("span", { className: "swatch wait" }), "waits for another task or rank"),
  );
}

async function main() {
  const meta = JSON.parse($("meta").textContent);
  const tasks = new Tasks(meta, await unpack(meta.columns));
  if (!tasks.count) {
    $("loading").textContent = "There is no task to draw.";
    document.body.dataset.ready = "true";
    return;
  }
  const picture = new Picture(tasks), inspector = new Inspector(picture);
  picture.layOut();
  drawLegend(picture);
  listenToPointer(inspector);
  listenToKeys(inspector);
  listenToSearch(inspector);
  listenToButtons(inspector);
  new ResizeObserver(() => picture.resize()).observe($("frame"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    picture.readColours();
    picture.resize();
  });
  addEventListener("hashchange", () => inspector.follow());
  inspector.follow();
  $("loading").remove();
  document.body.dataset.readyMs = Math.round(performance.now());
  document.body.dataset.ready = "true";
}

main();
