"""ZPL, in which files of the C programs and keys are written; `programs` reads the former as a DafkaConfig."""

from scribengin.dafka.zpl.syntax import ZplItem, format_zpl, parse_zpl

__all__ = ["ZplItem", "format_zpl", "parse_zpl"]
