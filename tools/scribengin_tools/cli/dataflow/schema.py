"""`scribengin schema`: the JSON Schema of a dataflow's descriptor."""

from __future__ import annotations

import typer

from scribengin_tools.rendering.text import print_json


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("schema")(schema)


def schema() -> None:
    """Print the JSON Schema of descriptors, for editors' completion."""
    from scribengin.dataflow.config import DataflowConfig
    from scribengin_tools.rendering.field_docs import described_schema

    print_json(described_schema(DataflowConfig))
