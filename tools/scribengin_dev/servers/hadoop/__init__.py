"""HDFS, YARN and Kerberos as processes."""
