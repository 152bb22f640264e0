"""Exports of Nsight Systems (SQLite), read into the columns of a trace."""

from jaxperf.trace.nsight._read import read_nsight as read_nsight
