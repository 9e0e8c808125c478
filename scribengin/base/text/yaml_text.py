"""YAML as people write it, and what is refused of it: the one place that reads YAML.

A few hundred bytes of aliases of aliases name more values than a machine has memory for. So a text that comes from
elsewhere, as an edit does, has none; a file of the user's own may.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from scribengin.errors import ConfigInvalid

TEXT_BYTES_MAX = 256 * 1024
"""As large as a config may be in the registry."""
FILE_BYTES_MAX = 1024 * 1024
"""And with all its comments, as a file: what is larger is another file, and takes a minute to find that out."""
_MERGE = "tag:yaml.org,2002:merge"


_OTHER_BASE = re.compile(r"[-+]?(0_*[0-9][0-9_]*$|[^.]*:)")
"""Zeros in front mean base eight to YAML, and colons base sixty: `010` would be 8, and `1:30` would be 90."""


class _PlainLoader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping: YAML's loader takes the last one, and says nothing. And a number
    that people do not read as YAML does."""

    def construct_number(self, node: yaml.ScalarNode, made: int | float) -> int | float:
        """The number, if it is what stands there."""
        if _OTHER_BASE.match(node.value):
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"{node.value} would be the number {made}: write that, or put {node.value} into quotes",
                node.start_mark,
            )
        return made

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        return self.construct_number(node, super().construct_yaml_int(node))

    def construct_yaml_float(self, node: yaml.ScalarNode) -> Any:
        return self.construct_number(node, super().construct_yaml_float(node))

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen: dict[Any, yaml.Mark] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            value = self.construct_object(key)  # 1 and 0x1 are one key
            if not isinstance(value, Hashable):  # a list, by its tag: it is refused when the mapping is made
                continue
            if value in seen:
                raise yaml.composer.ComposerError(
                    None,
                    None,
                    f"the key '{key.value}' stands in {_place(seen[value])}, too: leave one out",
                    key.start_mark,
                )
            seen[value] = key.start_mark
        return node


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_yaml_int)
_PlainLoader.add_constructor("tag:yaml.org,2002:float", _PlainLoader.construct_yaml_float)


class _WithoutAliases(_PlainLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]  # of types-PyYAML
            raise yaml.composer.ComposerError(
                None, None, f"*{event.anchor} is an alias: write out what it stands for", event.start_mark
            )
        return super().compose_node(parent, index)


def parse_yaml(text: str, *, source: str, aliases: bool = False) -> Any:
    """The value of `text`, which came from `source`. Raises ConfigInvalid: it is no YAML, a mapping has a
    key twice, or, unless `aliases` says that the author is trusted with them, it has aliases or is larger than a config
    may be."""
    if not aliases and len(text.encode(errors="surrogatepass")) > TEXT_BYTES_MAX:
        raise ConfigInvalid(f"{source} has more than {TEXT_BYTES_MAX:,} bytes: put tables into files of the package")
    try:
        return yaml.load(text, _PlainLoader if aliases else _WithoutAliases)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that there is not, a number of too many digits
        raise ConfigInvalid(f"{source} is no YAML: {_in_a_line(error)}") from None
    except RecursionError:
        raise ConfigInvalid(f"{source} is no YAML: it is nested too deeply") from None


def parse_yaml_file(path: Path, *, wanted: str) -> Any:
    """The value of a file of the user's own, which is to be `wanted`. Raises ConfigInvalid as `parse_yaml`, and for a
    file that cannot be read, is no text or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) <= FILE_BYTES_MAX)
    except FileNotFoundError:
        raise ConfigInvalid(f"{path}: there is no such file; name {wanted}") from None
    except OSError as error:
        raise ConfigInvalid(f"{path} cannot be read: {error.strerror}; name {wanted}") from None
    except UnicodeDecodeError:
        raise ConfigInvalid(f"{path} is not text: name {wanted}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigInvalid(f"{path} has more than {FILE_BYTES_MAX:,} bytes: name {wanted}")
    return parse_yaml(text, source=str(path), aliases=True)


def _in_a_line(error: yaml.YAMLError | ValueError) -> str:
    """What is wrong and where, in a line."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    said = f"{_place(error.problem_mark)}: {error.problem}"
    if error.context is not None:
        begun = f" that begins in {_place(error.context_mark)}" if error.context_mark is not None else ""
        said = f"{said}, {error.context}{begun}"
    return f"{said}; is it indented as what belongs with it?" if "<block end>" in said else said


def _place(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
