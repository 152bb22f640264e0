"""What if: answers beside what the changed job takes in the simulator, and what is refused."""

import json
import tempfile

import numpy as np
import pytest

from jaxperf import answer_scenarios, build_graph, read_run, replay, whatif
from jaxperf.config import Scenario
from jaxperf.errors import ConfigError
from jaxperf.simulator import Noise, SimulatedJob, simulate, write_traces

QUIET = SimulatedJob(layers=2, data_parallel=2, steps=4)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quiet")
    write_traces(simulate(QUIET), folder)
    return folder


CHANGES = [
    {"gemm": 0.5},
    {"gemm": 0.5, "communication": 3.0},
    {"host": 3.0},
    {"rank:1/compute": 1.3},
    {"name:gemm": 2.0},
    {"elementwise": 0.0},
]


def test_answers_are_what_the_changed_job_takes(quiet):
    asked = [Scenario(name=str(change), scale=change) for change in CHANGES]
    result = whatif(quiet, scenarios=asked)
    true_us = [simulate(QUIET, scale=change).step_us for change in CHANGES]
    assert result.baseline.step_us == pytest.approx(simulate(QUIET).step_us, rel=0.002)
    assert [answer.step_us for answer in result.scenarios] == pytest.approx(true_us, rel=0.005)
    ratios = [answer.step_us / result.baseline.step_us for answer in result.scenarios]
    assert [answer.ratio for answer in result.scenarios] == pytest.approx(ratios)


def test_a_scenario_that_changes_nothing_is_the_replay(quiet):
    result = whatif(quiet, scale={"gemm": 1.0, "host": 1.0})
    assert result.scenarios[0].ratio == 1.0
    replayed = [step.replayed_us for step in replay(quiet).steps[1:]]
    assert result.baseline.step_us == pytest.approx(np.mean(replayed), rel=1e-9)


def test_factors_of_several_selectors_are_multiplied(quiet):
    twice = whatif(quiet, scale={"gemm": 2.0, "rank:0/gemm": 2.0, "rank:1/gemm": 2.0})
    once = whatif(quiet, scale={"gemm": 4.0})
    assert twice.scenarios[0].step_us == pytest.approx(once.scenarios[0].step_us, rel=1e-12)


def test_the_parts_of_a_breakdown_add_up_to_the_step(quiet):
    result = whatif(quiet, scale={"communication": 5.0})
    before, after = result.baseline.breakdown, result.scenarios[0].breakdown
    assert before and after
    assert after.total_us == pytest.approx(result.scenarios[0].step_us, rel=1e-6)
    assert after.exposed_communication_us > before.exposed_communication_us
    assert after.compute_us + after.overlap_us == pytest.approx(
        before.compute_us + before.overlap_us, rel=0.01
    )


def test_many_scenarios_are_answered_as_few_are(quiet):
    run = read_run(quiet)
    graph = build_graph(run)
    asked = [Scenario(scale={"gemm": 0.5 + k / 40, "rank:1/host": 1 + k / 20}) for k in range(40)]
    many = answer_scenarios(run, graph, asked)
    few = answer_scenarios(run, graph, asked[-3:])
    assert [a.step_us for a in many.scenarios[-3:]] == pytest.approx(
        [a.step_us for a in few.scenarios], rel=1e-12
    )
    assert many.scenarios[-1].breakdown is None and few.scenarios[-1].breakdown is not None
    assert "no-breakdown" in {note.code for note in many.notes}


def test_an_interval_holds_the_steps_of_other_runs_of_the_job(tmp_path):
    noisy = SimulatedJob(
        layers=1,
        data_parallel=2,
        steps=5,
        hidden_size=512,
        noise=Noise(kernel=0.03, host=0.08, latency=0.05),
    )
    others_us = np.array([simulate(noisy, seed=seed).step_us for seed in range(100, 140)])
    shares = []
    for seed in range(5):
        folder = tmp_path / str(seed)
        folder.mkdir()
        write_traces(simulate(noisy, seed=seed), folder)
        result = whatif(folder, scale={"gemm": 1.0}, samples=200)
        assert result.baseline.interval_us and result.scenarios[0].interval_us
        low, high = result.baseline.interval_us
        assert result.scenarios[0].interval_us == pytest.approx((low, high), rel=1e-9)
        shares.append(np.mean((others_us >= low) & (others_us <= high)))
    # 200 comparisons, of which those with one interval hang together.
    assert 0.8 <= np.mean(shares) <= 0.99


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"scale": {"gem": 0.5}}, "scale gem: unknown selector.*gemm"),
        ({"scale": {"name:no such kernel": 0.5}}, "selects nothing"),
        ({"scale": {"rank:7/gemm": 0.5}}, "no such rank"),
        ({"scale": {"gemm": -1.0}}, "scale gemm: not a factor; got -1.0"),
        ({"scale": {"gemm": float("nan")}}, "not a factor; got nan"),
        ({"samples": -1, "scale": {"gemm": 0.5}}, "not a number of samples"),
        ({"change": {"memory_bytes_per_s": 1e12}}, "recorded machine is not known"),
        (
            {"change": {"memory_bandwidth": 1e12}, "hardware": "h100"},
            "set memory_bandwidth: no such key.*memory_bytes",
        ),
        ({"change": {"hardware": "h101"}, "hardware": "h100"}, "no such hardware.*h100"),
        ({"change": {"memory_bytes_per_s": -1.0}, "hardware": "h100"}, "not a quantity"),
        ({"change": {"launch_queue": 0.0}, "hardware": "h100"}, "launch_queue: not a quantity"),
        ({"scenarios": "absent.toml"}, "absent.toml: cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_refused(quiet, arguments, message):
    with pytest.raises(ConfigError, match=message):
        whatif(quiet, **arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "nothing is asked; expected --scale, --set or --scenarios"),
        ({"scale": {"gemm": 0.5}, "samples": 5}, "too few samples; got 5; expected 20 or more"),
        ({"scale": {"gemm": 0.5}, "samples": -1}, "not a number of samples"),
    ],
)
def test_a_wrong_question_is_refused_before_anything_is_read(arguments, message):
    with pytest.raises(ConfigError, match=message):
        whatif("absent", **arguments)


