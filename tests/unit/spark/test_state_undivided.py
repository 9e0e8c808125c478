"""What is said where state cannot be divided: why, what tries again, and the way back."""

from __future__ import annotations

import pytest

from scribengin.errors import CheckpointMismatch, SparkUnavailable, TransformationFailed
from scribengin.spark.stateful.fitting import refuse_undividable, undivided
from scribengin.spark.transform.spec import StateOperator


def test_what_spark_does_not_divide_names_the_number_from_before() -> None:
    refused = undivided(TransformationFailed("as told", reason="[STATE_REPARTITION_X] no"), "hot", "/there", 5, 2)
    assert isinstance(refused, CheckpointMismatch)
    assert str(refused) == (
        "Spark cannot divide the state in /there into 5 partitions ([STATE_REPARTITION_X] no): `scribengin start hot` "
        "tries again; or set the number from before with `scribengin config set hot state.partitions=2`, and then "
        "`scribengin start hot`: nothing is lost"
    )


def test_trouble_of_spark_while_it_divides_is_tried_again_and_has_the_same_way_back() -> None:
    away = undivided(SparkUnavailable("Spark failed while dividing"), "hot", "/there", 5, 2)
    assert isinstance(away, SparkUnavailable)
    assert str(away) == (
        "Spark failed while dividing; where that does not pass, nothing is lost: `scribengin pause hot`, set the "
        "number from before with `scribengin config set hot state.partitions=2`, and `scribengin resume hot`"
    )


def test_where_the_batch_is_named_already_no_way_back_is_told() -> None:
    refused = undivided(TransformationFailed("as told", reason="[STATE_REPARTITION_X] no"), "hot", "/there", 5, None)
    assert isinstance(refused, CheckpointMismatch)
    assert str(refused) == (
        "Spark cannot divide the state in /there into 5 partitions ([STATE_REPARTITION_X] no): `scribengin start hot` "
        "tries again; another number is no way out, for the commit logs name that batch already"
    )
    away = SparkUnavailable("Spark failed while dividing")
    assert undivided(away, "hot", "/there", 5, None) is away


def test_where_the_transformation_keeps_nothing_any_more_nothing_is_divided() -> None:
    with pytest.raises(CheckpointMismatch) as refused:
        refuse_undividable((), "/there", 5, 2)
    assert str(refused.value) == (
        "the transformation keeps nothing, and in /there a batch is begun that divides what it has kept into 5 "
        "partitions: give the dataflow the transformation that it had, or submit another dataflow"
    )


@pytest.mark.parametrize(("before", "told"), [(2, "2"), (None, "what it was")])
def test_what_has_no_key_is_named_with_the_number_that_it_goes_on_with(before: int | None, told: str) -> None:
    counted = StateOperator(name="aggregate", kind="aggregate", spark="", key=("who",), bound=None, partitions=2)
    limit = StateOperator(name="limit", kind="limit", spark="", key=(), bound="")
    refuse_undividable((counted,), "/there", 5, before)
    with pytest.raises(CheckpointMismatch) as refused:
        refuse_undividable((counted, limit), "/there", 5, before)
    assert str(refused.value) == (
        "the state in /there cannot be divided into 5 partitions: limit has no key; "
        f"let state.partitions be {told}, or leave it out"
    )
