"""What a user may write into a dataflow descriptor, and what they are told when they may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.registry.config_node import config_from_bytes, config_to_bytes
from scribengin.errors import ConfigInvalid
from scribengin.operations.chain.config import is_chain, load_chain

FLOW: dict[str, Any] = {
    "name": "delays",
    "sources": {"flights": {"kind": "log", "logs": "flights/*"}},
    "sinks": {"late": {"kind": "log", "log": "late"}, "bad": {"kind": "hdfs", "path": "/tmp/bad"}},
    "transformation": "delays:transform",
}


def flow(**changes: Any) -> dict[str, Any]:
    return {**FLOW, **changes}


def refused(**changes: Any) -> str:
    with pytest.raises(ConfigInvalid) as refusal:
        load_config({k: v for k, v in flow(**changes).items() if v is not None})
    message = str(refusal.value)
    assert "\n" not in message
    return message


def test_a_config_survives_the_registry() -> None:
    config = load_config(FLOW)
    assert config_from_bytes(config_to_bytes(config), "/there") == config


def test_an_unknown_key_is_refused_by_name() -> None:
    assert "unknown key 'worker'" in refused(worker=3)
    assert "unknown key 'sources.flights.topic'" in refused(
        sources={"flights": {"kind": "log", "logs": "a", "topic": "x"}}
    )


def test_a_wrong_type_is_refused_with_its_place() -> None:
    assert "workers: 'many' is no whole number" in refused(workers="many")


def test_exactly_one_kind_of_transformation_is_given() -> None:
    assert "exactly one of transformation" in refused(sql={"late": "SELECT 1"})
    assert "exactly one of transformation" in refused(transformation=None)


def test_a_transformation_is_a_module_and_a_function() -> None:
    assert "not of the form module:function" in refused(transformation="delays.transform")


def test_one_statement_goes_with_one_sink() -> None:
    assert "give one statement a sink" in refused(transformation=None, sql="SELECT 1")


def test_sql_names_sinks_that_exist() -> None:
    assert "sql names 'early', which is none of the sinks" in refused(transformation=None, sql={"early": "SELECT 1"})


def test_the_error_route_is_a_sink_that_the_transformation_does_not_write() -> None:
    config = load_config(flow(errors={"action": "route", "sink": "bad"}))
    assert config.outputs == ["late"]
    assert "errors.sink 'worse' is none of the sinks" in refused(errors={"action": "route", "sink": "worse"})
    assert "goes with errors.sink" in refused(errors={"action": "route"})
    assert "errors.sink goes with errors.action: route" in refused(errors={"sink": "bad"})
    assert load_config(flow(errors={"action": "stop", "sink": "bad"})).outputs == config.outputs
    partitioned = {"kind": "hdfs", "path": "/bad", "partition": {"columns": ["day"]}}
    wrong = refused(sinks={"bad": partitioned}, errors={"action": "route", "sink": "bad"})
    assert "errors.sink 'bad' has a partition" in wrong


def test_a_divided_sink_has_keys_and_one_task() -> None:
    divided = {"kind": "log", "log": "late", "streams": 8, "partition_by": ["carrier"]}
    assert load_config(flow(sinks={"late": divided})).tasks == 1
    assert "sinks.late.streams goes with tasks: 1" in refused(sinks={"late": divided}, tasks=2)
    assert "streams and partition_by go together" in refused(sinks={"late": {**divided, "partition_by": []}})
    errors = {"action": "route", "sink": "late"}
    assert "'late' is divided into streams" in refused(sinks={**FLOW["sinks"], "late": divided}, errors=errors)


def test_state_is_one_task_over_logs_with_one_sink() -> None:
    log = {"kind": "log", "log": "out"}

    def stateful(**changes: Any) -> dict[str, Any]:
        return {
            "name": "flow",
            "sources": {"src": {"kind": "log", "logs": "in"}},
            "sinks": {"out": log},
            "sql": "SELECT payload FROM src",
            "state": {},
            **changes,
        }

    assert load_config(stateful()).tasks == 1
    assert load_config(stateful(state=None)).tasks is None
    topic = {"kind": "kafka", "bootstrap": "there:9092", "topics": ["t"]}
    two = {"out": log, "other": {"kind": "log", "log": "other"}}
    both = stateful(sources={"src": topic}, sinks=two, sql=dict.fromkeys(two, "SELECT 1"))
    assert load_config(both).outputs == ["out", "other"]
    assert load_config(stateful(sources={"src": {"kind": "hdfs", "path": "/in"}})).tasks == 1
    routed = {"sinks": {"out": log, "bad": {"kind": "log", "log": "bad"}}, "errors": {"action": "route", "sink": "bad"}}
    assert load_config(stateful(**routed)).outputs == ["out"]
    kept = load_config(stateful(state={"checkpoints": "/kept", "watermarks": {"src": {"column": "at"}}})).state
    assert kept is not None
    assert (kept.checkpoints, kept.partitions, kept.watermarks["src"].delay_s) == ("/kept", None, 0)
    on_hdfs = load_config(stateful(launcher="yarn", state={"checkpoints": "HDFS://nameservice1/kept/"})).state
    assert on_hdfs is not None
    assert on_hdfs.checkpoints == "hdfs://nameservice1/kept"
    for changes, why in (
        ({"tasks": 2}, "sources.src has none: leave `tasks` out"),
        ({"sources": {"src": {"kind": "spark", "spark_format": "jdbc"}}}, "reads logs, Kafka and files: have a"),
        ({"sources": {"src": {**topic, "on_expired": "latest"}}}, "on_expired: latest does not go with state"),
        ({"state": {"watermarks": {"srk": {"column": "at"}}}}, "'srk', which is none of the sources"),
        ({"state": {"checkpoints": "s3://there/kept"}}, "'s3://there/kept' is neither a directory nor on hdfs://"),
        ({"spark": {"master": "spark://h:7077"}}, "spark.master spark://h:7077 does not go with state: choose local"),
        ({"spark": {"master": "yarn"}}, "state.checkpoints is needed on a cluster"),
        ({"launcher": "yarn"}, "state.checkpoints is needed on a cluster"),
    ):
        with pytest.raises(ConfigInvalid, match=why):
            load_config(stateful(**changes))


def test_late_records_have_a_sink_that_the_transformation_does_not_write() -> None:
    state = {"watermarks": {"flights": {"column": "at"}}, "late": {"sink": "bad"}}
    config = load_config(flow(state=state))
    assert (config.outputs, config.role_of("bad"), config.role_of("late")) == (["late"], "late records", None)
    log = {"kind": "log", "log": "late"}
    errors = {"action": "route", "sink": "bad"}
    divided = {**log, "streams": 8, "partition_by": ["carrier"]}
    partitioned = {"kind": "hdfs", "path": "/bad", "partition": {"columns": ["day"]}}
    for changes, why in (
        ({"state": {**state, "late": {"sink": "worse"}}}, "state.late.sink 'worse' is none of the sinks (late, bad)"),
        ({"state": {**state, "late": {}}}, "state.late.sink: is missing"),
        ({"state": {"late": {"sink": "bad"}}}, "state.late goes with state.watermarks"),
        ({"state": state, "errors": errors}, "state.late.sink 'bad' takes the bad records (errors.sink)"),
        ({"state": state, "sinks": {"bad": log}}, "sinks: 'bad' takes the late records: add one that the transf"),
        ({"state": state, "sinks": {"late": log, "bad": divided}}, "state.late.sink 'bad' is divided into streams"),
        ({"state": state, "sinks": {"late": log, "bad": partitioned}}, "state.late.sink 'bad' has a partition"),
    ):
        assert why in refused(**changes)


def test_what_is_said_of_statements_knows_which_sinks_are_not_the_transformations() -> None:
    log = {"kind": "log", "log": "bad"}
    late = {"watermarks": {"flights": {"column": "at"}}, "late": {"sink": "bad"}}
    route = {"action": "route", "sink": "bad"}
    one, two = "SELECT 1", {"late": "SELECT 1", "bad": "SELECT 1"}
    for changes, why in (
        ({"sql": two, "state": late}, "sql names 'bad', which takes the late records: the transformation does not"),
        ({"sql": two, "errors": route}, "sql names 'bad', which takes the bad records: the transformation does not"),
        ({"sql": one, "state": late, "sinks": {"bad": log}}, "sinks: 'bad' takes the late records: add one"),
        ({"sql": one, "errors": route, "sinks": {"bad": log}}, "sinks: 'bad' takes the bad records: add one"),
        ({"sql": one, "state": {**late, "late": {"sink": "bat"}}}, "state.late.sink 'bat' is none of the sinks"),
        ({"sql": one, "errors": {**route, "sink": "bat"}}, "errors.sink 'bat' is none of the sinks (late, bad)"),
    ):
        assert why in refused(transformation=None, **changes)


def test_late_tombstones_are_refused_by_a_sink_that_would_write_them_as_they_were_read() -> None:
    topic = {"kind": "kafka", "bootstrap": "there:9092", "topics": ["t"]}
    late = {"watermarks": {"flights": {"column": "timestamp"}}, "late": {"sink": "bad"}}
    log = {"kind": "log", "log": "late"}

    def changes(source: dict[str, Any], sink: dict[str, Any]) -> dict[str, Any]:
        return {"state": late, "sources": {"flights": {**topic, **source}}, "sinks": {"late": log, "bad": sink}}

    bad = {"kind": "log", "log": "bad"}
    why = "sources.flights keeps tombstones, and state.late.sink 'bad' with format: raw takes no record without a payl"
    assert why in refused(**changes({}, bad))
    json = {"format": "json", "schema_ddl": "n INT"}
    for source, sink in (({"tombstones": "drop"}, bad), ({}, {**bad, "format": "json"}), (json, bad)):
        assert load_config(flow(**changes(source, sink))).outputs == ["late"]


def test_late_rows_of_parquet_are_refused_by_a_sink_of_payloads_also_where_a_column_has_that_name() -> None:
    """All its columns are the record, and that one may be null."""
    files = {"kind": "hdfs", "path": "/in", "file_format": "parquet"}
    late = {"watermarks": {"flights": {"column": "at"}}, "late": {"sink": "bad"}}

    def changes(source: dict[str, Any], sink: dict[str, Any]) -> dict[str, Any]:
        sinks = {"late": {"kind": "log", "log": "late"}, "bad": {"kind": "log", "log": "bad", **sink}}
        return {"state": late, "sources": {"flights": source}, "sinks": sinks}

    why = "sources.flights reads Parquet, whose records are columns, and state.late.sink 'bad' with format: raw takes p"
    assert why in refused(**changes(files, {}))
    lines = {"kind": "hdfs", "path": "/in", "format": "json", "schema_ddl": "at TIMESTAMP"}
    for source, sink in ((files, {"format": "json"}), (lines, {})):
        assert load_config(flow(**changes(source, sink))).outputs == ["late"]


def test_several_tasks_with_state_take_sources_that_are_divided_alike() -> None:
    divided = {"kind": "log", "logs": "in/*", "streams": 8, "partition_by": ["carrier"]}
    topic = {"kind": "kafka", "bootstrap": "there:9092", "topics": ["t"]}

    def stateful(tasks: int | None = 3, **sources: Any) -> dict[str, Any]:
        return flow(sources=sources, state={}, tasks=tasks)

    assert load_config(stateful(a=divided, b={**divided, "partition_by": ["code"]})).tasks == 3
    assert load_config(stateful(None, a=divided)).tasks == 1
    assert load_config(stateful(8, a=divided)).tasks == 8
    for refused_flow, why in (
        (stateful(a=divided, b=topic), "tasks: 3 with state takes logs .* and sources.b has none: leave `tasks` out"),
        (stateful(9, a=divided), "tasks: 9 is more than the 8 streams of sources.a"),
        (stateful(a=divided, b={**divided, "streams": 4}), "sources.a has 8 streams and sources.b 4: with tasks: 3"),
        (
            stateful(a=divided, b={**divided, "partition_by": ["carrier", "day"]}),
            "sources.a is divided by carrier and sources.b by carrier, day: with tasks: 3",
        ),
        (stateful(a={**divided, "partition_by": ["day", "day"]}), "partition_by names a column twice: day, day"),
        (stateful(a={**divided, "streams": None}), "streams and partition_by go together"),
        (flow(sources={"a": divided}), "sources.a.partition_by goes with `state`"),
    ):
        with pytest.raises(ConfigInvalid, match=why) as refusal:
            load_config(refused_flow)
        assert "\n" not in str(refusal.value)


def test_several_tasks_share_a_divided_sink_where_each_has_streams_of_its_own() -> None:
    source = {"kind": "log", "logs": "in/*", "streams": 4, "partition_by": ["carrier"]}
    sink = {"kind": "log", "log": "late", "streams": 8, "partition_by": ["code"]}

    def stateful(tasks: int, read: dict[str, Any], written: dict[str, Any]) -> dict[str, Any]:
        return flow(sources={"a": read}, sinks={"late": written}, state={}, tasks=tasks)

    assert load_config(stateful(2, source, sink)).tasks == 2
    assert load_config(stateful(4, source, sink)).tasks == 4
    assert load_config(stateful(1, source, {**sink, "streams": 3})).tasks == 1
    uneven = "sinks.late has {} streams and sources.a {}: tasks: {} that write a divided sink must divide both numbers"
    for refused_flow, why in (
        (stateful(3, source, {**sink, "streams": 6}), uneven.format(6, 4, 3)),
        (stateful(2, source, {**sink, "streams": 3}), uneven.format(3, 4, 2)),
        (stateful(2, source, {**sink, "partition_by": ["a", "b"]}), "late is divided by a, b and sources.a by carrier"),
    ):
        with pytest.raises(ConfigInvalid, match=why) as refusal:
            load_config(refused_flow)
        assert "\n" not in str(refusal.value)


def test_a_mistake_in_yaml_says_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text("sources:\n  a:\n    kind: log\n   logs: a/*\n")
    with pytest.raises(ConfigInvalid) as refusal:
        load_config(path)
    assert str(refusal.value) == (
        f"{path} is no YAML: line 4, column 4: expected <block end>, but found '<block mapping start>', while parsing "
        "a block mapping that begins in line 2, column 3; is it indented as what belongs with it?"
    )
    path.write_text("day: 2001-99-99")
    with pytest.raises(ConfigInvalid, match="is no YAML: month must be"):
        load_config(path)


def test_a_file_whose_name_is_like_one_that_there_is_may_be_meant(tmp_path: Path) -> None:
    (tmp_path / "station.yaml").write_text("")
    with pytest.raises(ConfigInvalid, match=r"station\.yml: there is no such file; .*: did you mean 'station\.yaml'\?"):
        load_config(tmp_path / "station.yml")


def test_a_link_to_nothing_is_not_said_to_be_meant_itself(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(ConfigInvalid, match=r"flow\.yaml: there is no such file; name a dataflow descriptor \(.*\)$"):
        load_config(path)


def test_what_is_no_descriptor_by_its_size_or_its_bytes_is_told_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    for content, why in (
        (b"name: a\n#" + b"x" * 1024 * 1024, "has more than 1,048,576 bytes: name a dataflow descriptor"),
        (b"\xff" * 2 * 1024 * 1024, "is not text: name a dataflow descriptor"),
        ("# \u00e9".encode() * 1024 * 1024, "has more than 1,048,576 bytes"),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigInvalid, match=why):
            load_config(path)
        assert not is_chain(path)
    with pytest.raises(ConfigInvalid, match="/dev/zero is no file that can be read twice"):
        load_config("/dev/zero")
    assert not is_chain("/dev/zero")


def test_a_file_that_the_system_does_not_give_is_told_with_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything."""
    path = tmp_path / "flow.yaml"
    path.touch()

    def refused(*_arguments: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(
        ConfigInvalid, match=r"flow\.yaml cannot be read: Permission denied; name a dataflow descriptor"
    ):
        load_config(path)
    with pytest.raises(ConfigInvalid, match=r"flow\.yaml cannot be read: Permission denied; name a chain's file"):
        load_chain(path)


def test_a_missing_file_a_directory_and_a_broken_file_are_named(tmp_path: Path) -> None:
    for content, why in (
        (None, "there is no such file"),
        ("a: [", "is no YAML"),
        ("- a", "holds no mapping"),
    ):
        path = tmp_path / "flow.yaml"
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConfigInvalid, match=why) as refusal:
            load_config(path)
        assert str(path) in str(refusal.value)
    with pytest.raises(ConfigInvalid, match=r"but flow\.yaml; name the descriptor itself"):
        load_config(tmp_path)


