"""Into how many partitions `scribengin state` says that a store is divided."""

from __future__ import annotations

import pytest
from pyspark.sql import Row

from scribengin.spark.stateful.stored import _stores_of


@pytest.mark.parametrize(
    ("operator", "batch", "partitions"), [("globalLimit", 3, 1), ("stateStoreSave", 3, 5), ("stateStoreSave", -1, 2)]
)
def test_what_has_no_key_has_one_partition_however_many_others_have(operator: str, batch: int, partitions: int) -> None:
    told = {"operatorId": 0, "operatorName": operator, "stateStoreName": "default", "operatorProperties": ""}
    [store] = _stores_of(Row(**told, numPartitions=2, maxBatchId=batch), "named", {3: 5})
    assert store.partitions == partitions
