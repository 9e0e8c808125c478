"""What an error of a producer means for its task: what `client.engine_error` says, and what only producers meet."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from scribengin.connectors.kafka.client.client import Troubles, engine_error
from scribengin.errors import ConfigInvalid, DecisionUnknown, RecordTooLarge, ScribenginError

_FENCED = frozenset(
    {
        KafkaError._FATAL,  # what every call says once one of the others has come up: only a new producer goes on
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.PRODUCER_FENCED,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)


def failure(error: KafkaException, bootstrap: str, doing: str, troubles: Troubles) -> ScribenginError:
    """The engine's own error for one of the client's, which came up while `doing` something."""
    cause: KafkaError = error.args[0]
    if cause.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigInvalid(
            f"Kafka at {bootstrap}, {doing}: {cause.str()} (transaction.max.timeout.ms, there); lower "
            "`transaction_timeout_s` of the sink, or raise that"
        )
    if cause.code() in _FENCED:
        return DecisionUnknown(
            f"Kafka at {bootstrap}, {doing}: {cause.str()}; another owner has fenced the transaction, or it took "
            "longer than `transaction_timeout_s`: the task is taken over again, which says which"
        )
    if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return RecordTooLarge(f"Kafka at {bootstrap}, {doing}: {cause.str()}; raise max.message.bytes of the topic")
    return engine_error(cause, bootstrap, doing, troubles.take())
