"""Kafka topics, as a source and as a sink. Kafka's client (confluent-kafka) is imported in this package only.

What a user writes (`config.py` of source and sink) is read without the client, so that a dataflow without Kafka does
not need it; everything else in here imports it.
"""
