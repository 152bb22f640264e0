"""Graphs and timelines for other tools: tables for pandas and Arrow, MLCommons Chakra traces."""

from jaxperf.interchange._export import Export as Export, export as export
from jaxperf.interchange._tables import (
    Column as Column,
    Table as Table,
    dependency_table as dependency_table,
    step_table as step_table,
    task_table as task_table,
    write_tables as write_tables,
)
from jaxperf.interchange.chakra import (
    read_chakra as read_chakra,
    write_chakra as write_chakra,
)
