"""File systems that keep what they were told to keep: local, HDFS, whatever fsspec reaches."""
