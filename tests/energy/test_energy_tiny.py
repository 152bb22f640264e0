"""Energy per inference of MLPerf Tiny: published logs, and small ones worked by hand."""

import json
from collections.abc import Mapping

import numpy as np
import pytest

from jaxperf.energy._log_files import LogFiles, open_logs
from jaxperf.energy._tiny import score_tiny, tiny_benches
from jaxperf.energy._tiny_traces import traced_windows
from jaxperf.errors import LogError

EDGES_S = (1.0, 2.0, 13.0, 14.0, 25.0, 26.0, 37.0, 38.0, 49.0, 50.0, 61.0)
"""Five windows of 11 s, which start at 2, 14, 26, 38 and 50 s."""

ENERGIES_UJ = (110.0, 220.0, 550.0, 330.0, 440.0)
"""Of each window; with 11 inferences 10, 20, 50, 30 and 40 uJ each: a median of 30 uJ."""

RATE_HZ = 10.0


def trace() -> bytes:
    """Steady energy in each window, and 7 uJ in every sample between them."""
    samples = np.full(620, 7.0)
    for window, energy_uj in enumerate(ENERGIES_UJ):
        begin = round(EDGES_S[2 * window + 1] * RATE_HZ)
        samples[begin : begin + 110] = energy_uj / 110
    return b"\xf1" + np.concatenate([[RATE_HZ], samples]).astype("<f4").tobytes()


def printed() -> str:
    """As the runner up to v1.2 prints."""
    lines = []
    for window, energy_uj in enumerate(ENERGIES_UJ):
        number = 2 * window + 2
        lines += [
            f"00010.000 ulp-ml: Energy data for window {number} at time 2.00 for 11.00 sec.:",
            f"00010.000 ulp-ml:   Energy       :  {energy_uj:.3f} uJ",
            "00010.000 ulp-ml:   Power        :   1.000 uW",
            f"00010.000 ulp-ml:   Energy/Inf.  :     {energy_uj / 11:.3f} uJ/inf.",
        ]
    lines += ["00010.000 ulp-ml: Median energy cost is 30.000 uJ/inf."]
    for window in range(5):
        lines += [
            f"00010.000 ulp-ml: Performance results for window {2 * window + 2}:",
            "00010.000 ulp-ml:   # Inferences :           11",
            "00010.000 ulp-ml:   Runtime      :       11.000 sec.",
        ]
    return "\n".join(lines)


def bench(**changes: str | bytes | None) -> LogFiles:
    """A sound benchmark, with files replaced, or removed by None."""
    files: dict[str, str | bytes | None] = {
        "energy/results.txt": printed(),
        "energy/log.txt": "00098.128 io: [dut]: m-model-[kws01]\n",
        "energy/trace1-energy.bin": trace(),
        "energy/trace1-timestamps.json": json.dumps(EDGES_S),
        "performance/results.txt": "",
    }
    names = {
        "results": "energy/results.txt",
        "trace": "energy/trace1-energy.bin",
        "edges": "energy/trace1-timestamps.json",
    }
    files |= {names[key]: content for key, content in changes.items()}
    return log_files({name: content for name, content in files.items() if content is not None})


def log_files(files: Mapping[str, str | bytes]) -> LogFiles:
    return LogFiles(
        "kws",
        {
            name: (lambda c=content: c.encode() if isinstance(c, str) else c)
            for name, content in files.items()
        },
    )


def outcomes(logs: LogFiles) -> dict[str, str]:
    return {check.name: check.outcome for check in score_tiny(logs).checks}


