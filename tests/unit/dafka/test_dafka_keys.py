"""Files of keys: how they are made, which are read, and that nothing of a key is said where one is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zmq
from zmq.auth import create_certificates
from zmq.utils import z85

from scribengin.dafka.curve import CurveConfig, CurveKeys, fingerprint_of, load_keys, make_key_file
from scribengin.errors import ConfigInvalid


def loaded(key: Path, **said: object) -> CurveKeys:
    keys = load_keys(CurveConfig.model_validate({"key": key, **said}))
    assert keys is not None
    return keys


def with_mode(file: Path, text: str, mode: int = 0o600) -> Path:
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_new_pair_is_for_its_user_alone_and_overwrites_nothing(tmp_path: Path) -> None:
    file = tmp_path / "own.key"
    old = os.umask(0)
    try:
        public = make_key_file(file)
    finally:
        os.umask(old)
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_bytes()
    with pytest.raises(ConfigInvalid, match=r"own\.key is there already"):
        make_key_file(file)
    with pytest.raises(ConfigInvalid, match="cannot be written: No such file"):
        make_key_file(tmp_path / "nowhere" / "own.key")
    assert file.read_bytes() == before
    keys = loaded(file)
    assert z85.encode(keys.public).decode() == public
    assert zmq.curve_public(z85.encode(keys.secret)).decode() == public


def test_a_pair_alone_knows_itself_and_its_towers(tmp_path: Path) -> None:
    make_key_file(tmp_path / "own.key")
    keys = loaded(tmp_path / "own.key")
    assert keys.allowed == {fingerprint_of(keys.public): keys.public}
    assert keys.of_towers(3) == (keys.public,) * 3
    assert load_keys(None) is None


def test_keys_are_allowed_by_a_list_and_by_a_directory(tmp_path: Path) -> None:
    public = {name: make_key_file(tmp_path / f"{name}.key") for name in ("own", "listed", "line", "zpl", "towers")}
    directory = tmp_path / "allowed"
    directory.mkdir()
    (directory / "line.pub").write_text(public["line"] + "\n")
    (directory / "zpl.key").write_text(f'# czmq\'s\nmetadata\ncurve\n    public-key = "{public["zpl"]}"\n')
    (directory / ".swp").write_text("an editor's")
    keys = loaded(
        tmp_path / "own.key",
        allowed=public["listed"],
        allowed_directory=directory,
        tower_key=[public["towers"], public["line"]],
    )
    assert {z85.encode(key).decode() for key in keys.allowed.values()} == {public[n] for n in ("listed", "line", "zpl")}
    assert [z85.encode(key).decode() for key in keys.of_towers(2)] == [public["towers"], public["line"]]


def test_a_public_key_that_reads_like_a_name_with_its_value_is_a_key(tmp_path: Path) -> None:
    public = "name=" + zmq.curve_keypair()[0].decode()[5:]
    make_key_file(tmp_path / "own.key")
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "a.pub").write_text(f"{public}\n")
    keys = loaded(tmp_path / "own.key", allowed_directory=tmp_path / "allowed")
    assert [z85.encode(key).decode() for key in keys.allowed.values()] == [public]


def test_files_that_pyzmq_makes_are_read(tmp_path: Path) -> None:
    public, secret = create_certificates(tmp_path, "theirs")
    directory = tmp_path / "allowed"
    directory.mkdir()
    Path(public).rename(directory / "theirs.key")
    Path(secret).chmod(0o600)
    keys = loaded(Path(secret), allowed_directory=directory)
    assert list(keys.allowed.values()) == [keys.public]


def test_what_is_no_file_of_keys_is_one_line_that_says_nothing_of_them(tmp_path: Path) -> None:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    other = zmq.curve_keypair()[0].decode()
    pair = 'curve\n    public-key = "{}"\n    secret-key = "{}"\n'
    good = with_mode(tmp_path / "good.key", pair.format(public, secret))
    shown = with_mode(tmp_path / "own.key", pair.format(public, secret), 0o640)
    (tmp_path / "empty").mkdir()
    (tmp_path / "secrets").mkdir()
    with_mode(tmp_path / "secrets" / "own.key", pair.format(public, secret))
    (tmp_path / "wrong").mkdir()
    # Not the key first: one may hold a `=`, and the line would be a name with its value.
    (tmp_path / "wrong" / "a.pub").write_text(f"?{secret}{secret}\n")
    (tmp_path / "opened").mkdir()
    (tmp_path / "opened").chmod(0o777)
    for words, said in {
        "own.key can be read by other users": {"key": shown},
        "absent.key cannot be read: No such file": {"key": tmp_path / "absent.key"},
        "is no file: name one": {"key": Path("/dev/null")},
        "not that of its secret key": {"key": with_mode(tmp_path / "mixed.key", pair.format(other, secret))},
        "holds no key pair": {"key": with_mode(tmp_path / "half.key", f"curve\n    public-key = '{public}'\n")},
        "holds a key that is none": {"key": with_mode(tmp_path / "cut.key", pair.format(public, secret[:-1]))},
        "broken.key line 1: it begins with no name": {"key": with_mode(tmp_path / "broken.key", f"?{secret}")},
        "curve.key is a key itself": {"key": secret},
        "is empty: put a file there": {"key": good, "allowed_directory": tmp_path / "empty"},
        "own.key holds a secret key": {"key": good, "allowed_directory": tmp_path / "secrets"},
        "a.pub line 1: ": {"key": good, "allowed_directory": tmp_path / "wrong"},
        "can be changed by every user": {"key": good, "allowed_directory": tmp_path / "opened"},
        "absent cannot be read: No such file": {"key": good, "allowed_directory": tmp_path / "absent"},
    }.items():
        with pytest.raises(ConfigInvalid) as refused:
            load_keys(CurveConfig.model_validate(said))
        message = str(refused.value)
        assert words in message, message
        assert "\n" not in message
        assert not any(key[:8] in message for key in (public, secret, other)), message


@pytest.mark.parametrize("ending", ["//", "/", "/./0", "//0"])
def test_a_key_that_would_be_another_path_is_told_as_a_key_all_the_same(ending: str) -> None:
    said = "0" * (40 - len(ending)) + ending
    assert CurveConfig(key=said, allowed=(said,)), "it is a key"
    with pytest.raises(ConfigInvalid) as refused:
        load_keys(CurveConfig(key=said))
    assert "curve.key is a key itself" in str(refused.value)
    assert said[:8] not in str(refused.value)


def test_keys_have_no_repr(tmp_path: Path) -> None:
    public = make_key_file(tmp_path / "own.key")
    shown = repr(loaded(tmp_path / "own.key"))
    assert shown == "CurveKeys()"
    assert public not in shown
