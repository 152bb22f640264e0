"""The verbs on embedding tables: what their accesses say, and where the tables go."""

import argparse
from pathlib import Path

from jaxperf.cli._arguments import add_overwrite, add_verb, sizes_argument
from jaxperf.cli._results import check_outputs, print_result, stdout_kept_clean


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
    file = write_profile, arguments.plot
    print_result(arguments, result, profile_to_json, print_profile, file)


def _plan(arguments: argparse.Namespace) -> None:
    from jaxperf.config import load_tables
    from jaxperf.embedding import plan
    from jaxperf.embedding.placement import catalogue, saving
    from jaxperf.report import plan_to_json, print_plan

    with stdout_kept_clean():
        model = load_tables(arguments.tables)
        limit_s = arguments.time_limit
        found = plan(
            model,
            server=arguments.server,
            nodes=arguments.nodes,
            target_samples_per_s=arguments.target,
            time_limit_s=limit_s,
        )
        compared = None
        if arguments.frontier:
            rate = found.target_samples_per_s or found.samples_per_s
            compared = (
                saving(found, model, arguments.server, time_limit_s=limit_s),
                catalogue(model, rate, server=arguments.server),
            )
    print_result(
        arguments,
        found,
        lambda result: plan_to_json(result, compared),
        lambda result, console: print_plan(result, console, compared),
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
