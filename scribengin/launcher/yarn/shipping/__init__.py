"""What a YARN application takes along: Python, packages, files."""
