"""`log`, the format by which Spark's own jobs read and write logs: `register(spark)`, then
`format("scribengin-log")`."""

from scribengin.spark.log_format.format import register

__all__ = ["register"]