def message(logs: LogFiles) -> str:
    with pytest.raises(LogError) as caught:
        score_tiny(logs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_energy_per_inference_is_the_median_of_five_windows():
    score = score_tiny(bench())
    assert (score.division, score.benchmark) == ("tiny", "kws")
    assert (score.metric.name, score.metric.value, score.metric.unit) == (
        "energy_per_inference",
        30.0,
        "uJ",
    )
    assert score.efficiency is not None
    assert score.efficiency.value == pytest.approx(1e6 / 30)
    assert score.energy_j == pytest.approx(330e-6)
    assert score.average_power_w == pytest.approx(30e-6)
    assert set(outcomes(bench()).values()) == {"pass"}


def test_the_trace_is_integrated_between_the_edges():
    windows = traced_windows(bench())
    assert windows is not None
    assert [window.energy_uj for window in windows] == pytest.approx(ENERGIES_UJ, rel=1e-6)
    score = score_tiny(bench())
    assert score.run_window.energy_j == pytest.approx(330e-6, rel=1e-6)
    assert score.run_window.readings == 110


def test_an_edge_within_a_sample_takes_its_share():
    edges = [*EDGES_S[:9], 50.0, 61.05]
    windows = traced_windows(bench(edges=json.dumps(edges)))
    assert windows is not None
    assert windows[-1].energy_uj == pytest.approx(440.0 + 0.5 * 7.0, rel=1e-6)


def test_a_trace_that_disagrees_with_the_result_fails():
    other = printed().replace("440.000 uJ", "450.000 uJ")
    assert outcomes(bench(results=other))["trace gives the reported energy"] == "fail"


def test_a_median_that_is_not_that_of_the_windows_fails():
    other = printed().replace("cost is 30.000", "cost is 29.000")
    assert outcomes(bench(results=other))["reported median"] == "fail"


def test_short_windows_fail():
    other = printed().replace("Runtime      :       11.000", "Runtime      :       9.900")
    assert outcomes(bench(results=other))["length of windows"] == "fail"


def test_without_a_trace_the_printed_energy_stands_with_a_note():
    score = score_tiny(bench(trace=None, edges=None))
    assert score.metric.value == 30.0
    assert np.isnan(score.run_window.energy_j)
    assert [note.code for note in score.notes] == ["no-energy-trace"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"trace": trace()[:-3]}, "trace1-energy.bin: the trace is cut"),
        ({"trace": b"\xf0" + trace()[1:]}, "not an energy trace; got first byte 0xf0"),
        ({"trace": b""}, "not an energy trace; got no bytes"),
        ({"trace": trace()[:1605]}, "trace1-energy.bin: the trace ends before the last edge"),
        ({"trace": trace()[:5] + bytes(2480)}, "no energy in measured window 1; got 0 uJ in 110"),
        ({"trace": trace()[:-4] + b"\x00\x00\xc0\x7f"}, "a sample is no energy; got nan at 619"),
        ({"edges": "[]"}, "trace1-timestamps.json: no pairs of edges; got 0 times"),
        ({"edges": "[1.0, 2.0]"}, "no pairs of edges; got 2 times"),
        ({"edges": "[1.0, 3.0, 2.0]"}, "no pairs of edges"),
        ({"edges": "[1.0, "}, "trace1-timestamps.json: not a list of edges"),
        ({"edges": None}, "trace1-timestamps.json: missing file"),
        ({"results": ""}, "results.txt: no energy of a whole run"),
        ({"results": printed()[:400]}, "results.txt: no energy of a whole run"),
        (
            {"results": printed().replace("330.000 uJ", "0.330 mJ")},
            "results.txt, line 14: not in microjoules; got mJ",
        ),
        (
            {"results": printed().replace("330.000 uJ", "0.000 uJ")},
            "results.txt, line 13: window 8 has no energy above 0",
        ),
    ],
)
def test_broken_files_end_in_one_line_that_names_the_file(changes, expected):
    assert expected in message(bench(**changes))


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ('[{"power": {"samples": [1.0, 2.0', "results.json: not a list of traced trials"),
        ("[]", "results.json: no traced trials"),
        (
            '[{"power": {"samples": [1.0, 2.0], "timestamps": [["00", 0]]}}]',
            "results.json: no pair of edges in trial 0",
        ),
        (
            '[{"power": {"samples": [1.0, 2.0], "timestamps": [["00", 0], ["01", 9]]}}]',
            "results.json: no pair of edges in trial 0; got [0, 9] of 2 samples",
        ),
    ],
)
def test_broken_traces_of_the_newer_runner(trials, expected):
    files = {"energy/results.txt": printed(), "energy/results.json": trials}
    assert expected in message(log_files(files))


