"""Flink in a process of its own, which has PyFlink's environment and nothing of ours: a query over a topic.

`python flink.py < JOB`: the job has `conf`, and for each part of the topic the statements that make its tables. Its
`insert` runs the query. There are two parts, a beginning and the whole. Prints a JSON object as its last line: how much
longer the whole takes, in ms, as the median of the runs.
"""

from __future__ import annotations

import json
import os
import sys
from statistics import median
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def took_ms(job: dict[str, Any], setup: list[str]) -> int:
    """The net time of one run, as Flink's job says it."""
    conf = Configuration()
    for key, value in job["conf"].items():
        conf.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf).build()
    environment = TableEnvironment.create(settings)
    for statement in setup:
        environment.execute_sql(statement)
    client = environment.execute_sql(job["insert"]).get_job_client()
    return int(client.get_job_execution_result().result().get_net_runtime())


def main(text: str) -> None:
    """Warm up with the whole, then take turns."""
    job = json.loads(text)
    beginning, whole = job["parts"]
    took_ms(job, whole)
    rests_ms = [took_ms(job, whole) - took_ms(job, beginning) for _ in range(job["runs"])]
    print(json.dumps({"rest_ms": median(rests_ms)}), flush=True)


if __name__ == "__main__":
    main(sys.stdin.read())
    os._exit(0)  # at once: what Flink's gateway has to say at its end would stand behind the result
