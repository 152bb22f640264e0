"""The guide from a trace of 8 GPUs to a launch on 512 runs as it is written."""

import re
import shlex
from pathlib import Path

import pytest

from jaxperf.cli import main
from jaxperf.simulator import Noise, SimulatedHardware, SimulatedJob, simulate, write_traces

PAGE = (Path(__file__).parents[1] / "docs" / "guide.md").read_text()


@pytest.mark.slow
def test_the_guide_ends_with_a_launch_on_512_gpus(tmp_path, monkeypatch, capsys):
    job = SimulatedJob(
        layers=8,
        hidden_size=2048,
        data_parallel=2,
        pipeline_parallel=2,
        tensor_parallel=2,
        micro_batch_size=2,
        micro_batches=4,
        steps=3,
        noise=Noise(kernel=0.02, host=0.05, latency=0.05),
        hardware=SimulatedHardware(name="NVIDIA H100 80GB HBM3"),
    )
    write_traces(simulate(job), tmp_path / "run8")
    monkeypatch.chdir(tmp_path)
    for name, block in re.findall(r"```toml\n# (\w+\.toml)\n(.*?)```", PAGE, re.DOTALL):
        Path(name).write_text(block)
    commands = re.findall(r"^    jaxperf (.*)$", PAGE, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        assert main(shlex.split(command)) == 0, command
        printed = capsys.readouterr().out
        if command.startswith("search"):
            assert "From the trace" in printed
            assert printed.rstrip().splitlines()[-1].startswith("jaxperf estimate job.toml")
    launch = Path("launch.sh").read_text()
    assert "--nnodes 64 --nproc-per-node 8" in launch
    assert "--global-batch-size 1024" in launch
