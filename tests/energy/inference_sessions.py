"""A session of MLPerf Inference with power, made up: every rule is kept until a test breaks one."""

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jaxperf.config._toml import config_folder
from jaxperf.energy._log_files import LogFiles

START = datetime(2025, 8, 1, tzinfo=UTC)
NAME = "2025-08-01_00-00-00"

FIRST_LOAD_S = {"ranging": 50.0, "run_1": 10_050.0}
"""Seconds from `START` to the load; its phase begins 30 s earlier."""

_OF_SERVER = ("ptd_logs.txt", "server.log", "spl.txt")
_OF_CLIENT = ("client.log", "mlperf_log_detail.txt", "mlperf_log_summary.txt")

_GO = "Starting untimed measurement, maximum 500000 samples at 1000ms with 0 rampup samples"


def clock(second: float) -> str:
    """A second after `START`, as loadgen and PTDaemon write it."""
    return (START + timedelta(seconds=second)).strftime("%m-%d-%Y %H:%M:%S.%f")[:-3]


def detail(first_s: float, load_s: float, **results: Any) -> bytes:
    """`mlperf_log_detail.txt` of one load."""
    events = {"power_begin": clock(first_s), "power_end": clock(first_s + load_s), **results}
    lines = [{"key": key, "value": value, "time_ms": 1.0} for key, value in events.items()]
    return "\n".join(f":::MLLOG {json.dumps(line)}" for line in lines).encode()


def samples(first_s: float, load_s: float, power_w: Callable[[float], float], mark: str) -> bytes:
    """`spl.txt`: a sample each second, 0.25 s after it, from 30 s before the load to 20 s after."""
    lines = []
    for second in range(-30, round(load_s) + 20):
        at = second + 0.25
        lines.append(
            f"Time,{clock(first_s + at)},Watts,{power_w(at):.6f},Volts,230.000000,Amps,2.000000,"
            f"PF,0.950000,Mark,{NAME}_{mark}"
        )
    return ("\n".join(lines) + "\n").encode()


@dataclass
class MadeSession:
    """Files and records of a session, to be changed by a test before `logs` seals them.

    Attributes:
        load_s: of both runs.
        files: by name, but for the records.
        client, server: the records; their checksums are filled in by `logs`.
        daemon_lines: of PTDaemon's log.
    """

    load_s: float
    files: dict[str, bytes]
    client: dict[str, Any]
    server: dict[str, Any]
    daemon_lines: list[str]

    def logs(self, seal: bool = True) -> LogFiles:
        """The session as files in memory, the checksums of its files recorded if `seal`."""
        if seal:
            self.seal()
        records = {"power/client.json": self.client, "power/server.json": self.server}
        contents = self.files | {name: json.dumps(each).encode() for name, each in records.items()}
        return LogFiles("made", {name: _reader(content) for name, content in contents.items()})

    def write(self, folder: Path) -> None:
        """The session as files below a folder."""
        logs = self.logs()
        for name in logs.names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(logs.read(name))

    def seal(self) -> None:
        """Records the checksums of the files as they are."""
        self.files["power/ptd_logs.txt"] = "\r\n".join(self.daemon_lines).encode()
        for record, endings in ((self.server, _OF_SERVER), (self.client, _OF_CLIENT)):
            record["results"] = {
                name: hashlib.sha1(content).hexdigest()
                for name, content in self.files.items()
                if name.endswith(endings)
            }


def made_session(
    load_s: float = 60.0,
    power_w: Callable[[float], float] = lambda at: 500.0,
    scenario: str = "Offline",
    **results: Any,
) -> MadeSession:
    """A session that keeps every rule.

    Args:
        load_s: length of both loads.
        power_w: by the second since the load began.
        scenario: of loadgen.
        results: more of its results.
    """
    files = {"power/client.log": b"client\n", "power/server.log": b"server\n"}
    results = {"effective_scenario": scenario, "result_samples_per_second": 1000.0, **results}
    for phase, first_s in FIRST_LOAD_S.items():
        mark = "testing" if phase == "run_1" else phase
        files[f"{phase}/mlperf_log_detail.txt"] = detail(first_s, load_s, **results)
        files[f"{phase}/mlperf_log_summary.txt"] = f"Scenario : {scenario}\n".encode()
        files[f"{phase}/spl.txt"] = samples(first_s, load_s, power_w, mark)
    client = _record(load_s)
    server = copy.deepcopy(client)
    server["ptd_messages"] = _ptd_messages()
    server["ptd_config"] = [{"command": ["ptd", "49"], "device_type": 49, "channel": None}]
    return MadeSession(load_s, files, client, server, _daemon_lines(load_s))


def _reader(content: bytes) -> Callable[[], bytes]:
    return lambda: content


def _record(load_s: float) -> dict[str, Any]:
    sources = json.loads((config_folder("power") / "ptd_sources.json").read_text())["accepted"][0]
    greeting = {"cmd": "mlcommons/power client v3", "reply": "mlcommons/power server v3"}
    phases = {}
    for name, first_s in zip(("ranging", "testing"), FIRST_LOAD_S.values(), strict=True):
        seconds = (-50.0, -30.0, load_s + 10, load_s + 20)
        phases[name] = [[START.timestamp() + first_s + second, 0.0] for second in seconds]
    return {
        "version": "1.0",
        "timezone": 0,
        "modules": {},
        "sources": dict(sources),
        "messages": [greeting, {"cmd": "time", "reply": "1"}, {"cmd": "stop", "reply": "OK"}],
        "uuid": {"client": f"{1:032x}", "server": f"{2:032x}"},
        "session_name": NAME,
        "results": {},
        "phases": phases,
    }


def _ptd_messages() -> list[dict[str, str]]:
    pairs = [
        ("Hello", "Hello, PTDaemon here!"),
        ("Identify", "YokogawaWT310E,1000,1,version=1.11.1-69286632-20240907,OS=Linux"),
        ("RR", "Ranges,1,10.0,0,300.0"),
        ("SR,V,Auto", "Range V changed"),
        ("SR,A,Auto", "Range A changed"),
        ("SR,A,Auto", "Range A changed"),
        (f"Go,1000,0,{NAME}_ranging", _GO),
        ("Stop", "Stopping untimed measurement"),
        ("SR,V,240.0", "Range V changed"),
        ("SR,A,15.0", "Range A changed"),
        (f"Go,1000,0,{NAME}_testing", _GO),
        ("Stop", "Stopping untimed measurement"),
        ("Stop", "Error: no measurement to stop"),
        ("SR,V,300.0", "Range V changed"),
        ("SR,A,Auto", "Range A changed"),
    ]
    return [{"cmd": command, "reply": reply} for command, reply in pairs]


def _daemon_lines(load_s: float) -> list[str]:
    first_s = FIRST_LOAD_S["ranging"]
    return [
        "Analyzer 1",
        f"{clock(1)}: Uncertainty checking for YokogawaWT310E is activated",
        f"{clock(first_s - 31)}: Go with mark '{NAME}_ranging'",
        f"{clock(first_s)}: ERROR: Can't evaluate uncertainty of this sample!",
        f"{clock(first_s + load_s + 9)}: Completed test",
        f"{clock(FIRST_LOAD_S['run_1'] - 31)}: Go with mark '{NAME}_testing'",
        "",
    ]
