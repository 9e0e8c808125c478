"""Every operator that keeps state, as an output of one dataflow: as a stream, and as a batch job."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from scribengin.spark.stateful.operators import operator_names
from tests.integration.processors import BUILT_IN, BY_FRAME, BY_RECORD, WINDOWS


@dataclass(frozen=True)
class OperatorCase:
    """One output."""

    does: str
    """A statement, or what a function over `src` returns."""
    bounded: bool = True
    """Whether records that come far too late are dropped."""
    at_once: str | None = None
    """What a batch job does instead, where Spark has the operator for streams alone."""

    def text(self, does: str) -> str:
        return f"context.spark.sql({does!r})" if does.startswith("SELECT") else does


def grouped(window: str, call: str) -> OperatorCase:
    """Counts and sums by a window of time, and who."""
    columns = f"{window}.start AS at, {window}.end AS upto, who, count(*) AS many, sum(n) AS total"
    return OperatorCase(f"SELECT {columns} FROM src GROUP BY {call}, who")


def joined(kind: str, columns: str = "l.at AS at, l.who AS who, l.n AS n, r.who AS met, r.n AS m") -> OperatorCase:
    return OperatorCase(
        f"SELECT {columns} FROM src l {kind} JOIN other r ON l.who = r.who "
        "AND r.at BETWEEN l.at AND l.at + INTERVAL 10 SECONDS"
    )


def counted(source: str) -> str:
    return f"SELECT window AS w, who, count(*) AS many FROM {source} GROUP BY window(at, '10 seconds'), who"


_HALL = 'context.spark.createDataFrame([("a", "hall")], "who STRING, room STRING")'
OPERATORS = {
    "tumbling": grouped("window", "window(at, '10 seconds')"),
    "tumbling_again": grouped("window", "window(at, '10 seconds')"),
    "sliding": grouped("window", "window(at, '10 seconds', '5 seconds')"),
    "session": grouped("session_window", "session_window(at, '4 seconds')"),
    "inner_join": joined("INNER"),
    "left_join": joined("LEFT"),
    "right_join": joined("RIGHT"),
    "full_join": joined("FULL"),
    "semi_join": joined("LEFT SEMI", "l.at AS at, l.who AS who, l.n AS n"),
    "union": OperatorCase(
        "SELECT window.start AS at, who, count(*) AS many FROM "
        "(SELECT at, who FROM src UNION ALL SELECT at, who FROM other) GROUP BY window(at, '10 seconds'), who"
    ),
    "static_join": OperatorCase(
        f'inputs["src"].join({_HALL}, "who", "left").select("at", "who", "n", "room")', bounded=False
    ),
    "static_join_grouped": OperatorCase(
        f'inputs["src"].join({_HALL}, "who").groupBy(F.window("at", "10 seconds"), "room", "who").count()'
    ),
    "duplicates": OperatorCase('inputs["src"].select("at", "who", "n").dropDuplicates(["who", "at", "n"])'),
    "duplicates_for_ever": OperatorCase('inputs["src"].select("at", "who", "n").dropDuplicates(["who", "n"])'),
    "duplicates_within_the_watermark": OperatorCase(
        'inputs["src"].select("at", "who", "n").dropDuplicatesWithinWatermark(["who", "n"])',
        at_once='inputs["src"].select("at", "who", "n").dropDuplicates(["who", "n"])',
    ),
    "windows_of_windows": OperatorCase(
        "SELECT window.start AS at, who, max(many) AS most, count(*) AS windows FROM "
        f"({counted('src')}) GROUP BY window(window_time(w), '40 seconds'), who"
    ),
    "windows_joined": OperatorCase(
        f"SELECT l.w.start AS at, l.who AS who, l.many AS many, r.many AS others FROM ({counted('src')}) l "
        f"JOIN ({counted('other')}) r ON l.w = r.w AND l.who = r.who"
    ),
    "join_grouped": OperatorCase(
        "SELECT window.start AS at, who, count(*) AS many FROM (SELECT l.at AS at, l.who AS who FROM src l "
        "JOIN other r ON l.who = r.who AND r.at BETWEEN l.at AND l.at + INTERVAL 10 SECONDS) "
        "GROUP BY window(at, '10 seconds'), who"
    ),
    "processor_by_record": OperatorCase(BY_RECORD, at_once=BUILT_IN),
    "processor_by_frame": OperatorCase(BY_FRAME, at_once=BUILT_IN),
}
ALIKE = {
    "sliding",
    "inner_join",
    "left_join",
    "right_join",
    "semi_join",
    "union",
    "static_join",
    "static_join_grouped",
    "duplicates_for_ever",
    "windows_joined",
    "join_grouped",
    "processor_by_record",
}
"""Much alike others, a full join all of the joins; or in tests of their own."""

_MODULE = """
def transform(inputs, context):
    return outputs(STREAM, inputs, context)


def at_once(inputs, context):
    in_time = {name: frame.where("unix_timestamp(at) > 0") for name, frame in inputs.items()}
    return outputs(DROPPING, in_time, context) | outputs(KEEPING, inputs, context)


def outputs(does, inputs, context):
    for name, frame in inputs.items():
        frame.createOrReplaceTempView(name)
    return {name: output(inputs, context) for name, output in does.items()}


"""


def unbounded(names: Collection[str]) -> list[str]:
    """What a dataflow of these outputs calls those of its operators whose state may grow for ever."""
    duplicates = [name for name in names if name.startswith("duplicates")]
    processors = [name for name in names if name.startswith("processor")]
    called = {
        **dict(zip(duplicates, operator_names(["dedupe"] * len(duplicates)), strict=True)),
        **dict(zip(processors, operator_names(["transformWithStateInPySparkExec"] * len(processors)), strict=True)),
    }
    return [called[name] for name in called if name in ("duplicates_for_ever", *processors)]


def module_of(names: Collection[str]) -> str:
    """The text of a module: `transform` gives out these of streams, and `at_once` of all there is, without what is
    before the year 1970 where an operator drops that."""
    cases = {name: OPERATORS[name] for name in names}

    def functions(name: str, texts: dict[str, str]) -> str:
        lines = [f"    {name!r}: lambda inputs, context: {text},\n" for name, text in texts.items()]
        return f"{name} = {{\n{''.join(lines)}}}\n"

    stream = {name: case.text(case.does) for name, case in cases.items()}
    at_once = {name: case.text(case.at_once or case.does) for name, case in cases.items()}
    dropping = {name: text for name, text in at_once.items() if cases[name].bounded}
    keeping = {name: text for name, text in at_once.items() if not cases[name].bounded}
    return "".join(
        [
            WINDOWS,
            _MODULE,
            functions("STREAM", stream),
            functions("DROPPING", dropping),
            functions("KEEPING", keeping),
        ]
    )
