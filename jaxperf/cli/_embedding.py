"""The verbs on embedding tables: what their accesses say, and where the tables go."""

import argparse
import math
from pathlib import Path

from jaxperf.cli._arguments import add_overwrite, add_verb, sizes_argument
from jaxperf.cli._results import check_outputs, print_result, say_written, stdout_kept_clean


def _profile(arguments: argparse.Namespace) -> None:
    check_outputs(arguments, arguments.plot)
    from jaxperf.embedding import profile
    from jaxperf.report import print_profile, profile_to_json, write_profile

    result = profile(
        arguments.paths,
        sizes=arguments.sizes,
        format=arguments.format,
        policy=arguments.policy,
        ways=arguments.ways,
        sample=arguments.sample,
        batch=arguments.batch,
        row_bytes=arguments.row_bytes,
    )
    print_result(arguments, result, profile_to_json, print_profile)
    if arguments.plot:
        write_profile(result, arguments.plot, overwrite=arguments.overwrite)
        say_written(arguments, arguments.plot)


def _plan(arguments: argparse.Namespace) -> None:
    from jaxperf.config import load_tables
    from jaxperf.embedding import plan
    from jaxperf.embedding.hierarchy import model_arrays
    from jaxperf.embedding.placement import catalogue, saving

    with stdout_kept_clean():
        model = load_tables(arguments.tables)
        curves = model_arrays(model).curves
        limit_s = arguments.time_limit
        found = plan(
            model,
            server=arguments.server,
            nodes=arguments.nodes,
            target_samples_per_s=arguments.target,
            time_limit_s=limit_s,
            curves=curves,
        )
        saved = saving(found, model, arguments.server, time_limit_s=limit_s, curves=curves)
        rate = found.target_samples_per_s or found.samples_per_s
        entries = (
            catalogue(model, rate, server=arguments.server, curves=curves)
            if arguments.frontier
            else None
        )
    print_result(arguments, (found, saved, rate, entries), _plan_to_json, _print_plan)


def _plan_to_json(result) -> dict:
    from jaxperf.report import plan_to_json

    found, saved, rate, entries = result
    values = plan_to_json(found)
    baseline = saved.baseline
    values["saving"] = {
        "against": None if baseline is None else baseline.server,
        "baseline_nodes": None if baseline is None else baseline.nodes,
        "samples_per_s": _known(saved.rate_samples_per_s),
        "nodes": _known(saved.nodes),
        "cost": _known(saved.cost),
        "power": _known(saved.power),
        "reason": saved.reason,
    }
    if entries is not None:
        values["frontier"] = {
            "samples_per_s": _known(rate),
            "servers": [
                {
                    "server": entry.server,
                    "nodes": entry.nodes,
                    "binding": entry.binding,
                    "cost_usd": _known(entry.cost_usd),
                    "power_w": _known(entry.power_w),
                    "energy_j_per_sample": _known(entry.energy_j_per_sample),
                    "on_frontier": entry.on_frontier,
                }
                for entry in entries
            ],
        }
    return values


def _known(value: float) -> float | None:
    return float(f"{value:.10g}") if math.isfinite(value) else None


def _print_plan(result, console) -> None:
    from jaxperf.report import print_plan

    found, saved, rate, entries = result
    print_plan(found, console)
    if saved.baseline is None:
        print(f"\nNo saving is known against HBM and DRAM alone: {saved.reason}")
    else:
        print(
            f"\n{saved.baseline.nodes:,} x {saved.baseline.server}\ntake"
            f" {saved.nodes:.3g} times the servers, {saved.cost:.3g} times the money and, at"
            f" {saved.rate_samples_per_s:,.0f} samples/s,\n{saved.power:.3g} times the power"
        )
    if entries is None:
        return
    print(f"\nServers that reach {rate:,.0f} samples/s, by a quicker placement; * on the frontier")
    width = max(len(entry.server) for entry in entries)
    print(f"  {'':{width}} {'nodes':>6} {'million USD':>12} {'kW':>8} {'mJ/sample':>10}  binding")
    for entry in entries:
        nodes = "none" if entry.nodes is None else f"{entry.nodes:,}"
        print(
            f"{'*' if entry.on_frontier else ' '} {entry.server:{width}} {nodes:>6}"
            f" {entry.cost_usd / 1e6:>12.3g} {entry.power_w / 1e3:>8.3g}"
            f" {entry.energy_j_per_sample * 1e3:>10.3g}  {entry.binding}"
        )


# Their arguments
# ---------------------------------------------------------------------------------------


def add_embedding_verbs(verbs) -> None:
    """`embedding`, and the verbs below it."""
    summary = "say what embedding tables need, and place them over memories"
    embedding = verbs.add_parser(
        "embedding", help=summary, description=f"{summary[0].upper()}{summary[1:]}."
    )
    below = embedding.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_profile(below)
    _add_plan(below)


def _add_profile(verbs) -> None:
    profile = add_verb(
        verbs, "profile", _profile, "say how often caches would hold the rows that are asked for"
    )
    profile.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="ACCESSES",
        help="a log of the rows that were asked for; or statistics of how often each was",
    )
    profile.add_argument(
        "--sizes", type=sizes_argument, metavar="N,N,...", help="sizes of the cache, in rows"
    )
    profile.add_argument(
        "--format",
        default="auto",
        choices=["auto", "text", "npz", "int32-be", "int32-le", "int64-be", "int64-le"],
        help="how ids are written (default: told by the content)",
    )
    profile.add_argument(
        "--policy",
        default="lru",
        choices=["lru", "pinned", "fifo", "clock", "lfu", "belady"],
        help="which row makes room for another (default: lru)",
    )
    profile.add_argument(
        "--ways", type=int, metavar="N", help="rows of a set (default: any row anywhere)"
    )
    profile.add_argument(
        "--sample",
        type=float,
        metavar="RATE",
        help="count the distances of this share of the rows only, and give intervals",
    )
    profile.add_argument(
        "--batch", type=int, metavar="N", help="lookups of a batch, for its distinct rows"
    )
    profile.add_argument(
        "--row-bytes", type=float, metavar="N", help="bytes of a row, for the demand in bytes"
    )
    profile.add_argument("--plot", type=Path, metavar="FILE.svg", help="write the curves")
    add_overwrite(profile, "write over an existing file")


def _add_plan(verbs) -> None:
    plan = add_verb(verbs, "plan", _plan, "place tables on the fewest servers that reach a rate")
    plan.add_argument(
        "tables", metavar="TABLES.toml", help="the model: a file, or a name such as dlrm-dcnv2"
    )
    plan.add_argument(
        "--server",
        metavar="SERVER.toml",
        help="the server: a file, or a name such as zionex-nand (default: zionex)",
    )
    plan.add_argument(
        "--nodes",
        type=int,
        metavar="N",
        help="servers (default: the fewest for the rate, or for the tables)",
    )
    plan.add_argument(
        "--target",
        type=float,
        metavar="SAMPLES_PER_S",
        help="the rate to reach (default: that of the file)",
    )
    plan.add_argument(
        "--time-limit", type=float, default=60.0, metavar="S", help="of the search (default: 60)"
    )
    plan.add_argument(
        "--frontier",
        action="store_true",
        help="list the servers that come along: how many, cost, power, and which none other beats",
    )
