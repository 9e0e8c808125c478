"""Processors of transformWithState, as users write them, for packages of tests: but that pandas is imported where it is
needed. Spark starts a process for each plan with one, which only calls `init`, and pandas is most of what it imports.
"""

from __future__ import annotations

IMPORTS = """
from datetime import datetime

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

"""
WINDOWS = (
    IMPORTS
    + """
COLUMNS = "at TIMESTAMP, upto TIMESTAMP, who STRING, many BIGINT, total BIGINT"


class Windows(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.sums = handle.getMapState("sums", "start BIGINT", "many BIGINT, total BIGINT")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            start = int(row.at.timestamp()) // 10 * 10
            many, total = self.sums.getValue((start,)) or (0, 0)
            self.sums.updateValue((start,), (many + 1, total + row.n))
            self.handle.registerTimer((start + 10) * 1000)
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        upto = expiredTimerInfo.getExpiryTimeInMs() // 1000
        many, total = self.sums.getValue((upto - 10,))
        self.sums.removeKey((upto - 10,))
        at = datetime.fromtimestamp(upto - 10)
        yield Row(at=at, upto=datetime.fromtimestamp(upto), who=key[0], many=many, total=total)

    def close(self):
        pass


class Frames(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.rows = handle.getListState("rows", "second BIGINT, n BIGINT")
        self.kept = handle.getValueState("kept", "many BIGINT")

    def handleInputRows(self, key, frames, timerValues):
        for frame in frames:
            seconds = frame["at"].astype("datetime64[s]").astype("int64")
            self.rows.appendList(list(zip(seconds.tolist(), frame["n"].tolist())))
            for upto in (seconds // 10 * 10 + 10).unique().tolist():
                self.handle.registerTimer(upto * 1000)
            self.kept.update(((self.kept.get() or (0,))[0] + len(frame),))
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        upto = expiredTimerInfo.getExpiryTimeInMs() // 1000
        rows = list(self.rows.get())
        left = [row for row in rows if row[0] >= upto]
        due = [n for second, n in rows if second < upto]
        assert self.kept.get()[0] == len(rows)
        self.kept.update((len(left),))
        self.rows.clear()
        if left:
            self.rows.put(left)
        import pandas as pd
        at, end = (pd.Timestamp(second, unit="s") for second in (upto - 10, upto))
        yield pd.DataFrame({"at": [at], "upto": [end], "who": [key[0]], "many": [len(due)], "total": [sum(due)]})

    def close(self):
        pass


"""
)
"""Counts and sums by windows of ten seconds and `who`: a map of them by record, or a list of what they are of."""
BY_RECORD = 'inputs["src"].groupBy("who").transformWithState(Windows(), COLUMNS, "Append", "eventTime")'
BY_FRAME = 'inputs["src"].groupBy("who").transformWithStateInPandas(Frames(), COLUMNS, "Append", "eventTime")'
BUILT_IN = (
    'inputs["src"].groupBy(F.window("at", "10 seconds"), "who").agg(F.count("*").alias("many"), '
    'F.sum("n").alias("total")).selectExpr("window.start AS at", "window.end AS upto", "who", "many", "total")'
)
"""The same with what Spark has built in."""
CLOCK = (
    IMPORTS
    + """
class Clock(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.seen = handle.getListState("seen", "n INT", ttlDurationMs=1)

    def handleInputRows(self, key, frames, timerValues):
        now = timerValues.getCurrentProcessingTimeInMs()
        for frame in frames:
            self.seen.appendList([(int(n),) for n in frame["n"]])
        self.handle.registerTimer(now + 1)
        yield self.told(key, now, False)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield self.told(key, timerValues.getCurrentProcessingTimeInMs(), True)

    def told(self, key, now, due):
        import pandas as pd
        return pd.DataFrame({"who": [key[0]], "ms": [now], "kept": [len(list(self.seen.get()))], "due": [due]})

    def close(self):
        pass


def transform(inputs, context):
    keyed = inputs["src"].groupBy("who")
    columns = "who STRING, ms BIGINT, kept BIGINT, due BOOLEAN"
    return keyed.transformWithStateInPandas(Clock(), columns, "Append", "processingTime")
"""
)
"""How many records of `who` are kept, when there are some, and in the next batch, when they have expired."""


def transforming(does: str, module: str = WINDOWS) -> str:
    """The text of a module whose function `transform` gives out that."""
    return f"{module}\ndef transform(inputs, context):\n    return {does}\n"
