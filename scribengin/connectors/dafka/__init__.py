"""Topics of Dafka, the brokerless live path, as a source and as a sink (`kind: dafka`).

What a user writes (`config.py`) is read without pyzmq; what opens sockets is imported when it is needed.
"""
