"""Configurations of Dafka's C programs, which are ZPL, as keys of DafkaConfig.

Their keys are as they are: `beacon/interval` is a line `interval` below `beacon`. So are those that only DafkaConfig
has. `verbose` is read and changes nothing: there is nothing to trace. What says where a C store keeps its records, or
how many wait for it, has no meaning here, and is refused: whoever wrote it counts on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from scribengin.base.model import models_in
from scribengin.base.text.refusals import did_you_mean
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.zpl import ZplItem, parse_zpl
from scribengin.errors import ConfigInvalid

_WITHOUT_EFFECT = {f"{role}/verbose" for role in ("beacon", "tower", "producer", "consumer", "store")}
_REFUSED = {
    "store/db": "a store keeps records as logs of a namespace: take the line out, and say --namespace and --prefix",
    "store/high_watermark": (
        "stores go by producer/high_watermark and consumer/high_watermark: take the line out, and set those"
    ),
}
_SEVERAL = {"beacon/sub_address", "beacon/pub_address", "curve/allowed", "curve/tower_key"}
"""What may be said in several lines."""


def _known() -> dict[str, tuple[str, ...]]:
    """Each path of a configuration, and the keys that lead to the same in DafkaConfig."""
    known: dict[str, tuple[str, ...]] = {"consumer/offset/reset": ("consumer", "offset_reset")}
    for name, field in DafkaConfig.model_fields.items():
        below = [key for model in models_in(field.annotation) for key in model.model_fields]
        if below:
            known |= {f"{name}/{key}": (name, key) for key in below}
        else:
            known[name] = (name,)
    return known


_KNOWN = _known()
_ALL = (*_KNOWN, *_WITHOUT_EFFECT, *_REFUSED)
_SECTIONS = {
    section for path in _ALL for section in accumulate(path.split("/")[:-1], lambda above, name: f"{above}/{name}")
}


def parse_program_config(text: str, *, source: str) -> dict[str, Any]:
    """What `text`, which came from `source`, says of Dafka's roles, for DafkaConfig: values are text still. Raises
    ConfigInvalid, one line that names the line of `text` and its key."""
    said: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for path, item in _items(parse_zpl(text, source=source), ""):
        try:
            _take(said, lines, path, item)
        except ValueError as error:
            raise ConfigInvalid(f"{source} line {item.line}: {error}") from None
        lines.setdefault(path, item.line)
    return said


def _items(items: Iterable[ZplItem], above: str) -> Iterator[tuple[str, ZplItem]]:
    """All of them, those above first, and the path of each."""
    for item in items:
        yield f"{above}{item.name}", item
        yield from _items(item.children, f"{above}{item.name}/")


def _take(said: dict[str, Any], lines: dict[str, int], path: str, item: ZplItem) -> None:
    """Put what an item says into `said`. `lines`: of the paths before. Raises ValueError."""
    if "/" in item.name:
        name = item.name.rpartition("/")[2]
        raise ValueError(f"'{path}' is no key: write '{name}' below its section, indented by four spaces")
    if path in lines and path not in _SEVERAL:
        raise ValueError(f"'{path}' was said in line {lines[path]}: say it once")
    if path in _SECTIONS:
        if item.value is not None:
            raise ValueError(f"'{path}' has a value: it has keys, each in a line below it")
        return
    if path in _REFUSED:
        raise ValueError(f"'{path}' means nothing here: {_REFUSED[path]}")
    if path not in _ALL:
        raise ValueError(f"unknown key '{path}'{did_you_mean(path, _ALL)}")
    if item.value is None:
        raise ValueError(f"'{path}' has no value: write `{item.name} = value`")
    if path in _WITHOUT_EFFECT:
        return
    *sections, key = _KNOWN[path]
    below = said
    for section in sections:
        below = below.setdefault(section, {})
    if path in _SEVERAL:
        below[key] = [*below.get(key, []), item.value]
    else:
        below[key] = item.value
