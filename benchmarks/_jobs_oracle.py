"""Simulated jobs whose true step under another job is known, re-targeted from their traces alone.

Two simulators tell the truth: that of `oracle/`, whose programs and costs are its own, and the
package's, whose costs are others. Each change is one scenario of `whatif`; the recorded job and the
facts of the machine that a user would know are all that is given.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from _tables import markdown, number

from jaxperf import whatif
from jaxperf.config import Hardware, Job, Link, Scenario, load_hardware
from jaxperf.simulator import SimulatedJob, simulate, write_traces

FIELDS = {
    "dp": "data_parallel",
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "layers": "layers",
    "hidden": "hidden_size",
    "heads": "attention_heads",
    "seq": "sequence_length",
    "vocab": "vocabulary_size",
    "micro": "micro_batch_size",
    "micros": "micro_batches",
    "buckets": "gradient_buckets",
}
SIMULATED = (
    SimulatedJob(
        layers=4, hidden_size=1024, micro_batches=4, data_parallel=2, pipeline_parallel=2, steps=4
    ),
    SimulatedJob(layers=4, hidden_size=1024, micro_batches=4, steps=4),
    SimulatedJob(layers=4, hidden_size=1024, micro_batches=2, tensor_parallel=2, steps=4),
    SimulatedJob(layers=4, hidden_size=512, sequence_length=512, micro_batch_size=1, steps=4),
)
CHANGES: tuple[dict[str, float], ...] = (
    {"data_parallel": 2},
    {"data_parallel": 4},
    {"tensor_parallel": 2},
    {"tensor_parallel": 4},
    {"pipeline_parallel": 2},
    {"pipeline_parallel": 4},
    {"layers": 8},
    {"hidden_size": 2048},
    {"sequence_length": 2048},
    {"vocabulary_size": 65536},
    {"micro_batches": 8},
    {"micro_batch_size": 8},
)


@dataclass(frozen=True)
class Answer:
    """One change, what it came to, and what it truly comes to."""

    source: str
    change: str
    step_us: float
    true_us: float

    @property
    def error_percent(self) -> float:
        return 100.0 * (self.step_us / self.true_us - 1.0)


def oracle_job(truth: Mapping) -> Job:
    """The recorded job of a `truth.json`."""
    recorded = truth["job"]
    return Job(
        **{field: recorded[key] for key, field in FIELDS.items()},
        rank_order="tp-dp-pp",
        schedule=truth["schedule"],
        sharding="zero3" if recorded["fsdp"] else "none",
        recompute="full" if recorded["recompute"] else "none",
    )


def oracle_hardware(truth: Mapping) -> Hardware:
    """The machine by the facts of a `truth.json`; latencies are typical ones."""
    facts = truth["hardware"]
    known = load_hardware("h100")
    return msgspec.structs.replace(
        known,
        name=facts["name"],
        gpus_per_node=facts["gpus_per_node"],
        streaming_multiprocessors=facts["sms"],
        memory_bytes_per_s=facts["hbm_gbytes_per_s"] * 1e9,
        launch_queue=facts["launch_queue"],
        peak_flops_per_s={"bf16": facts["peak_bf16_tflops"] * 1e12},
        links={
            "nvlink": Link(facts["nvlink_bus_gbytes_per_s"] * 1e9, 9.0),
            "network": Link(facts["network_bus_gbytes_per_s_per_gpu"] * 1e9, 24.0),
        },
    )


def job_changes(truth: Mapping) -> list[tuple[str, dict, float]]:
    """The changes of a job in a `truth.json`: a text, fields of the job, and the true step."""
    found = []
    for entry in truth["what_if"]:
        change = entry["change"]
        if not all(key in FIELDS or key in ("recompute", "fsdp") for key in change):
            continue
        values: dict[str, float | str] = {
            FIELDS[key]: value for key, value in change.items() if key in FIELDS
        }
        if "recompute" in change:
            values["recompute"] = "full" if change["recompute"] else "none"
        if "fsdp" in change:
            values["sharding"] = "zero3" if change["fsdp"] else "none"
        text = ", ".join(f"{key} {value}" for key, value in change.items())
        found.append((text, values, entry["step_us"]))
    return found


def oracle_answers(shared: Path, *, one_rank: bool = False) -> Iterator[Answer]:
    """Every change of a job in every truth of `oracle/`, from all ranks or the first alone."""
    for folder in sorted((shared / "oracle").glob("*/")):
        truth = json.loads((folder / "truth.json").read_text())
        asked = job_changes(truth)
        if not asked:
            continue
        result = whatif(
            folder / "rank0.pt.trace.json.gz" if one_rank else folder,
            job=oracle_job(truth),
            hardware=oracle_hardware(truth),
            scenarios=[Scenario(name=text, set=values) for text, values, _ in asked],
        )
        for (text, _, true_us), answer in zip(asked, result.scenarios, strict=True):
            yield Answer(folder.name, text, answer.step_us, true_us)


def simulated_answers() -> Iterator[Answer]:
    """Changes of jobs that the package's simulator runs."""
    for base in SIMULATED:
        text = ", ".join(
            f"{name} {getattr(base, field)}"
            for name, field in FIELDS.items()
            if field not in ("gradient_buckets", "vocabulary_size", "attention_heads")
        )
        changes = [c for c in CHANGES if any(getattr(base, k) != v for k, v in c.items())]
        with tempfile.TemporaryDirectory() as folder:
            paths = write_traces(simulate(base), folder)
            scenarios = [Scenario(name=str(c), set=_with_schedule(base, c)) for c in changes]
            result = whatif(paths, job=job_of(base), hardware="h100", scenarios=scenarios)
        for change, answer in zip(changes, result.scenarios, strict=True):
            true_us = simulate(replace(base, **change)).step_us  # pyright: ignore[reportArgumentType]
            words = ", ".join(f"{key} {value}" for key, value in change.items())
            yield Answer(text, words, answer.step_us, true_us)


def job_of(simulated: SimulatedJob) -> Job:
    """A simulated job as a user would describe it."""
    names = [field for field in FIELDS.values() if field != "gradient_buckets"]
    return Job(
        **{name: getattr(simulated, name) for name in names},
        rank_order="tp-dp-pp",
        schedule="1F1B" if simulated.pipeline_parallel > 1 else "none",
    )


def _with_schedule(base: SimulatedJob, change: Mapping[str, float]) -> dict[str, float | str]:
    stages = change.get("pipeline_parallel", base.pipeline_parallel)
    return {**change, "schedule": "1F1B" if stages > 1 else "none"}


def table(shared: Path) -> str:
    """Each change with its error, and their mean and worst."""
    texts = []
    for title, answers in (
        ("`oracle/`, every change of a job", list(oracle_answers(shared))),
        ("the same from the trace of rank 0 alone", list(oracle_answers(shared, one_rank=True))),
        ("the package's simulator", list(simulated_answers())),
    ):
        rows = [
            [
                a.source,
                a.change,
                number(a.step_us, 0),
                number(a.true_us, 0),
                f"{a.error_percent:+.1f}",
            ]
            for a in answers
        ]
        errors = [abs(a.error_percent) for a in answers]
        summary = (
            f"{title}: {len(answers)} changes, mean {np.mean(errors):.1f} %, "
            f"worst {max(errors):.1f} %."
        )
        head = ["job", "change", "step us", "true us", "error %"]
        texts.append(f"{summary}\n\n{markdown(head, rows)}")
    return "\n\n".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    print(table(parser.parse_args().shared))


if __name__ == "__main__":
    main()
