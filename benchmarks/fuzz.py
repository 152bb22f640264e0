"""Fuzz every reader: nothing but a result, or an error that a user can mend.

    python benchmarks/fuzz.py [TARGET...] [--seconds N] [--executions N] [--corpus DIR]
    python benchmarks/fuzz.py --summary [--write docs/fuzzing.md]
    python benchmarks/fuzz.py --replay FILE...

An input is a finding where its reader raises anything but a `JaxperfError`, warns, says more than
one line, takes over a second or over 512 MiB; it is kept once for each place, the shortest of all,
as `findings/TARGET-PLACE.bin` beside its traceback. An input that takes five seconds or two
gigabytes ends the process; the rest is run by another.

Coverage guides it through atheris (`uv pip install atheris`): of the fastest readers all
executions, of others a part; the rest is drawn, at thrice the pace, from the corpus that this has
found, and without atheris all from the seeds. Corpus, findings and the count of executions lie in
`build/fuzz`.
"""

import argparse
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

LONGEST_S, LARGEST_MB = 5, 2048
_SLOW_S, _GROWN_KB = 1.0, 512 << 10
_REPORT_S = 10.0
_LONGEST_MESSAGE = 2500
_TRIES = 20
"""Processes of one target that may end before their time."""
_FROM_SEEDS = 0.4
"""Of the mutations: an input of the corpus is often refused early, and so is what is made of it."""


class _Hangs(BaseException):
    """An input takes too long."""


class Harness:
    """Runs a reader on inputs, keeps what it should not have done, and counts."""

    def __init__(self, name: str, folder: Path, executions: int, seconds: float):
        from benchmarks._fuzz_targets import TARGETS, NotAnInput
        from jaxperf.errors import JaxperfError

        self.target = TARGETS[name]
        self._read = self.target.reader()
        self.seeds = self.target.seeds()
        self._refused, self._skipped = JaxperfError, NotAnInput
        self._folder, self._log = folder / "findings", folder / "log.jsonl"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._executions, self._until = executions, time.monotonic() + seconds
        self._draw = random.Random(0)
        for seed in self.seeds:
            self._warm(seed)
        self._reported = time.monotonic()
        self._known: dict[str, int] = {}
        self._peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.count = self._counted = self._good = 0

    def _warm(self, data: bytes) -> None:
        """What is imported when it is first used shall be there."""
        try:
            self._read(data)
        except Exception:
            pass

    def run(self, data: bytes) -> None:
        """One execution."""
        began = time.process_time()
        try:
            self._read(data)
            self._good += 1
        except self._skipped:
            return
        except self._refused as error:
            text = str(error)
            if len(text.splitlines()) != 1 or len(text) > _LONGEST_MESSAGE:
                self._keep(data, error, "message")
        except RecursionError as error:
            self._keep(data, error, "recursion")
        except Exception as error:
            self._keep(data, error, type(error).__name__)
        took_s = time.process_time() - began
        self.count += 1
        if took_s > _SLOW_S:
            self._keep(data, None, "slow")
        if not self.count & 15:
            peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if peak_kb > self._peak_kb + _GROWN_KB:
                self._keep(data, None, "memory")
            self._peak_kb = peak_kb
            now = time.monotonic()
            if now - self._reported > _REPORT_S:
                self._report(now)
            if self.count >= self._executions or now > self._until:
                self.end()

    def mutate(self, data: bytes, most: int, seed: int) -> bytes:
        """Another input made of one."""
        self._draw.seed(seed)
        if self._draw.random() < _FROM_SEEDS:
            data = self._draw.choice(self.seeds)
        try:
            changed = self.target.mutation(data, self._draw)
        except Exception:
            changed = self._draw.choice(self.seeds)
        return changed if len(changed) <= most else self._draw.choice(self.seeds)

    def end(self) -> None:
        """Count, and end the process: libFuzzer knows no other way."""
        self._report(time.monotonic())
        os._exit(0)

    def _report(self, now: float) -> None:
        line = {
            "target": self.target.name,
            "executions": self.count - self._counted,
            "read": self._good,
            "seconds": round(now - self._reported, 3),
            "findings": len(self._known),
            "peak_mb": self._peak_kb >> 10,
        }
        with open(self._log, "a") as file:
            file.write(json.dumps(line) + "\n")
        self._counted, self._reported, self._good = self.count, now, 0

    def keep_hang(self, data: bytes) -> None:
        """One execution more, that did not come to an end."""
        self.count += 1
        self._keep(data, None, "hang")

    def _keep(self, data: bytes, error: Exception | None, kind: str) -> None:
        frames = traceback.extract_tb(error.__traceback__) if error else []
        ours = [f for f in frames if "/jaxperf/" in f.filename] or frames
        place = f"{Path(ours[-1].filename).stem}-{ours[-1].lineno}" if ours else ""
        key = f"{self.target.name}-{kind}{place}"
        if len(data) >= self._known.get(key, 1 << 30):
            return
        self._known[key] = len(data)
        (self._folder / f"{key}.bin").write_bytes(data)
        text = "".join(traceback.format_exception(error)) if error else kind
        (self._folder / f"{key}.txt").write_text(text, errors="backslashreplace")


