"""Corpus work on Apache Spark: reading, grouping into units, counting words, screening and tokenising (``compute.runner: spark``).

What is computed of a record or a unit is computed by the same functions as on one machine, and is put together in an order that the
corpus alone decides. So the result has the same bytes, whatever partitions, retries and lost executors there were. Noise is drawn on
the driver, by the code that draws it without Spark. pyspark is imported when a runner is opened.
"""
