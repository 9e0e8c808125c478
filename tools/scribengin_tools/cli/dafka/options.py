"""What the commands of `scribengin dafka` share: their options, and the config that those go over."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scribengin_tools.cli.options import file_text, said_in

if TYPE_CHECKING:
    from scribengin.dafka import DafkaConfig

_NAME_BYTES_MAX = 255
_ZPL = (".zpl", ".cfg")
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="YAML with the keys of DafkaConfig, or ZPL (.zpl, .cfg).", show_default=False
    ),
]
SubOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sub",
        metavar="ADDRESS",
        help="Where a tower takes beacons. Repeatable. Default: tcp://127.0.0.1:5556.",
        show_default=False,
    ),
]
PubOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pub",
        metavar="ADDRESS",
        help="Where a tower tells of others. Repeatable. Default: tcp://127.0.0.1:5557.",
        show_default=False,
    ),
]


def configured(file: Path | None, **said: dict[str, object]) -> DafkaConfig:
    """What `file` says, and over it what options have `said` of each section; None: nothing was said.
    Raises ConfigInvalid, also where the extra is not installed."""
    from scribengin.dafka import DafkaConfig
    from scribengin.dafka.config import require_sockets

    require_sockets()
    keys = _keys_of(file)
    for section, options in said.items():
        given = {key: value for key, value in options.items() if value not in (None, [])}
        below = keys.get(section, {})
        if given and isinstance(below, dict):
            keys[section] = {**below, **given}
    return DafkaConfig.parse(keys, source=str(file or "scribengin dafka"))


def _keys_of(file: Path | None) -> dict[str, Any]:
    """What a file of YAML says, or one of the C programs."""
    if file is None or file.suffix not in _ZPL:
        return said_in(file, "of Dafka's roles, as in insecure: true")
    from scribengin.dafka.zpl.programs import parse_program_config

    return parse_program_config(file_text(file, "ZPL"), source=str(file))


def refuse_misnamed(topics: Iterable[str]) -> None:
    """Raises ConfigInvalid for a topic whose name does not fit into a message."""
    from scribengin.errors import ConfigInvalid

    for topic in topics:
        length = len(topic.encode("utf-8", "surrogateescape"))
        if not (0 < length <= _NAME_BYTES_MAX and topic.isprintable()):
            raise ConfigInvalid(
                f"{topic[:40]!r} is no name of a topic: it has {length} bytes, and 1 to {_NAME_BYTES_MAX} of plain "
                "text are one"
            )


def towers(sub: list[str] | None, pub: list[str] | None) -> dict[str, object]:
    """The section `beacon` as options say it."""
    return {"sub_address": sub, "pub_address": pub}
