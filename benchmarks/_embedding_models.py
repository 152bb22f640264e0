"""Hit ratios by reuse times and by popularity, against exact curves and simulated Zipf laws."""

from pathlib import Path

from _embedding_data import NAMES, accesses, column, oracle, times_of
from _tables import markdown

from jaxperf.embedding.locality import (
    eviction_time_hit_ratio,
    independent_hit_ratio,
    popularity_of_log,
    zipf_popularity,
)


def table(shared: Path) -> str:
    columns = ("log", "reuse times", "known", "popularity", "known")
    logs = markdown(columns, [_of_log(shared, name) for name in NAMES])
    zipf = markdown(("Zipf law", "cache", "Che", "simulated", "error"), _of_zipf(shared))
    return f"{logs}\n\n{zipf}"


def _of_log(shared: Path, name: str) -> tuple[str, ...]:
    (known,) = oracle(shared, "model_error_baseline.csv")[name]
    rows = oracle(shared, "mrc_lru_exact.csv")[name]
    row, sizes = accesses(shared, name), column(rows, "cache_rows")
    truth = column(rows, "hits") / len(row)
    model = abs(eviction_time_hit_ratio(times_of(shared, name), sizes) - truth).mean()
    # The known errors of popularity are of every fourth size.
    che = abs(independent_hit_ratio(popularity_of_log(row), sizes[::4]) - truth[::4]).mean()
    errors = (model, float(known["aet_mae"]), che, float(known["che_irm_mae"]))
    return name, *(f"{error:.4f}" for error in errors)


def _of_zipf(shared: Path) -> list[tuple[str, ...]]:
    rows = []
    for known in oracle(shared, "che_zipf_irm.csv")[""]:
        law = zipf_popularity(int(known["num_rows"]), float(known["zipf_alpha"]))
        found = float(independent_hit_ratio(law, int(known["cache_rows"])))
        simulated = float(known["lru_hit_ratio_simulated"])
        rows.append(
            (
                f"{int(known['num_rows']):,} rows, {known['zipf_alpha']}",
                f"{int(known['cache_rows']):,}",
                f"{found:.5f}",
                f"{simulated:.5f}",
                f"{found - simulated:+.5f}",
            )
        )
    return rows
