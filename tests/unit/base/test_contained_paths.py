"""What a node names as a file or directory lies where it should, whoever has written the node."""

from __future__ import annotations

import json

import pytest

from scribengin.base.model import Descriptor
from scribengin.connectors.files.sink.segments import PendingMerge
from scribengin.connectors.files.sink.writer import StagedSegment
from scribengin.errors import DescriptorUnreadable
from scribengin.log.config import LogConfig
from scribengin.log.metadata.segments import LogDescriptor, SegmentsHead

LOG = LogDescriptor(name="a", directory="a%2Fb-0123", created_ms=1, config=LogConfig())
MERGE = PendingMerge(file="day=1/part-0.txt", temporary="t", segments=("0-1.txt@day%3D1",), bytes=1)
ELSEWHERE = ("", ".", "..", "../x", "/etc", "a/../../b", "a//b", "a/..", "\0")


@pytest.mark.parametrize("place", [*ELSEWHERE, "a/b"])
@pytest.mark.parametrize(
    ("descriptor", "field"),
    [
        (LOG, "directory"),
        (SegmentsHead(directory="a"), "directory"),
        (MERGE, "temporary"),
        (StagedSegment(name="a", bytes=1, records=1, crc32=1), "name"),
    ],
    ids=["log", "segments", "merge", "staged"],
)
def test_a_name_is_one_name(descriptor: Descriptor, field: str, place: str) -> None:
    _refused(descriptor, field, place)


@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_final_file_lies_below_its_sink(place: str) -> None:
    _refused(MERGE, "file", place)
    _refused(MERGE, "segments", [place])


@pytest.mark.parametrize("name", ["a", "a.b", "...", "a%2F..", "Gr\u00fc\u00dfe", "-", "a b"])
def test_what_is_a_name_is_taken(name: str) -> None:
    assert LogDescriptor.model_validate({**LOG.model_dump(), "directory": name}).directory == name


def _refused(descriptor: Descriptor, field: str, place: object) -> None:
    data = json.dumps({**descriptor.model_dump(mode="json"), field: place}).encode()
    with pytest.raises(DescriptorUnreadable, match="somebody has changed the node"):
        type(descriptor).from_bytes(data, path="/node")
