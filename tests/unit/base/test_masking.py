"""What is shown of a configuration that has secrets in it, and what becomes of an edit of that; references to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.text.masking import MASK, masked, masked_bytes, masked_text, unmasked
from scribengin.errors import ConfigInvalid
from scribengin.worker.failures import remedy_for
from scribengin_registry.errors import ReferenceMissing
from scribengin_registry.references import resolved, resolved_all
from scribengin_tools.rendering.text import print_error

SECRET = "hunter2-Grüße"


@pytest.mark.parametrize(
    "name",
    [
        "password", "ssl.key.password", "trustStorePassword", "passwd", "client_secret", "fs.s3a.secret.key",
        "fs.s3a.access.key", "api_key", "apiKey", "AWS_SECRET_ACCESS_KEY", "sasl.jaas.config", "auth.token",
        "SCRIBENGIN_REGISTRY_AUTH", "private-key", "spark.hadoop.fs.azure.account.key", "DB_PASS", "SIGNING_KEY",
        "GITHUB_PAT", "DB_CREDS",
    ],
)  # fmt: skip
def test_what_stands_under_such_a_name_is_not_shown(name: str) -> None:
    assert masked({name: SECRET}) == {name: MASK}
    assert masked({name: {"deeper": [SECRET, 5, True, None]}}) == {name: {"deeper": [MASK, MASK, True, None]}}
    for reference in ("${env:PASSWORD}", "${file:/etc/keys/a}", "${env:A}${file:b}", ""):
        assert masked({name: reference}) == {name: reference}
    assert masked({name: "${env:USER}:" + SECRET}) == {name: MASK}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.keystore.location", "/etc/keys"), ("sasl.oauthbearer.token.endpoint.url", "https://a.example/token"),
        ("password_file", "/etc/p"), ("token_count", 5), ("key", "sensor"), ("keys", ["a"]), ("author", "ada"),
        ("sql", "SELECT * FROM t WHERE password='x'"), ("records_max", 10), ("access_key_id", "AKIA"),
        ("LOOKUP_PATH", "/a"), ("COMPASS", "n"), ("partition_key", "sensor"), ("KEY_COLUMN", "a"),
    ],
)  # fmt: skip
def test_what_is_only_about_one_is_shown(name: str, value: Any) -> None:
    assert masked({name: value}) == {name: value}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("jdbc:db2://db/x?user=ada&password=hunter2&ssl=true", f"jdbc:db2://db/x?user=ada&password={MASK}&ssl=true"),
        ("jdbc:sqlserver://db;user=sa;password=hunter2;a=b", f"jdbc:sqlserver://db;user=sa;password={MASK};a=b"),
        ("postgres://ada:hunter2@db:5432/x", f"postgres://ada:{MASK}@db:5432/x"),
        ("-Xmx1g -Dssl.trustStorePassword=hunter2 -Da=b", f"-Xmx1g -Dssl.trustStorePassword={MASK} -Da=b"),
        ('Module required username="ada" password="hunter 2";', f'Module required username="ada" password={MASK};'),
        ("password=${env:PASSWORD}", "password=${env:PASSWORD}"),
        ("hdfs://name:8020/a", "hdfs://name:8020/a"),
        ("nothing of that kind, Grüße", "nothing of that kind, Grüße"),
    ],
)  # fmt: skip
def test_what_is_said_in_a_text_is_not_shown(text: str, shown: str) -> None:
    assert masked_text(text) == shown
    assert masked_text(shown) == shown


def test_a_long_text_takes_no_longer_than_it_is() -> None:
    text = "x" * 262_144 + "password" * 10_000 + "://" * 10_000
    assert masked_text(text) == text


def test_a_node_is_as_it_is_unless_it_has_something_to_hide() -> None:
    for data in (b"", bytes(range(256)), b'{"a":1}', b"[" * 100_000):
        assert masked_bytes(data) == data
    assert json.loads(masked_bytes(json.dumps({"password": SECRET}).encode())) == {"password": MASK}


def test_what_was_left_masked_is_what_it_was() -> None:
    before = {"options": {"password": SECRET, "url": "j://ada:x@h", "n": 1}, "list": [{"token": "a"}, {"token": "b"}]}
    shown = masked(before)
    assert SECRET not in str(shown)
    assert unmasked(shown, before, shown) == before
    edited = {**shown, "options": {**shown["options"], "n": 2, "password": "other"}}
    assert unmasked(edited, before, shown)["options"] == {"password": "other", "url": "j://ada:x@h", "n": 2}
    for wrong in ({"options": {"other": MASK}}, {"options": {"url": f"j://eve:{MASK}@evil"}}, {"a": [MASK]}):
        with pytest.raises(ConfigInvalid, match="not shown"):
            unmasked(wrong, before, shown)


def test_a_reference_is_what_it_names_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIBENGIN_TEST_PASSWORD", SECRET)
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    assert resolved("a-${env:SCRIBENGIN_TEST_PASSWORD}-b") == f"a-{SECRET}-b"
    assert resolved(f"${{file:{file}}}") == SECRET
    assert resolved_all({"a": [f"${{file:{file}}}", 5, None]}) == {"a": [SECRET, 5, None]}
    assert resolved("${other:x} $HOME ${}") == "${other:x} $HOME ${}"
    with pytest.raises(ReferenceMissing, match="no variable NOBODY"):
        resolved("${env:NOBODY}")
    with pytest.raises(ReferenceMissing, match="No such file"):
        resolved(f"${{file:{tmp_path}/nothing}}")


def test_an_error_tells_no_secret_neither_in_a_report_nor_on_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    told = "no connection to jdbc:db2://db/x?user=ada&password=hunter2"
    assert "hunter2" not in remedy_for(RuntimeError(told)).text
    print_error(told)
    assert f"user=ada&password={MASK}" in capsys.readouterr().err
