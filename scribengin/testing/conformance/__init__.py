"""The suites that every source, sink and launcher passes."""
