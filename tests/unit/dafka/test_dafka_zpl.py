"""ZPL as the C programs and CURVE's tools write it, and what of it is refused, in which words."""

from __future__ import annotations

import pytest

from scribengin.dafka.zpl import ZplItem, format_zpl, parse_zpl
from scribengin.errors import ConfigInvalid

OF_THE_SPECIFICATION = """\
#   Notice that indentation is always 4 spaces, there are no tabs.
#
context
    iothreads = 1
    verbose = 1      #   Ask for a trace

main
    type = zqueue    #  ZMQ_DEVICE type
  # a comment stands anywhere
    frontend
        option
            hwm = 1000
            swap = 25000000     #  25MB
        bind = 'inproc://addr1'
        bind = "a 'quoted' # value"  # said twice
    backend
        bind = inproc://addr3=x y
empty =
"""


def test_zpl_is_read_as_its_specification_says() -> None:
    option = ZplItem("option", None, (ZplItem("hwm", "1000", (), 12), ZplItem("swap", "25000000", (), 13)), 11)
    frontend = (option, ZplItem("bind", "inproc://addr1", (), 14), ZplItem("bind", "a 'quoted' # value", (), 15))
    assert parse_zpl(OF_THE_SPECIFICATION, source="the test") == (
        ZplItem("context", None, (ZplItem("iothreads", "1", (), 4), ZplItem("verbose", "1", (), 5)), 3),
        ZplItem(
            "main",
            None,
            (
                ZplItem("type", "zqueue", (), 8),
                ZplItem("frontend", None, frontend, 10),
                ZplItem("backend", None, (ZplItem("bind", "inproc://addr3=x y", (), 17),), 16),
            ),
            7,
        ),
        ZplItem("empty", "", (), 18),
    )


def test_ends_of_lines_of_other_systems_and_a_last_line_without_one_are_read() -> None:
    assert parse_zpl("\ufeffa\r\n    b = 1 \t\r\n\t\r\nc", source="x") == (
        ZplItem("a", None, (ZplItem("b", "1", (), 2),), 1),
        ZplItem("c", None, (), 4),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\n  b = 1", "key.zpl line 2: it is indented by 2 spaces: indent by 4 at once"),
        ("    a = 1", "key.zpl line 1: it is indented too deeply: nothing stands above it"),
        ("a\n        b = 1", "key.zpl line 2: it is indented too deeply"),
        ("= 1", "key.zpl line 1: it begins with no name"),
        ("\ta = 1", "key.zpl line 1: it begins with no name"),
        ("/a = 1", "key.zpl line 1: it begins with no name"),
        ("a/ = 1", "key.zpl line 1: behind its name stands neither"),
        ("a: SECRET", "key.zpl line 1: behind its name stands neither"),
        ("a = 'SECRET", "key.zpl line 1: a closing ' is missing"),
        ("a = 'SECRET' SECRET", "key.zpl line 1: behind the quoted value stands more"),
        ("\n\na = SEC\0RET", "key.zpl line 3: it holds a control character"),
        ("a = " + "SECRET" * 200, "key.zpl line 1: it has more than 1,024 characters"),
    ],
)
def test_what_is_no_zpl_is_one_line_that_quotes_nothing(text: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        parse_zpl(text, source="key.zpl")
    assert str(refused.value).startswith(words)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    "item",
    [
        ZplItem("a b"),
        ZplItem("", "1"),
        ZplItem("/a"),
        ZplItem("a", "1\n2"),
        ZplItem("a", """both " and '"""),
        ZplItem("a", "1", (ZplItem("#"),)),
        ZplItem("a", "x" * 1100),
    ],
)
def test_what_no_line_can_say_is_not_written(item: ZplItem) -> None:
    with pytest.raises(ValueError, match=r"no line of ZPL says that|^it |^behind"):
        format_zpl([item])
