"""The transformation: from a batch of records to plans of Spark, and to what is written."""