def test_a_change_that_the_step_does_not_wait_for_is_told_with_what_it_waits_for(quiet):
    # Beside a host so slow the devices idle, whatever their kernels take.
    slow = {"host": 100.0}
    asked = [
        Scenario(name="kernels", scale={"elementwise": 0.9}),
        Scenario(name="host", scale={"host": 0.9}),
        Scenario(name="nothing", scale={"gemm": 1.0}),
    ]
    with tempfile.TemporaryDirectory() as folder:
        result = whatif(write_traces(simulate(QUIET, scale=slow), folder), scenarios=asked)
    kernels, host, nothing = (answer.ratio for answer in result.scenarios)
    assert kernels == pytest.approx(1.0, abs=5e-4) and host < 0.95 and nothing == 1.0
    (note,) = (note for note in result.notes if note.code == "change-off-path")
    assert "does not wait for what was changed in kernels: " in note.text
    assert note.text.endswith(" % of its critical path is of the class host")


def test_a_change_that_moves_the_step_has_no_such_note(quiet):
    result = whatif(quiet, scale={"host": 3.0})
    assert "change-off-path" not in {note.code for note in result.notes}


# Another machine
# ---------------------------------------------------------------------------------------


def test_a_machine_with_the_same_numbers_changes_nothing(quiet):
    result = whatif(quiet, change={"hardware": "h100"}, hardware="h100")
    assert result.scenarios[0].ratio == 1.0


@pytest.mark.parametrize(
    "key, factor",
    [
        ("peak_flops_per_s.bf16", 0.5),
        ("memory_bytes_per_s", 0.5),
        ("links.nvlink.bus_bytes_per_s", 0.1),
        ("gpus_per_node", 0.125),
    ],
)
def test_a_slower_machine_takes_longer_and_a_quicker_one_does_not(quiet, key, factor):
    from jaxperf.config import hardware_numbers, load_hardware

    value = hardware_numbers(load_hardware("h100"))[key]
    slower = whatif(quiet, change={key: value * factor}, hardware="h100").scenarios[0]
    assert slower.ratio > 1.0
    assert slower.out_of_range == (f"{key} = {value * factor:g}: the model was not fitted",)
    quicker = whatif(quiet, change={key: value / factor}, hardware="h100").scenarios[0]
    assert quicker.ratio <= 1.0


def test_a_launch_queue_is_asked_beside_others(quiet):
    asked = [
        Scenario(name="short", set={"launch_queue": 2}),
        Scenario(name="both", set={"launch_queue": 2}, scale={"gemm": 0.5}),
        Scenario(name="other", scale={"gemm": 0.5}),
    ]
    result = whatif(quiet, scenarios=asked, hardware="h100")
    short, both, other = (answer.ratio for answer in result.scenarios)
    assert short > 1.0
    assert other < both < short
    assert result.scenarios[0].out_of_range == ()


def test_the_json_is_what_the_command_line_promises(quiet):
    from jaxperf.report import whatif_to_json

    result = whatif(quiet, scale={"gemm": 0.5}, change={"hardware": "h200"}, hardware="h100")
    document = json.loads(json.dumps(whatif_to_json(result), allow_nan=False))
    assert set(document) == {"baseline", "scenarios", "contention", "notes"}
    (scenario,) = document["scenarios"]
    assert scenario["changes"] == {"gemm": 0.5, "hardware": "h200"}
    assert scenario["interval_us"] is None
    assert scenario["ratio"] == pytest.approx(
        scenario["step_us"] / document["baseline"]["step_us"], rel=1e-4
    )
    assert set(scenario["breakdown"]) >= {"compute_us", "idle_us", "total_us"}
