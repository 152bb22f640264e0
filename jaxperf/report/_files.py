"""Where the package's public names for writing files are found; see `jaxperf._files`."""

from jaxperf._files import check_new_file as check_new_file, new_file as new_file
