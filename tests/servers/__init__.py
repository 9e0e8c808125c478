"""Real servers for the tests, as fixtures. `tests/conftest.py` brings them into every folder of tests."""