def test_several_benchmarks_are_listed_and_one_must_be_named():
    one = bench()
    files = {f"{name}/{path}": one.text(path) for name in ("ic", "kws") for path in one.names[:1]}
    files |= {f"{name}/energy/results.txt": printed() for name in ("ic", "kws")}
    assert tiny_benches(log_files(files)) == ["ic", "kws"]
    assert "several benchmarks; got ic, kws; name the folder of one" in message(log_files(files))
    assert score_tiny(log_files(files).below("kws")).metric.value == 30.0


def test_a_folder_with_one_benchmark_is_taken():
    assert score_tiny(log_files({"vww/energy/results.txt": printed()})).benchmark == "vww"


def test_no_energy_run_is_no_tiny_benchmark():
    assert tiny_benches(log_files({"performance/results.txt": ""})) == []
    assert "no energy run" in message(log_files({"performance/results.txt": ""}))


PUBLISHED = {
    "krai_h7a3zi_xcubeai73_v11": {"ic": 8471.102, "kws": 2367.474, "vww": 7810.703},
    "krai_l4r5zi_xcubeai73_v11": {
        "ad": 529.299,
        "ic": 17755.446,
        "kws": 5627.485,
        "vww": 16536.336,
    },
    "st_l4r5zip_v13": {"ad": 160.4232, "ic": 5495.915, "kws": 1430.6681, "vww": 3029.7521},
}


@pytest.mark.parametrize("system", PUBLISHED)
def test_published_energies_and_their_traces_agree(shared, system):
    logs = open_logs(shared / f"power/tiny_logs/{system}.tar.xz")
    for name, energy_uj in PUBLISHED[system].items():
        score = score_tiny(logs.below(name))
        assert score.benchmark == name
        assert score.metric.value == pytest.approx(energy_uj, rel=1e-9)
        traced = traced_windows(logs.below(name))
        outcome = {check.name: check.outcome for check in score.checks}
        assert outcome.pop("trace gives the reported energy") == ("pass" if traced else "warning")
        assert set(outcome.values()) == {"pass"}


def test_the_trace_of_keyword_spotting_gives_the_published_energy(shared):
    logs = open_logs(shared / "power/tiny_logs/krai_h7a3zi_xcubeai73_v11.tar.xz").below("kws")
    score = score_tiny(logs)
    assert score.metric.value == pytest.approx(2367.474)
    assert score.run_window.energy_j / 800 * 1e6 == pytest.approx(2367.474, rel=1e-4)


def test_the_traces_of_the_newer_runner_give_its_energies_exactly(shared):
    logs = open_logs(shared / "power/tiny_logs/st_l4r5zip_v13.tar.xz")
    for name in ("ad", "ic", "kws"):
        score = score_tiny(logs.below(name))
        assert score.run_window.energy_j == pytest.approx(score.official.energy_j, rel=1e-8)
        assert score.system == "STMicroelectronics"


def test_the_streaming_benchmark_has_one_window_and_reports_average_power(shared):
    score = score_tiny(open_logs(shared / "power/tiny_logs/st_l4r5zip_v13.tar.xz").below("sww"))
    assert (score.benchmark, score.metric.name, score.metric.unit) == ("sww", "average_power", "mW")
    assert score.metric.value == pytest.approx(25.6220, abs=5e-5)
    assert score.duration_s == pytest.approx(1200.002)
    assert score.efficiency is None
    assert "duty cycle 0.56085" in score.notes[-1].text
    assert {c.name: c.outcome for c in score.checks}["measured windows"] == "pass"
