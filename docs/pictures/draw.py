"""Draw the pictures of docs/concepts: `python docs/pictures/draw.py [FOLDER]`.

What a picture shows was computed: its lanes are those of simulated runs as jaxperf read them, its
curves are what jaxperf says. Coordinates are rounded, so that any machine draws the same bytes.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from jaxperf import build_graph, compile_program, read_run, replay_graph, slack_us
from jaxperf.embedding.locality import lru_curve
from jaxperf.energy import PowerSeries, mean_power_w
from jaxperf.graph import DependencyKind, ExecutionGraph, TaskKind
from jaxperf.replay import binding_dependencies, path_to
from jaxperf.simulator import (
    Annotation,
    Collective,
    Instruction,
    Kernel,
    Launch,
    Rank,
    Record,
    StreamWait,
    SynchronizeStream,
    Timing,
    execute,
    write_traces,
)

HERE = Path(__file__).resolve().parent
# A phone shows a picture some 360 px wide: letters of 12 in 440 stay legible there.
WIDTH = 440
LEFT = 12

STYLE = """
.page{fill:#fbfbf9}
text{fill:#1d2127;font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.soft{fill:#565e69}.on{fill:#fff}.strong{font-weight:600}
.lane{fill:#eceef1}.host{fill:#7c8594}.gemm{fill:#2f6db5}.comm{fill:#c4482e}.other{fill:#6b7f2a}
.pale{opacity:.28}.wait{fill:url(#hatch);stroke:#8a929d}.hatch{stroke:#8a929d}
.slack{fill:none;stroke:#8a929d;stroke-dasharray:3 2}
.line{fill:none;stroke:#1d2127}.faint{fill:none;stroke:#aab1ba}.curve{fill:none;stroke-width:2}
.c1{stroke:#2f6db5}.c2{stroke:#c4482e}.c3{stroke:#6b7f2a}.c4{stroke:#7a4fa3}
.f1{fill:#2f6db5}.f2{fill:#c4482e}.f3{fill:#6b7f2a}.f4{fill:#7a4fa3}
@media(prefers-color-scheme:dark){
.page{fill:#15181d}text{fill:#e6e9ee}.soft{fill:#a3acb8}.on{fill:#fff}
.lane{fill:#242a32}.host{fill:#667080}.gemm{fill:#3a78c2}.comm{fill:#c8553a}.other{fill:#74872f}
.line{stroke:#e6e9ee}.faint{stroke:#59626e}
.c1{stroke:#6aa5ea}.c2{stroke:#ee8468}.c3{stroke:#a9bf5c}.c4{stroke:#bd97e6}
.f1{fill:#6aa5ea}.f2{fill:#ee8468}.f3{fill:#a9bf5c}.f4{fill:#bd97e6}}
"""


def number(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}".removesuffix(".0").replace("-0", "0" if abs(value) < 0.05 else "-0")


class Picture:
    """An SVG as it grows; coordinates are those of its 440 units of width."""

    def __init__(self, title: str, description: str, height: float):
        self.title, self.description, self.height = title, description, height
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str, round: int = 2):
        """A rectangle."""
        size = f'width="{number(width)}" height="{number(height)}" rx="{round}"'
        self.parts.append(f'<rect x="{number(x)}" y="{number(y)}" {size} class="{kind}"/>')

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start"):
        """A line of text."""
        place = f'x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"'
        self.parts.append(f'<text {place} class="{kind}">{text}</text>')

    def path(self, points: Sequence[tuple[float, float]], kind: str, arrow: bool = False):
        """A line through points, with a head if `arrow`."""
        at = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self.parts.append(f'<polyline points="{at}" class="{kind}" fill="none"/>')
        if arrow:
            (x0, y0), (x1, y1) = points[-2:]
            along = np.array([x1 - x0, y1 - y0]) / max(np.hypot(x1 - x0, y1 - y0), 1e-9)
            across = np.array([-along[1], along[0]])
            tip = np.array([x1, y1])
            corners = [tip, tip - 6 * along + 3 * across, tip - 6 * along - 3 * across]
            at = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
            fill = kind.split()[-1].replace("c", "f")
            self.parts.append(f'<polygon points="{at}" class="{fill}"/>')

    def dot(self, x: float, y: float, kind: str, radius: float = 3.5):
        """A disc."""
        self.parts.append(
            f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" class="{kind}"/>'
        )

    def svg(self) -> str:
        """The whole file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {number(self.height)}" '
            f'width="{WIDTH * 3 // 2}" role="img" aria-labelledby="title description">'
        )
        pattern = (
            '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><line y2="5" class="hatch"/></pattern></defs>'
        )
        title = f'<title id="title">{self.title}</title>'
        words = f'{title}<desc id="description">{self.description}</desc>'
        page = f'<rect width="{WIDTH}" height="{number(self.height)}" rx="6" class="page"/>'
        body = "\n".join([head, words, f"<style>{STYLE}</style>", pattern, page, *self.parts])
        return f"{body}\n</svg>\n"


# ---------------------------------------------------------------------------------------
# Runs that are shown


TIMING = Timing(
    launch_latency_us=8.0,
    kernel_gap_us=1.0,
    wait_lag_us=2.0,
    sync_return_us=6.0,
    launch_call_us=8.0,
    event_call_us=4.0,
    sync_call_us=8.0,
)
SUM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def recorded(ranks: dict[int, Rank]) -> ExecutionGraph:
    """The graph of a simulated run, from its traces."""
    with tempfile.TemporaryDirectory() as folder:
        write_traces(execute(ranks), folder)
        return build_graph(read_run(folder))


def one_rank(first_us: float = 60.0) -> ExecutionGraph:
    """Two products, a sum on a stream of its own beside the second, and what needs both."""
    body = [
        Launch(Kernel("sgemm_a", first_us, "gemm"), stream=7),
        Record("gradient", stream=7),
        StreamWait("gradient", stream=20),
        Launch(Kernel(SUM, 70.0, "communication"), stream=20),
        Record("sum", stream=20),
        Launch(Kernel("sgemm_b", 50.0, "gemm"), stream=7),
        StreamWait("sum", stream=7),
        Launch(Kernel("adam", 30.0, "optimizer"), stream=7),
        SynchronizeStream(7),
    ]
    return recorded({0: Rank({"main": [Annotation("ProfilerStep#1", body)]}, TIMING)})


def two_ranks() -> ExecutionGraph:
    """A product, which takes longer on rank 1, and a sum over both."""
    ranks = {}
    for rank, (product_us, clock_us) in enumerate([(60.0, 0.0), (110.0, 40.0)]):
        body: list[Instruction] = [
            Launch(Kernel("sgemm", product_us, "gemm"), stream=7),
            Launch(Collective("allreduce", "0", (0, 1), 50.0, elements=1 << 20), stream=7),
            SynchronizeStream(7),
        ]
        steps = [Annotation(f"ProfilerStep#{number}", body) for number in (1, 2)]
        ranks[rank] = Rank({"main": steps}, TIMING, clock_offset_us=clock_us)
    return recorded(ranks)


KINDS = {"sgemm": "gemm", "nccl": "comm", "adam": "other"}
WORDS = {"sgemm_a": "product a", "sgemm_b": "product b", "adam": "adam", SUM[:4]: "all-reduce"}


def kind_of(name: str) -> str:
    """The colour of a task."""
    return next((kind for begin, kind in KINDS.items() if name.startswith(begin)), "host")


def word_of(name: str) -> str:
    """The label of a task."""
    return next((word for begin, word in WORDS.items() if name.startswith(begin)), "")


def draw_lanes(
    picture: Picture,
    graph: ExecutionGraph,
    top: float,
    scale: float,
    pitch: float,
    labels: list[str],
) -> dict[int, tuple[float, float, float]]:
    """Lanes, empty; the left end, right end and top of the box of each task."""
    places = {}
    for lane, label in enumerate(labels):
        y = top + lane * pitch
        picture.text(232, y - 5, label, "soft", "end")
        picture.box(LEFT, y, WIDTH - 2 * LEFT, 24, "lane")
    for task in range(graph.tasks):
        y = top + int(graph.lane[task]) * pitch
        begin, end = (
            LEFT + 4 + scale * t / 1e3 for t in (graph.start_ns[task], graph.end_ns[task])
        )
        places[task] = (begin, end, y)
    return places


def draw_task(picture: Picture, name: str, begin: float, end: float, y: float, pale: bool = False):
    """The box of a task, with what of its label fits."""
    if end <= begin:
        return
    picture.box(begin, y + 2, end - begin - 0.8, 20, kind_of(name) + (" pale" if pale else ""))
    word = word_of(name)
    if end - begin < 60:
        word = word.removeprefix("product ")
    picture.text((begin + end) / 2, y + 16, word, "" if pale else "on", "middle")


LANES = ["thread: calls", "stream 7", "stream 20"]
ARROWS = {
    DependencyKind.LAUNCH: ("curve c1", "launch: the work follows its call"),
    DependencyKind.EVENT_WAIT: ("curve c2", "event wait: from one stream to another"),
    DependencyKind.HOST_SYNC: ("curve c4", "host sync: a call blocks until work has ended"),
}


def draw_graph() -> Picture:
    """Tasks in lanes, and each kind of dependency that crosses them."""
    graph = one_rank()
    picture = Picture(
        "An execution graph",
        "One thread and two streams. Launch arrows lead from calls to kernels, event waits "
        "from one stream to the other, a host sync from the last kernel to the blocking call.",
        300,
    )
    places = draw_lanes(picture, graph, 28, 2.26, 74, LANES)
    for source, target, kind in zip(graph.source, graph.target, graph.dependency, strict=True):
        if kind not in ARROWS:
            continue
        _, end, above = places[int(source)]
        begin, _, below = places[int(target)]
        down = below > above
        ends = (above + (22 if down else 2), below + (2 if down else 22))
        picture.path([(end - 1, ends[0]), (begin + 1, ends[1])], ARROWS[kind][0], arrow=True)
    for task, (begin, end, y) in places.items():
        draw_task(picture, graph.names[graph.name[task]], begin, end, y)
    for line, (kind, words) in enumerate(ARROWS.values()):
        y = 222 + 18 * line
        picture.path([(LEFT + 2, y - 4), (LEFT + 26, y - 4)], kind, arrow=True)
        picture.text(LEFT + 34, y, words)
    y = 222 + 18 * len(ARROWS)
    picture.text(LEFT + 34, y, "neighbours in a lane: thread order, stream order", "soft")
    return picture


def draw_wait() -> Picture:
    """The same change asked of a graph with waits, and of one whose durations hold them."""
    graph = one_rank()
    faster = one_rank(20.0)
    sync = int(np.flatnonzero(graph.kind == TaskKind.HOST_RETURN)[0])
    picture = Picture(
        "What a wait is",
        "A blocking call is eight microseconds of work and a long wait. With product a three "
        "times as fast the wait shrinks; a model that keeps the wait inside the duration says"
        " that the call ends as late as before.",
        318,
    )
    scale = 2.26

    def lanes(top: float, run: ExecutionGraph, title: str, kept: bool = False) -> None:
        picture.text(LEFT, top, title, "strong")
        calls, kernels = top + 10, top + 40
        for y in (calls, kernels):
            picture.box(LEFT, y, WIDTH - 2 * LEFT, 24, "lane")
        for task in range(run.tasks):
            name = run.names[run.name[task]]
            if run.lane[task] > 1 or "Synchronize" in name:
                continue
            begin, end = run.start_ns[task] / 1e3, run.end_ns[task] / 1e3
            y = calls if run.lane[task] == 0 else kernels
            x = LEFT + 4 + scale * begin
            draw_task(picture, name, x, x + scale * (end - begin), y)
        begin, returns = 48.0, float(run.start_ns[sync]) / 1e3
        wakes = float(run.end_ns[sync]) / 1e3
        x = [LEFT + 4 + scale * t for t in (begin, begin + 2, returns, wakes)]
        if kept:
            whole = float(graph.end_ns[sync]) / 1e3
            picture.box(x[0], calls + 2, scale * (whole - begin), 20, "comm")
            picture.text(
                (x[0] + scale * 60), calls + 16, "duration of the call, as recorded", "on", "middle"
            )
        else:
            picture.box(x[0], calls + 2, x[1] - x[0], 20, "host")
            picture.box(x[1], calls + 2, x[2] - x[1], 20, "wait")
            picture.box(x[2], calls + 2, x[3] - x[2], 20, "host")
            picture.box((x[1] + x[2]) / 2 - 46, calls + 6, 92, 13, "page")
            picture.text((x[1] + x[2]) / 2, calls + 16, "waits for adam", "", "middle")

    lanes(22, graph, "As recorded")
    lanes(122, faster, "Product a in 20 us: the wait is shorter")
    lanes(222, faster, "The same, with the wait kept as a duration: wrong", kept=True)
    picture.text(LEFT, 306, "grey: work of the thread, and its return from the wait", "soft")
    return picture


def draw_ranks() -> Picture:
    """A collective as two ranks stamp it, and on one clock."""
    graph = two_ranks()
    offset_us = 40.0
    transfer = np.flatnonzero(graph.kind == TaskKind.COLLECTIVE)[:1]
    begin_us = float(graph.start_ns[transfer[0]]) / 1e3
    picture = Picture(
        "A collective of two ranks",
        "Above: as stamped, rank 1 with a clock of its own. Below: on one clock, where rank 0"
        " arrives early, waits, and both transfer at once.",
        268,
    )
    scale = 1.9

    def rows(top: float, title: str, aligned: bool) -> None:
        picture.text(LEFT, top, title, "strong")
        for rank, product_us in enumerate((60.0, 110.0)):
            y = top + 22 + 42 * rank
            shift = 0.0 if aligned else offset_us * rank
            picture.text(LEFT, y - 3, f"rank {rank}", "soft")
            picture.box(LEFT, y, WIDTH - 2 * LEFT, 24, "lane")
            x = [LEFT + 4 + scale * (8 + t + shift) for t in (0.0, product_us, product_us + 1)]
            ready = LEFT + 4 + scale * (begin_us + shift)
            end = ready + scale * 50.0
            picture.box(x[0], y + 2, x[1] - x[0], 20, "gemm")
            picture.text((x[0] + x[1]) / 2, y + 16, "product", "on", "middle")
            if aligned and ready - x[2] > 4:
                picture.box(x[2], y + 2, ready - x[2], 20, "wait")
                picture.box((x[2] + ready) / 2 - 18, y + 6, 36, 13, "page")
                picture.text((x[2] + ready) / 2, y + 16, "waits", "", "middle")
            start = ready if aligned else x[2]
            picture.box(start, y + 2, end - start, 20, "comm")
            words = "transfer" if aligned else "all-reduce"
            picture.text((start + end) / 2, y + 16, words, "on", "middle")

    rows(20, "As stamped: each rank by its own clock", False)
    rows(142, "On one clock: an arrival, a wait, a transfer", True)
    ready = LEFT + 4 + scale * begin_us
    picture.path([(ready, 160), (ready, 236)], "line c2")
    picture.text(ready, 256, "the last has arrived: all start", "", "middle")
    return picture


def draw_program() -> Picture:
    """The same graph as chains, joins and slots."""
    graph = one_rank()
    program = compile_program(graph)
    tasks, steps = graph.tasks, int(program.makespan_row)
    chain = np.cumsum(~program.continues[:tasks])[program.position[:tasks]] - 1
    picture = Picture(
        "A program",
        "The tasks of the graph fall into chains, whose members follow the head at fixed "
        "offsets; only heads are joined, each by a maximum of two sums.",
        308,
    )
    picture.text(
        LEFT, 20, f"{tasks} tasks, by chain: the rest of a chain follows its head", "strong"
    )
    colours = ["f1", "f2", "f3", "f4", "host", "gemm", "comm", "other"]
    top, scale, pitch = 32, 2.26, 30
    for lane in range(3):
        picture.box(LEFT, top + pitch * lane, WIDTH - 2 * LEFT, 24, "lane")
    heads = {}
    for task in np.argsort(program.position[:tasks]):
        x, end = (LEFT + 4 + scale * float(t[task]) / 1e3 for t in (graph.start_ns, graph.end_ns))
        y = top + pitch * int(graph.lane[task])
        mine = int(chain[task])
        if end > x:
            picture.box(x, y + 2, end - x - 0.8, 20, colours[mine % len(colours)])
        if mine not in heads and end > x:
            heads[mine] = task
            picture.dot(x + 5, y + 12, "page", 2.5)
    picture.text(LEFT, top + 3 * pitch + 12, "dot: head of a chain", "soft")
    picture.text(LEFT, 164, f"{steps} steps of the scan; each a maximum of two sums", "strong")
    y = 176
    size = (WIDTH - 2 * LEFT) / steps
    for step in range(steps):
        x = LEFT + size * step
        picture.box(x + 2, y, size - 4, 40, "lane", 4)
        picture.text(x + size / 2, y + 17, "max", "", "middle")
        picture.text(x + size / 2, y + 33, f"{step + 1}", "soft", "middle")
    slots = program.target_slot[:steps]
    used = sorted({int(slot) for slot in slots})
    picture.text(LEFT, 244, f"where each result is kept: {len(used)} slots, used again", "strong")
    for step in range(steps):
        x = LEFT + size * (step + 0.5)
        row = used.index(int(slots[step]))
        picture.path([(x, 252), (x, 262 + 16 * row)], "faint")
        picture.dot(x, 262 + 16 * row, f"f{row % 4 + 1}", 4.5)
    for row in range(len(used)):
        picture.path([(LEFT, 262 + 16 * row), (WIDTH - LEFT, 262 + 16 * row)], "faint")
    return picture


def draw_critical() -> Picture:
    """What is on the path, how much slack the rest has, and the step against one factor."""
    graph = one_rank()
    timeline = replay_graph(graph)
    slack = slack_us(graph, timeline)
    last = int(np.argmax(timeline.end_us))
    path = path_to(graph, timeline, binding_dependencies(graph, timeline.start_us), last)
    on_path = set(np.asarray(path.task).tolist())
    picture = Picture(
        "Critical path, slack and gradient",
        "Tasks on the path are solid, the others pale with their slack dashed behind them. "
        "Below, the step time against a factor on product b: flat while it has slack, then "
        "rising with slope one.",
        368,
    )
    scale = 2.26
    for lane, label in enumerate(LANES):
        y = 26 + 46 * lane
        picture.text(LEFT, y - 4, label, "soft")
        picture.box(LEFT, y, WIDTH - 2 * LEFT, 24, "lane")
    for task in range(graph.tasks):
        begin, end = (float(t[task]) for t in (timeline.start_us, timeline.end_us))
        if end <= begin:
            continue
        name, y = graph.names[graph.name[task]], 26 + 46 * int(graph.lane[task])
        x, width = LEFT + 4 + scale * begin, scale * (end - begin)
        draw_task(picture, name, x, x + width, y, pale=task not in on_path)
        if word_of(name) and slack[task] > 1:
            picture.box(x + width, y + 3, scale * float(slack[task]), 18, "slack")
    picture.text(LEFT, 162, "solid: on the path; dashed: slack of product b, 22 us", "soft")
    draw_factor(picture, graph, 186)
    return picture


def draw_factor(picture: Picture, graph: ExecutionGraph, top: float) -> None:
    """The step against a factor on the second product, and its tangents."""
    product = np.array([graph.names[name] == "sgemm_b" for name in graph.name])
    factors = np.linspace(0.0, 2.5, 26)
    steps = []
    for factor in factors:
        scaled = np.where(product, factor * graph.duration_ns, graph.duration_ns)
        timeline = replay_graph(replace(graph, duration_ns=scaled.astype(np.int64)))
        steps.append(float(timeline.end_us.max()))
    low, high = 160.0, 240.0

    def place(factor: float, step_us: float) -> tuple[float, float]:
        x = LEFT + 44 + (WIDTH - 2 * LEFT - 60) * factor / 2.5
        return x, top + 150 - 130 * (step_us - low) / (high - low)

    picture.text(LEFT, top, "step time, us, with product b taking so much of its time", "strong")
    for step_us in (160.0, 200.0, 240.0):
        (x0, y), (x1, _) = place(0, step_us), place(2.5, step_us)
        picture.path([(x0, y), (x1, y)], "faint")
        picture.text(LEFT + 36, y + 4, f"{step_us:.0f}", "soft", "end")
    for factor in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5):
        x, y = place(factor, low)
        picture.text(x, y + 17, f"{factor:g}", "soft", "middle")
    points = [place(factor, step) for factor, step in zip(factors, steps, strict=True)]
    picture.path(points, "curve c1")
    x, y = place(1.0, steps[10])
    picture.dot(x, y, "f2")
    picture.text(x, y - 10, "as recorded: gradient 0", "", "middle")
    x, y = place(2.1, steps[21])
    picture.text(x - 10, y - 4, "on the path: gradient 50 us", "", "end")


def draw_costs() -> Picture:
    """Measured products, the model before and after a fit, and what was held out."""
    # Times of m = n = k products on a made-up device, by a law that the model does not have.
    size = np.array([256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144])
    flops = 2.0 * size.astype(float) ** 3
    rng = np.random.default_rng(5)
    measured = 5.0 + flops / 620e6 + 0.004 * size
    measured *= np.exp(rng.normal(0.0, 0.07, len(size)))
    held_out = np.isin(size, (384, 1536, 4096))

    def model_us(latency_us: float, rate: float, flops: np.ndarray) -> np.ndarray:
        return latency_us + flops / rate

    fitted = ~held_out
    grid = [(a, b) for a in np.linspace(3, 15, 49) for b in np.geomspace(300e6, 1200e6, 81)]
    loss = [
        float(np.sum(np.log(model_us(a, b, flops[fitted]) / measured[fitted]) ** 2))
        for a, b in grid
    ]
    latency_us, rate = grid[int(np.argmin(loss))]
    error = np.abs(model_us(latency_us, rate, flops) / measured - 1) * 100
    picture = Picture(
        "A cost model and its fit",
        "Times of products over their size, on logarithmic axes. The default curve misses the"
        " dots, the fitted one passes through the filled dots, and hollow dots, which it has "
        "not seen, judge it.",
        316,
    )

    def place(flops_of: float, time_us: float) -> tuple[float, float]:
        x = LEFT + 44 + (WIDTH - 2 * LEFT - 56) * (np.log10(flops_of) - 7.3) / (11.9 - 7.3)
        return float(x), float(258 - 216 * (np.log10(time_us) - 0.5) / 2.6)

    picture.text(LEFT, 20, "time of a product, us, over its operations", "strong")
    for time_us in (10, 100, 1000):
        (x0, y), (x1, _) = place(10**7.3, time_us), place(10**11.9, time_us)
        picture.path([(x0, y), (x1, y)], "faint")
        picture.text(LEFT + 36, y + 4, f"{time_us}", "soft", "end")
    for power in (8, 9, 10, 11):
        x, _ = place(10.0**power, 10)
        picture.text(x, 278, f"10^{power}", "soft", "middle")
    line = np.logspace(7.35, 11.85, 60)
    for kind, a, b in (("curve c3", 3.0, 990e6), ("curve c1", latency_us, rate)):
        picture.path([place(f, t) for f, t in zip(line, model_us(a, b, line), strict=True)], kind)
    for at, time_us, out in zip(flops, measured, held_out, strict=True):
        x, y = place(at, time_us)
        picture.dot(x, y, "f2", 4)
        if out:
            picture.dot(x, y, "page", 2.2)
    for line_number, (kind, words) in enumerate(
        (
            ("curve c3", "default: data sheet and a usual latency"),
            ("curve c1", f"fitted to the filled dots: {error[fitted].mean():.0f} % off"),
        )
    ):
        y = 44 + 18 * line_number
        picture.path([(LEFT + 54, y - 4), (LEFT + 76, y - 4)], kind)
        picture.text(LEFT + 84, y, words)
    picture.dot(LEFT + 65, 76, "f2", 4)
    picture.dot(LEFT + 65, 76, "page", 2.2)
    picture.text(LEFT + 84, 80, f"held out: {error[held_out].mean():.0f} % off")
    picture.text(LEFT, 304, "What was held out says what a fit is worth.", "soft")
    return picture


def draw_memories() -> Picture:
    """The miss-ratio curve of a log, and what each memory of a server holds of its table."""
    rng = np.random.default_rng(3)
    rows = 20_000
    popularity = 1.0 / np.arange(1, rows + 1) ** 0.9
    rows_asked = rng.choice(rows, 200_000, p=popularity / popularity.sum())
    curve = lru_curve(rows_asked)
    sizes = np.unique(np.geomspace(20, rows, 60).astype(int))
    misses = np.array([float(1 - curve.hit_ratio(int(size))) for size in sizes])
    picture = Picture(
        "Hits by size of cache, and memories",
        "A falling curve of misses over cached rows. Two marks on it are the fastest and the "
        "second memory; what misses both is read from the third.",
        350,
    )

    def place(size: float, miss: float) -> tuple[float, float]:
        x = LEFT + 40 + (WIDTH - 2 * LEFT - 52) * np.log(size / 20) / np.log(rows / 20)
        return float(x), float(210 - 176 * miss)

    picture.text(LEFT, 18, "lookups that miss, over the rows that a memory holds", "strong")
    for miss in (0.0, 0.5, 1.0):
        (x0, y), (x1, _) = place(20, miss), place(rows, miss)
        picture.path([(x0, y), (x1, y)], "faint")
        picture.text(LEFT + 34, y + 4, f"{miss:.0%}", "soft", "end")
    for size in (100, 1_000, 10_000):
        x, y = place(size, 0)
        picture.text(x, y + 17, f"{size:,}", "soft", "middle")
    picture.path([place(s, m) for s, m in zip(sizes, misses, strict=True)], "curve c1")
    first, second = (float(1 - curve.hit_ratio(size)) for size in (400, 4_000))
    for size, miss, kind in ((400, first, "f2"), (4_000, second, "f3")):
        x, y = place(size, miss)
        picture.path([(x, y), (x, 210)], "faint")
        picture.dot(x, y, kind)
    shares = (1 - first, first - second, second)
    words = ("HBM, 400 rows", "DRAM, 4,000 rows", "SSD, all rows")
    kinds = ("f2", "f3", "f4")
    picture.text(LEFT, 250, "where lookups are answered", "strong")
    x = float(LEFT)
    for share, kind in zip(shares, kinds, strict=True):
        width = (WIDTH - 2 * LEFT) * share
        picture.box(x, 258, width - 1, 22, kind)
        x += width
    for at, (share, word, kind) in enumerate(zip(shares, words, kinds, strict=True)):
        x = LEFT + 142 * at
        picture.box(x, 294, 10, 10, kind)
        picture.text(x + 15, 303, word)
        picture.text(x + 15, 319, f"{share:.0%}", "soft")
    first_lookups = f"{misses[-1]:.0%} of all are first lookups, which no cache has"
    picture.text(LEFT, 339, first_lookups, "soft")
    return picture


def draw_energy() -> Picture:
    """A power log with the stamps of MLPerf, and what the integral takes."""
    time_s = np.arange(0, 61.0)
    rng = np.random.default_rng(2)
    power_w = np.where((time_s > 14) & (time_s < 50), 640.0, 180.0)
    power_w += np.where((time_s > 8) & (time_s <= 14), 160.0, 0.0)
    power_w += rng.normal(0, 14, len(time_s))
    picture = Picture(
        "The energy window",
        "Power over time: idle, initialisation, the run between its start and stop stamps, "
        "idle again. Only what lies between the stamps of the run counts; a window that is "
        "stamped too wide takes in idle time.",
        298,
    )

    def place(at_s: float, watts: float) -> tuple[float, float]:
        return LEFT + 40 + (WIDTH - 2 * LEFT - 52) * at_s / 60, 210 - 176 * watts / 800

    inside = [(t, p) for t, p in zip(time_s, power_w, strict=True) if 15 <= t <= 49]
    corners = [place(15, 0), *(place(t, p) for t, p in inside), place(49, 0)]
    at = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
    picture.text(LEFT, 18, "power of a node, W, over time, s", "strong")
    for watts in (0, 400, 800):
        (x0, y), (x1, _) = place(0, watts), place(60, watts)
        picture.path([(x0, y), (x1, y)], "faint")
        picture.text(LEFT + 34, y + 4, f"{watts}", "soft", "end")
    picture.parts.append(f'<polygon points="{at}" class="f1 pale"/>')
    picture.path([place(t, p) for t, p in zip(time_s, power_w, strict=True)], "curve c1")
    for at_s in (15, 49):
        picture.path([place(at_s, 0), place(at_s, 800)], "curve c2")
    for at_s in (4, 57):
        picture.path([place(at_s, 0), place(at_s, 800)], "faint")
    picture.text(place(32, 0)[0], 150, "the run: its integral", "", "middle")
    picture.text(place(32, 0)[0], 166, "is the energy", "", "middle")
    series = PowerSeries(None, (time_s * 1e9).astype(np.int64), power_w, "node.csv")
    run_w, log_w = (mean_power_w(series, a * 10**9, b * 10**9) for a, b in ((15, 49), (4, 57)))
    for at_s, word in ((15, "run_start"), (49, "run_stop")):
        picture.text(place(at_s, 0)[0], 227, word, "", "middle")
    for at_s, word, anchor in ((4, "power begins", "start"), (57, "power ends", "end")):
        picture.text(place(at_s, 0)[0], 244, word, "soft", anchor)
        picture.path([place(at_s, 0), (place(at_s, 0)[0], 232)], "faint")
    picture.text(LEFT, 270, f"between the stamps of the run: {run_w:.0f} W", "strong")
    picture.text(
        LEFT, 288, f"between the stamps of the power log: {log_w:.0f} W, with idle time", "soft"
    )
    return picture


PICTURES = {
    "graph": draw_graph,
    "wait": draw_wait,
    "program": draw_program,
    "ranks": draw_ranks,
    "critical": draw_critical,
    "costs": draw_costs,
    "memories": draw_memories,
    "energy": draw_energy,
}


def main(folder: Path) -> None:
    """Write every picture to a folder."""
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
