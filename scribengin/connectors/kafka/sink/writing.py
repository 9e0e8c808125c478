"""Writers of a topic on behalf of one task: in the task's transaction, or at least once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from scribengin.base.commit_log import CommitDescriptor
from scribengin.base.failpoints import failpoint
from scribengin.base.text.counting import many, which
from scribengin.connectors.contract import Attempt, SinkStreamWriter
from scribengin.connectors.kafka.client.client import Troubles, made
from scribengin.connectors.kafka.client.failures import failure
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.sink.current import CurrentTarget
from scribengin.connectors.kafka.sink.records import hand_over
from scribengin.connectors.kafka.sink.transaction import REQUEST_TIMEOUT_S, KafkaTransaction, producer_settings
from scribengin.errors import DataflowError, ScribenginError, StaleOwner, SystemUnreachable

KIND = "kafka"


class TransactionalWriter(SinkStreamWriter):
    """Stages records in the task's transaction, which its other topics share: rolling back drops those of all."""

    def __init__(self, target: CurrentTarget, transaction: KafkaTransaction, attempt: Attempt) -> None:
        self._target = target
        self._transaction = transaction
        self._attempt = attempt
        self._records = 0

    def recover(self, committed: CommitDescriptor | None) -> None:
        """What `committed` names has been visible since the transaction committed, and the rest was aborted when this
        one was fenced; what is left is this owner's own."""
        _refuse_foreign(committed, self._attempt)
        self.rollback()

    @property
    def payload_bytes_max(self) -> int | None:
        return self._target.now.payload_bytes_max

    def check(self, batch: pa.RecordBatch) -> None:
        self._target.checked(batch)

    def write(self, batch: pa.RecordBatch) -> None:
        records = self._target.outgoing(batch)
        if not records.values:
            return
        self._transaction.begin(self._target.now.topic)
        try:
            with failpoint("kafka.produce"):
                hand_over(self._transaction.producer, self._target.now, records)
        except KafkaException as error:
            raise self._transaction.failure(error, f"writing to topic {self._target.now.topic}") from None
        self._records += len(records.values)

    def prepare_commit(self) -> CommitDescriptor | None:
        """The round is made durable with the transaction, when all sinks have written what they have."""
        if not self._records:
            return None
        number = {"epoch": self._attempt.epoch, "transaction": self._transaction.opened}
        return CommitDescriptor(kind=KIND, records=self._records, data={"topic": self._target.now.topic, **number})

    def complete_commit(self, committed: CommitDescriptor) -> None:
        """The transaction has made it visible. Raises StaleOwner if it never did."""
        _refuse_foreign(committed, self._attempt)
        mine = committed.data["epoch"] == self._attempt.epoch
        if mine and committed.data["transaction"] > self._transaction.committed:
            raise StaleOwner(
                f"topic {self._target.now.topic}: {self._attempt.owner} has not committed what it completes"
            )
        self._records = 0

    def rollback(self) -> None:
        self._records = 0
        self._transaction.abort()

    def close(self) -> None:
        """The transaction is the task's."""


class AtLeastOnceWriter(SinkStreamWriter):
    """Writes records that are visible at once, and sees to it that they are safe before the round commits."""

    def __init__(self, target: CurrentTarget, config: KafkaSinkConfig, attempt: Attempt) -> None:
        """Raises ConfigInvalid for settings that librdkafka refuses."""
        self._target = target
        self._attempt = attempt
        self._bootstrap = config.bootstrap
        self._troubles = Troubles()
        self._lost: KafkaError | None = None
        client = producer_settings(config, f"scribengin-{attempt.owner}", target.now.bytes_max)
        self._producer: Producer = made(Producer, {**client, "on_delivery": self._delivered}, self._troubles)
        self._records = 0

    def recover(self, committed: CommitDescriptor | None) -> None:
        """Nothing can be taken back: what was written and not committed is written again."""
        _refuse_foreign(committed, self._attempt)
        self._records = 0

    @property
    def payload_bytes_max(self) -> int | None:
        return self._target.now.payload_bytes_max

    def check(self, batch: pa.RecordBatch) -> None:
        self._target.checked(batch)

    def write(self, batch: pa.RecordBatch) -> None:
        records = self._target.outgoing(batch)
        with self._asking(), failpoint("kafka.produce_at_once"):
            hand_over(self._producer, self._target.now, records)
        self._records += len(records.values)

    def prepare_commit(self) -> CommitDescriptor | None:
        if not self._records:
            return None
        with self._asking():
            left = self._producer.flush(REQUEST_TIMEOUT_S)
            if self._lost is not None:
                raise KafkaException(self._lost)
        if left:
            raise SystemUnreachable(
                f"Kafka at {self._bootstrap}: {many(left, 'record')} {which(left, 'was', 'were')} not taken "
                f"within {REQUEST_TIMEOUT_S:g} s; {which(left, 'it is', 'they are')} written again: "
                "see whether the brokers run"
            )
        self._troubles.take()
        return CommitDescriptor(kind=KIND, records=self._records, data={"topic": self._target.now.topic})

    def complete_commit(self, committed: CommitDescriptor) -> None:
        _refuse_foreign(committed, self._attempt)
        self._records = 0

    def rollback(self) -> None:
        self._records = 0

    def close(self) -> None:
        """What waits in the client belongs to no round that commits: it is dropped with it."""
        self.__dict__.pop("_producer", None)

    def _delivered(self, error: KafkaError | None, _message: Any) -> None:
        self._lost = self._lost or error

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except (KafkaException, SystemError) as error:
            raise self._failure(self._cause(error)) from None

    def _cause(self, error: Exception) -> KafkaException:
        """What the client has ended for raises in whatever it is asked next: as what it is, or, if it tells of
        deliveries meanwhile, behind a SystemError of Python's. All later calls say that it has ended, and no more."""
        known = error if isinstance(error, KafkaException) else error.__cause__
        if not isinstance(known, KafkaException):
            raise error
        if known.args[0].code() == KafkaError._FATAL:
            try:
                self._producer.poll(0)
            except (KafkaException, SystemError) as cause:
                return self._cause(cause)
        return known

    def _failure(self, error: KafkaException) -> ScribenginError:
        return failure(error, self._bootstrap, f"writing to topic {self._target.now.topic}", self._troubles)


def _refuse_foreign(committed: CommitDescriptor | None, attempt: Attempt) -> None:
    if committed is not None and committed.kind != KIND:
        raise DataflowError(f"{attempt.commit_log} names a round of a '{committed.kind}' sink; restore it")
