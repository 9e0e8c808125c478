"""A store over the log store: a partition is a log, and a record is acknowledged once it is durable there.

The log of a partition is `<prefix>/<topic>/<producer>`, and a record's transaction id is its sequence. So the logs say
themselves how far a store has come: it keeps nothing else. What was written and not acknowledged when a store died is
found when it starts again, and acknowledged when it comes again.

It is two roles, as the C store: the writer takes and acknowledges, the reader answers. They share what is stored. A log
that fails is its partition's trouble alone: all others go on.
"""

from scribengin.dafka.store.answers import AnswerFailed, FoundStored, StoredAnswers
from scribengin.dafka.store.failures import LogFailures
from scribengin.dafka.store.logs import StoredPartitions
from scribengin.dafka.store.store import DafkaStore
from scribengin.dafka.store.writer import StoreWriter

__all__ = [
    "AnswerFailed",
    "DafkaStore",
    "FoundStored",
    "LogFailures",
    "StoreWriter",
    "StoredAnswers",
    "StoredPartitions",
]