def _child(
    name: str, folder: Path, guided: bool, executions: int, seconds: float, seed: int
) -> None:
    """Fuzz one target in this process, which ends here."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", RuntimeWarning)
    memory = 2 * LARGEST_MB << 20
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    if not guided:
        _without_coverage(
            Harness(name, folder, executions, seconds), folder / "corpus" / name, seed
        )
        return
    import atheris  # pyright: ignore[reportMissingImports, reportMissingModuleSource]

    with atheris.instrument_imports(  # pyright: ignore[reportAttributeAccessIssue]
        include=["jaxperf"], enable_loader_override=False
    ):
        harness = Harness(name, folder, executions, seconds)
    corpus = folder / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for seed_input in harness.seeds:
        (corpus / f"seed-{zlib.crc32(seed_input):08x}").write_bytes(seed_input)
    artifacts = folder / "findings" / f"{name}-"
    options = [
        *(f"-timeout={LONGEST_S}", f"-rss_limit_mb={LARGEST_MB}", "-verbosity=0"),
        *(f"-max_len={harness.target.longest}", f"-artifact_prefix={artifacts}"),
        *("-len_control=0", "-print_final_stats=0", "-reload=0", f"-seed={seed}"),
    ]
    atheris.Setup(["fuzz", *options, str(corpus)], harness.run, custom_mutator=harness.mutate)
    atheris.Fuzz()


def _without_coverage(harness: Harness, corpus: Path, seed: int) -> None:
    def hangs(number: int, frame: object) -> None:
        raise _Hangs

    signal.signal(signal.SIGALRM, hangs)
    draw = random.Random(seed)
    pool = [*harness.seeds, *(path.read_bytes() for path in sorted(corpus.glob("*")))]
    while True:
        data = harness.mutate(draw.choice(pool), harness.target.longest, draw.getrandbits(31))
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        try:
            harness.run(data)
        except _Hangs:
            harness.keep_hang(data)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _executed(log: Path) -> dict[str, dict[str, float]]:
    """By target, sums over the lines of a log."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in log.read_text().splitlines() if log.exists() else ():
        each = json.loads(line)
        sums = found[each["target"]]
        for key in ("executions", "read", "seconds"):
            sums[key] += each[key]
        sums["peak_mb"] = max(sums["peak_mb"], each["peak_mb"])
    return found


def summary(log: Path) -> str:
    """The table of executions for the page of validation."""
    found = _executed(log)
    rows = [
        "| Reader | Executions | of them read, not refused | a second | peak MiB |",
        "|---|--:|--:|--:|--:|",
    ]
    total = {key: sum(each[key] for each in found.values()) for key in ("executions", "read")}
    for name in sorted(found):
        each = found[name]
        pace = each["executions"] / max(each["seconds"], 1e-9)
        share = f"{each['read'] / max(each['executions'], 1):.0%}"
        count, peak_mb = f"{each['executions']:,.0f}", f"{each['peak_mb']:.0f}"
        rows.append(f"| {name} | {count} | {share} | {pace:,.0f} | {peak_mb} |")
    rows.append(f"| all | {total['executions']:,.0f} | | | |")
    return "\n".join(rows) + "\n"