def test_the_package_is_the_descriptors_directory(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(
        "name: a\nsources: {x: {kind: log, logs: a}}\nsinks: {y: {kind: log, log: b}}\nsql: SELECT payload FROM x\n"
    )
    assert load_config(path).package == str(tmp_path)


def test_overrides_reach_into_the_descriptor() -> None:
    config = load_config(FLOW, {"sinks.bad.path": "/elsewhere", "workers": "3"})
    assert config.sinks["bad"].model_dump()["path"] == "/elsewhere"
    assert config.workers == 3
    with pytest.raises(ConfigInvalid, match="'workers' is not a mapping"):
        load_config(flow(workers=1), {"workers.many": "3"})


def test_the_json_schema_names_every_kind_of_connector() -> None:
    schema = DataflowConfig.model_json_schema()
    assert {"LogSourceConfig", "FileSinkConfig"} <= set(schema["$defs"])


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ((), "has no shop.yaml; name the descriptor itself"),
        (("priced.py", "priced.yaml"), "has no shop.yaml, but priced.yaml; name the descriptor itself"),
        (("b.json", "a.yml", "c.yaml"), "but a.yml, b.json, c.yaml; name the descriptor itself"),
    ],
)
def test_a_directory_without_a_descriptor_of_its_name_says_which_it_has(
    tmp_path: Path, files: tuple[str, ...], told: str
) -> None:
    (tmp_path / "shop").mkdir()
    for name in files:
        (tmp_path / "shop" / name).touch()
    with pytest.raises(ConfigInvalid, match=told):
        load_config(tmp_path / "shop")
