"""What `jaxperf export` prints."""

from dataclasses import asdict

from rich.console import Console, Group
from rich.text import Text

from jaxperf.interchange import Export
from jaxperf.report._terminal import notes_table, print_sections


def export_to_json(export: Export) -> dict:
    """What was written, as plain values, ready for `json.dumps`.

    Args:
        export: the result of `export`.

    Returns:
        Its fields under their names.

    Example:
        >>> export_to_json(Export((0,), 3, 2, ("tables/tasks.parquet",), ()))["files"]
        ('tables/tasks.parquet',)
    """
    return asdict(export)


def print_export(export: Export, console: Console) -> None:
    """Print what was written as tables that fit 80 columns.

    Args:
        export: the result of `export`.
        console: where to print; colours are left out where it is no terminal.

    Example:
        >>> print_export(Export((0,), 3, 2, (), ()), Console())
        1 rank, 3 tasks, 2 dependencies.
    """
    ranks = "1 rank" if len(export.ranks) == 1 else f"{len(export.ranks):,} ranks"
    answer = f"{ranks}, {export.tasks:,} tasks, {export.dependencies:,} dependencies."
    files = Group(*(Text(file) for file in export.files)) if export.files else None
    sections = [("Files", files), ("Notes", notes_table(export.notes))]
    print_sections(answer, sections, console)