def write_summary(page: Path, table: str) -> None:
    """Put the table between the marks `<!-- fuzz -->` and `<!-- /fuzz -->` of a page."""
    text = page.read_text()
    before, begin, rest = text.partition("<!-- fuzz -->")
    _, end, after = rest.partition("<!-- /fuzz -->")
    if not begin or not end:
        sys.exit(f"{page}: no marks <!-- fuzz --> and <!-- /fuzz -->")
    page.write_text(f"{before}{begin}\n{table}{end}{after}")


def _replay(files: Iterable[str]) -> None:
    """Run inputs that were kept, with their traceback; their names begin with their target."""
    from benchmarks._fuzz_targets import TARGETS

    for file in files:
        name = max((n for n in TARGETS if Path(file).name.startswith(f"{n}-")), key=len)
        print(f"{file}:")
        try:
            TARGETS[name].reader()(Path(file).read_bytes())
            print("  read")
        except Exception:
            traceback.print_exc()


def _run(names: list[str], folder: Path, executions: int | None, seconds: float) -> None:
    """Each target in processes of its own until it has its executions."""
    from benchmarks._fuzz_targets import TARGETS

    log = folder / "log.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    has_atheris = importlib.util.find_spec("atheris") is not None
    for name in names:
        target, began = TARGETS[name], time.monotonic()
        before = _executed(log)[name]["executions"]
        wanted = before + executions if executions else target.executions
        parts = [(wanted * target.guided, True), (wanted, False)]
        for until, guided in parts[0 if has_atheris else 1 :]:
            for _ in range(_TRIES):
                done, left_s = (
                    _executed(log)[name]["executions"],
                    seconds + began - time.monotonic(),
                )
                if done >= until or left_s <= 0:
                    break
                seed = str(int(done) % 2**31 + 1)
                numbers = [str(int(guided)), str(int(until - done)), str(left_s), seed]
                command = [sys.executable, __file__, "--child", name, str(folder), *numbers]
                with open(folder / "children.txt", "a") as file:
                    child = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
                    code = child.wait()
                shutil.rmtree(f"/dev/shm/jaxperf-fuzz-{child.pid}", ignore_errors=True)
                done = _executed(log)[name]["executions"]
                _say(f"{name}: {done:,.0f} of {wanted:,.0f} executions, exit code {code}")


def _say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


def _parser(names: Callable[[], Iterable[str]]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(names())}")
    parser.add_argument("--seconds", type=float, default=1e9, help="of each target, at most")
    parser.add_argument("--executions", type=int, help="of each target; its part of 10 M else")
    parser.add_argument("--corpus", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--summary", action="store_true", help="the table of executions so far")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into a page")
    parser.add_argument("--replay", nargs="+", metavar="FILE", help="run inputs that were kept")
    return parser


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        name, folder, guided, executions, seconds, seed = sys.argv[2:]
        _child(name, Path(folder), guided == "1", int(executions), float(seconds), int(seed))
        return
    from benchmarks._fuzz_targets import TARGETS

    options = _parser(lambda: TARGETS).parse_args()
    folder = options.corpus.resolve()
    if options.replay:
        _replay(options.replay)
        return
    if not options.summary:
        unknown = set(options.targets) - set(TARGETS)
        if unknown:
            sys.exit(f"no such target: {', '.join(sorted(unknown))}")
        _run(options.targets or list(TARGETS), folder, options.executions, options.seconds)
    table = summary(folder / "log.jsonl")
    print(table)
    if options.write:
        write_summary(options.write, table)


if __name__ == "__main__":
    main()
