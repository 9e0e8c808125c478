"""What developers run and users do not install: benchmarks, demo, soak, servers of the tests."""
