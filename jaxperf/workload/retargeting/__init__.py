"""A recorded run as another job: recognised in its traces, resized, laid out anew."""
