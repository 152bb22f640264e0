"""Other machines: how unknown work moves, what a fit has not seen, and what is refused."""

from dataclasses import fields, replace

import jax
import numpy as np
import pytest

from jaxperf import answer_scenarios, build_graph, read_run
from jaxperf.config import Scenario, hardware_numbers, load_hardware, set_hardware
from jaxperf.cost import (
    Fit,
    Work,
    cost_us,
    default_model,
    device_of,
    draw_models,
    matmul_work,
    unknown_work,
    work_quantities,
)
from jaxperf.errors import ConfigError
from jaxperf.graph import TaskClass
from jaxperf.report import write_fit
from jaxperf.simulator import (
    Annotation,
    Rank,
    SimulatedJob,
    Work as HostWork,
    execute,
    simulate,
    write_traces,
)
from jaxperf.whatif._machines import (
    _ratio,
    drawn_time_ratio,
    find_machines,
    launch_queue,
    out_of_range,
    time_ratio,
)

H100, H200 = load_hardware("h100"), load_hardware("h200")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A run without noise, and its graph."""
    folder = tmp_path_factory.mktemp("job")
    write_traces(simulate(SimulatedJob(layers=1, data_parallel=2, steps=3)), folder)
    run = read_run(folder)
    return run, build_graph(run)


def machines(job, changes, fit=None, hardware="h100"):
    run, graph = job
    return find_machines(run, graph, [Scenario(set=changes)], hardware, fit)


def answered(job, *scenarios, **options):
    run, graph = job
    return answer_scenarios(run, graph, scenarios, **options)


def fit_on(*seen, **columns):
    """A fit of nothing that has seen the numbers of some machines."""
    numbers = [hardware_numbers(each) for each in seen]
    keys = set.intersection(*(set(each) for each in numbers))
    spans = {key: (min(n[key] for n in numbers), max(n[key] for n in numbers)) for key in keys}
    names = tuple(each.name for each in seen)
    return Fit(hardware=names, numbers={}, hardware_range=spans, **columns)


# What a fit has not seen
# ---------------------------------------------------------------------------------------


def test_without_a_fit_every_changed_number_is_out_of_range(job):
    found = machines(job, {"memory_bytes_per_s": 4e12, "l2_bytes": 60e6})
    assert out_of_range(found, 0) == (
        "memory_bytes_per_s = 4e+12: the model was not fitted",
        "l2_bytes = 6e+07: the model was not fitted",
    )
    assert "model-not-fitted" in {note.code for note in found.notes}


def test_a_number_set_to_what_it_is_changes_nothing_and_is_not_named(job):
    same = {"memory_bytes_per_s": H100.memory_bytes_per_s}
    assert machines(job, same).hardware == (None,)
    assert out_of_range(machines(job, same), 0) == ()
    both = machines(job, {**same, "l2_bytes": 60e6})
    assert out_of_range(both, 0) == ("l2_bytes = 6e+07: the model was not fitted",)


def test_another_machine_names_each_number_that_differs_but_the_size_of_its_memory(job):
    found = out_of_range(machines(job, {"hardware": "h200"}), 0)
    assert found == (
        "memory_bytes_per_s = 4.8e+12: the model was not fitted",
        "links.nvlink.bus_bytes_per_s = 3.95e+11: the model was not fitted",
    )
    assert H100.memory_bytes != H200.memory_bytes


def test_a_machine_that_was_fitted_is_in_range_and_so_is_what_lies_between(job):
    fit = fit_on(H100, H200)
    assert out_of_range(machines(job, {"hardware": "h200"}, fit), 0) == ()
    assert out_of_range(machines(job, {"memory_bytes_per_s": 4e12}, fit), 0) == ()
    beyond = out_of_range(machines(job, {"memory_bytes_per_s": 5e12}, fit), 0)
    assert beyond == ("memory_bytes_per_s = 5e+12: fitted from 3.35e+12 to 4.8e+12",)


def test_a_fit_of_one_machine_that_is_applied_to_another_names_the_recorded_one(job):
    fit = fit_on(load_hardware("a100"), H200)
    found = out_of_range(machines(job, {"memory_bytes_per_s": 4e12}, fit), 0)
    assert found == (f"{H100.name}: fitted on NVIDIA A100-SXM4-80GB, NVIDIA H200 only",)


def test_a_number_of_which_a_fit_says_nothing_is_out_of_range(job):
    fit = Fit(hardware=(H100.name,), numbers={})
    (text,) = out_of_range(machines(job, {"l2_bytes": 60e6}, fit), 0)
    assert text.startswith("l2_bytes = 6e+07: fitted from")


def test_a_launch_queue_needs_no_fit(job):
    found = machines(job, {"launch_queue": 16})
    assert out_of_range(found, 0) == ()
    assert launch_queue(Scenario(set={"launch_queue": 16})) == 16
    assert launch_queue(Scenario(set={"l2_bytes": 16})) is None


def test_the_size_of_the_memory_changes_no_time_and_is_refused(job):
    with pytest.raises(ConfigError, match="set memory_bytes: changes no time"):
        machines(job, {"memory_bytes": 200e9})


def codes(found):
    return {note.code for note in found.notes}


def test_work_beyond_what_was_fitted_is_noted_with_its_count(job):
    work = machines(job, {"l2_bytes": 60e6}).work
    assert work
    spans = {name: (x.min(), x.max()) for name, rows, x in work_quantities(work) if len(rows)}
    inside = machines(job, {"l2_bytes": 60e6}, fit_on(H100, work_range=spans))
    assert codes(inside).isdisjoint({"work-out-of-range", "model-not-fitted"})
    # Within 1.5 times the range is as good as within it.
    near = {name: (low * 1.4, high / 1.4) for name, (low, high) in spans.items()}
    assert "work-out-of-range" not in codes(
        machines(job, {"l2_bytes": 60e6}, fit_on(H100, work_range=near))
    )
    largest = spans["matmul.flops"][1]
    short = spans | {"matmul.flops": (spans["matmul.flops"][0], largest / 1.6)}
    outside = machines(job, {"l2_bytes": 60e6}, fit_on(H100, work_range=short))
    (note,) = (note for note in outside.notes if note.code == "work-out-of-range")
    (flops,) = (x for name, _, x in work_quantities(work) if name == "matmul.flops")
    beyond = int((flops > largest / 1.6 * 1.5).sum())
    assert beyond > 0
    assert note.text.startswith(f"{beyond} of {len(work)} pieces of work")


# Work of unknown size
# ---------------------------------------------------------------------------------------


UNKNOWN = (
    TaskClass.GEMM,
    TaskClass.ATTENTION,
    TaskClass.CONVOLUTION,
    TaskClass.MOE,
    TaskClass.ELEMENTWISE,
    TaskClass.OTHER,
    TaskClass.COMMUNICATION,
)


def joined(*works):
    columns = [[getattr(work, field.name) for work in works] for field in fields(Work)]
    names = [field.name for field in fields(Work)]
    return Work(**{name: np.concatenate(c) for name, c in zip(names, columns, strict=True)})


def unknown(*classes):
    work = unknown_work(len(classes))
    work.task_class[:] = classes
    return work


def slower():
    """An H100 with peaks of fp16 and bf16, memory and links slower by different factors."""
    changed = set_hardware(
        H100,
        {
            "peak_flops_per_s.fp16": H100.peak_flops_per_s["fp16"] / 3,
            "peak_flops_per_s.bf16": H100.peak_flops_per_s["bf16"] / 2,
            "memory_bytes_per_s": H100.memory_bytes_per_s / 5,
            "links.nvlink.bus_bytes_per_s": H100.links["nvlink"].bus_bytes_per_s / 7,
            "links.network.bus_bytes_per_s": H100.links["network"].bus_bytes_per_s / 11,
        },
    )
    return device_of(changed)


@pytest.mark.parametrize(
    "known, peak",
    [
        ([], 3.0),
        ([matmul_work(512, 512, [512, 1024], precision="bf16")], 2.0),
        (
            [
                matmul_work(512, 512, [512, 1024], precision="bf16"),
                matmul_work(512, 512, 512, precision="fp32"),
            ],
            2.0,
        ),
        ([matmul_work(512, 512, 512, precision="fp32")], 1.0),
    ],
    ids=["none", "bf16", "mostly bf16", "fp32"],
)
def test_unknown_work_moves_by_what_bounds_its_class(known, peak):
    model, work = default_model(H100), joined(unknown(*UNKNOWN), *known)
    ratio = np.asarray(_ratio(work)(model, slower()))
    assert ratio[:7] == pytest.approx([peak] * 4 + [5.0, 5.0, 7.0])


def test_known_work_moves_by_its_modelled_time():
    model, products = default_model(H100), matmul_work(512, [512, 8192], [4096, 8192])
    work = joined(unknown(*UNKNOWN), products)
    time_us = jax.jit(lambda model: cost_us(model, products))
    expected = np.asarray(time_us(replace(model, device=slower()))) / np.asarray(time_us(model))
    assert np.asarray(_ratio(work)(model, slower()))[7:] == pytest.approx(expected)
    assert (expected > 1.2).all()


def test_models_drawn_from_a_fit_move_each_as_alone():
    leaf = "device.memory_bytes_per_s"
    fit = Fit(hardware=(H100.name,), numbers={leaf: (0.9,)}, leaves=(leaf,), covariance=((0.1,),))
    models = draw_models(fit, H100, 3, 0)
    device = replace(models.device, memory_bytes_per_s=models.device.memory_bytes_per_s / 5)
    work = joined(unknown(*UNKNOWN), matmul_work(64, 64, 4096))
    ratio = np.asarray(_ratio(work)(models, device))
    assert ratio.shape == (3, 8)
    assert ratio[:, :7] == pytest.approx(np.tile([1.0] * 4 + [5.0, 5.0, 1.0], (3, 1)))


def test_kernels_of_unknown_work_are_noted_with_their_share(job):
    run, graph = job
    blind = replace(graph, event=np.full(graph.tasks, -1, graph.event.dtype))
    found = machines((run, blind), {"memory_bytes_per_s": H100.memory_bytes_per_s / 5})
    (note,) = (note for note in found.notes if note.code == "work-unknown")
    assert "100.0 % of the device's time" in note.text
    assert found.work
    classes = found.work.task_class
    by_peak = np.isin(classes, [TaskClass.GEMM, TaskClass.ATTENTION])
    expected = np.where(by_peak | (classes == TaskClass.COMMUNICATION), 1.0, 5.0)
    assert time_ratio(found, 0) == pytest.approx(expected)
    # There is nothing to draw from without a fit.
    assert drawn_time_ratio(found, 0, 4, 0) == pytest.approx(expected)


def test_a_number_beyond_reason_gives_no_time_and_is_refused(job):
    run, graph = job
    blind = replace(graph, event=np.full(graph.tasks, -1, graph.event.dtype))
    found = machines((run, blind), {"memory_bytes_per_s": 1e-300})
    with pytest.raises(ConfigError, match="gives no time"):
        time_ratio(found, 0)


# What cannot be asked
# ---------------------------------------------------------------------------------------


HALF = Scenario(name="half", scale={"gemm": 0.5})


def test_a_wrong_fit_or_machine_is_refused_also_where_none_is_needed(job, tmp_path):
    run, graph = job
    with pytest.raises(ConfigError, match="absent.toml: cannot be read"):
        answered(job, HALF, fit=tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="no such hardware; got 'h101'"):
        answered(job, HALF, hardware="h101")
    path = tmp_path / "fit.toml"
    write_fit(Fit(hardware=("a",), numbers={"device.l2_bytes": (-1.0,)}), path)
    with pytest.raises(ConfigError, match="fit.toml: numbers device.l2_bytes: not quantities"):
        find_machines(run, graph, [HALF], None, path)
    write_fit(fit_on(H100), path, overwrite=True)
    found = find_machines(run, graph, [HALF], "h100", path)
    assert found.hardware == (None,) and (found.work_of_task == -1).all()


def test_a_machine_that_lacks_a_key_is_told_which_it_has(job):
    with pytest.raises(ConfigError, match="set links.xgmi.latency_us: no such key.*links.nvlink"):
        machines(job, {"links.xgmi.latency_us": 3.0})
    # A key is looked up on the machine that `hardware` names.
    other = machines(job, {"hardware": "mi300x", "links.xgmi.latency_us": 3.0}).hardware[0]
    assert other and other.links["xgmi"].latency_us == 3.0


def test_nothing_asked_is_refused(job):
    with pytest.raises(ConfigError, match="nothing is asked"):
        answered(job)


@pytest.mark.parametrize("samples", [1, 19])
def test_too_few_samples_for_an_interval_are_refused(job, samples):
    with pytest.raises(ConfigError, match=f"too few samples; got {samples}; expected 20 or more"):
        answered(job, HALF, samples=samples)


def test_where_nothing_varies_there_is_no_interval(job):
    result = answered(job, HALF, samples=20, contention=False)
    assert result.baseline.interval_us is None
    assert result.scenarios[0].interval_us is None


def test_a_run_without_kernels_takes_as_long_on_any_machine(tmp_path):
    steps = [Annotation(f"ProfilerStep#{k}", [HostWork(100.0)]) for k in range(3)]
    write_traces(execute({0: Rank({"main": steps})}), tmp_path)
    run = read_run(tmp_path)
    host = run, build_graph(run)
    asked = Scenario(set={"memory_bytes_per_s": 1e12})
    for samples in (0, 20):
        (answer,) = answered(host, asked, hardware="h100", samples=samples).scenarios
        assert answer.ratio == 1.0 and answer.interval_us is None


def test_a_device_that_needs_longer_than_the_step_is_told(job, tmp_path):
    assert "device-behind" not in {note.code for note in answered(job, HALF).notes}
    write_traces(simulate(SimulatedJob(layers=1, steps=4, synchronize="never")), tmp_path)
    run = read_run(tmp_path)
    short = run, build_graph(run)
    codes = {note.code for note in answered(short, Scenario(scale={"compute": 10.0})).notes}
    assert "device-behind" in codes


def test_a_step_that_takes_forever_is_refused_with_its_factor(job):
    asked = Scenario(name="endless", scale={"gemm": 1e308})
    with pytest.raises(ConfigError, match=r"endless: the step takes forever; got gemm = 1e\+308"):
        answered(job, asked, contention=False)
