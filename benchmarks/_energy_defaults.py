"""Nodes as `configs/power` describes them beside measured ones, from measured power of GPUs."""

import csv
from pathlib import Path

from _tables import markdown

from jaxperf.config import load_power

# Llama 2 LoRA on H100: nodes of four GPUs in the NLR table, by the number of GPUs.
_NLR = {8: "LLaMA2-LoRA (2node)", 64: "LLaMA2-LoRA (16node)"}
_FANS = 0.10


def table(shared: Path) -> str:
    """Mean power of a node in training, measured and from its GPUs; a table in Markdown."""
    gpu_w = {
        row["Workload"]: float(row["Mean_W"])
        for row in _rows(shared / "power" / "gpu_power" / "nlr_h100_workload_power_stats.csv")
    }
    lines = []
    for row in _rows(shared / "power" / "tables" / "mlperf_training_power_summary.csv"):
        lora = row["benchmark"] == "llama2_70b_lora"
        name, nodes = ("b200", 1) if "B200" in row["system"] else ("h100", _nodes(row["system"]))
        known = lora and name == "h100" and 8 * nodes in _NLR
        power = load_power(name)
        measured_w = float(row["node_W_windowed"])
        # Where logs have an efficiency of conversion readings were multiplied with it: DC.
        place = "AC" if "-ac-" in row["submitter"] else "DC"
        loss = power.node.conversion_efficiency if place == "AC" else 1.0
        if known:
            each_w = gpu_w[_NLR[8 * nodes]]
            plain_w = (8 * each_w + power.node.host_w) / loss
            found = [f"{each_w:.0f}", f"{plain_w:.0f}", f"{plain_w / measured_w - 1:+.1%}"]
            found.append(f"{plain_w * (1 + _FANS) / measured_w - 1:+.1%}")
        elif nodes == 1:
            # What its GPUs draw was not measured: what is left for them, which the limit bounds.
            left_w = (measured_w * loss - power.node.host_w) / 8
            found = [f"({left_w:.0f} of {power.power_limit_w:.0f})", "-", "-", "-"]
        else:
            continue
        lines.append([f"{row['system']}, {row['benchmark']}, {place}", f"{measured_w:.0f}", *found])
    columns = ["node", "measured, W", "a GPU, W", "predicted, W", "error", f"fans of {_FANS:.0%}"]
    return markdown(columns, lines)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def _nodes(system: str) -> int:
    """Of `8xSMC-H100-SXM-80GB` eight."""
    return int(system.partition("x")[0])
