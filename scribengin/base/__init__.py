"""What every room stands on: models, time, names, failpoints, what processes say, the JVM."""
