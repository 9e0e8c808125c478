"""The schedule of a soak: what its seed and length say, and nothing else; every act has the time that it takes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scribengin_dev.soak.schedule import BEGINNING_S, FLOWS, KINDS, RECOVERY_S, recovered_s, schedule

SEEDS = st.integers(0, 2**63)
LENGTHS_S = st.floats(0, 4 * 3600)
HALF_AN_HOUR_S = 1800.0


@given(SEEDS, LENGTHS_S)
def test_the_same_seed_and_length_are_the_same_schedule(seed: int, length_s: float) -> None:
    assert schedule(seed, length_s) == schedule(seed, length_s)


@given(SEEDS, LENGTHS_S)
def test_what_is_broken_is_mended_and_has_the_time_to_recover_before_the_next_act_and_the_end(
    seed: int, length_s: float
) -> None:
    acts = schedule(seed, length_s)
    for act, following in pairwise(acts):
        assert act.at_s + act.lasts_s + RECOVERY_S[act.kind] <= following.at_s + 0.1  # times are rounded
    assert all(act.at_s >= BEGINNING_S and recovered_s(act) <= length_s for act in acts)
    assert all(act.lasts_s > 0 for act in acts if act.kind in ("pause", "cut registry"))


@given(SEEDS)
def test_in_half_an_hour_every_kind_of_act_occurs_several_times_and_each_dataflow_is_struck(seed: int) -> None:
    acts = schedule(seed, HALF_AN_HOUR_S)
    counts = {kind: sum(act.kind == kind for act in acts) for kind in KINDS}
    assert min(counts.values()) >= 3, counts
    assert max(counts.values()) - min(counts.values()) <= 1
    assert {act.flow for act in acts} == set(range(FLOWS))


@given(SEEDS, LENGTHS_S)
def test_a_longer_soak_begins_as_the_shorter_one_does(seed: int, length_s: float) -> None:
    shorter, longer = schedule(seed, length_s), schedule(seed, length_s + 300)
    assert longer[: len(shorter)] == shorter


def test_another_seed_is_another_schedule() -> None:
    assert len({schedule(seed, HALF_AN_HOUR_S) for seed in range(20)}) == 20
