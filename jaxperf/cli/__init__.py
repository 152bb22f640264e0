"""The command line: each verb parses, calls the public function of its name, and prints."""

from jaxperf.cli._main import main as main
