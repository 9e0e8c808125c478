"""From a `TransformationSpec` to DataFrames: the user's function is called, or their SQL planned. Nothing runs."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import py4j
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from scribengin.base.text.refusals import did_you_mean
from scribengin.errors import ConfigError, ConfigInvalid, NotNarrow, PackageInvalid, ScribenginError, SparkUnavailable
from scribengin.spark.session.failures import SPARK_ERRORS, failure, one_line, refuses_plan
from scribengin.spark.transform import narrow
from scribengin.spark.transform.encoding import decode, encode, late_records, united_late, watermarked
from scribengin.spark.transform.spec import TransformationSpec
from scribengin.spark.transform.user_package import UserPackage, user_traceback
from scribengin_registry.references import resolved_all


@dataclass(frozen=True, slots=True)
class TransformationContext:
    """What the user's function is given beside its inputs. `package_dir` is None when the dataflow ships no package."""

    dataflow: str
    spark: SparkSession
    package_dir: Path | None
    settings: Mapping[str, Any]
    _package: UserPackage

    def path(self, name: str) -> str:
        """A file of the package, as a `file:` URL for `spark.read`. Raises PackageInvalid when it is not there.

        Spark looks for a path without a scheme where the cluster keeps its files, which may be HDFS. Where executors
        are on other machines, they must have the file at the same place. Python opens `package_dir / name`.
        """
        return self._package.file(name)


class Inputs(dict[str, DataFrame]):
    """The inputs by source. Whoever asks for one that there is not is told which there are."""

    def __missing__(self, name: str) -> DataFrame:
        sources = sorted(self)
        raise KeyError(
            f"no source is called {name!r} (there are: {', '.join(sources)}){did_you_mean(str(name), sources)}"
        )


class Settings(dict[str, Any]):
    """A mapping of the descriptor's `settings`, which stands at `place`. Whoever asks for a key that there is not is
    told which there are. Functions that Spark's Python workers run get it as the plain dict that it is."""

    def __init__(self, values: Mapping[str, Any], place: str = "settings") -> None:
        super().__init__({key: _telling(value, f"{place}.{key}") for key, value in values.items()})
        self._place = place

    def __missing__(self, name: str) -> Any:
        keys = sorted(map(str, self))
        listed = f"{self._place} has no {name!r} (it has: {', '.join(keys) or 'nothing'})"
        raise KeyError(f"{listed}{did_you_mean(str(name), keys)}")

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (dict(self),)


def _telling(value: Any, place: str) -> Any:
    if isinstance(value, dict):
        return Settings(value, place)
    if isinstance(value, list):
        return [_telling(one, f"{place}.{number}") for number, one in enumerate(value)]
    return value


UserFunction = Callable[[dict[str, DataFrame], TransformationContext], Any]


@dataclass(frozen=True, slots=True)
class Built:
    """The DataFrames of one build: what the user saw of the inputs, what they gave the outputs, and that as records.

    An output that the user gave None for is in neither of the latter. `late` is what the sink of late records gets.
    """

    inputs: dict[str, DataFrame]
    given: dict[str, DataFrame]
    encoded: dict[str, DataFrame]
    late: DataFrame | None

    @property
    def repeatable(self) -> bool:
        """Whether it may be executed again and again, or must be built anew for each round."""
        return all(narrow.is_repeatable(frame) for frame in self.encoded.values())


class PlanBuilder:
    """How a transformation's DataFrames are made from those of its inputs. May be used by several threads."""

    def __init__(self, spec: TransformationSpec) -> None:
        """Imports the function. Raises PackageInvalid."""
        self.spec = spec
        self._package = UserPackage(spec.package_dir)
        self._function: UserFunction | None = self._package.function(spec.function) if spec.function else None
        self._context: Callable[[], AbstractContextManager[None]] = nullcontext

    def within(self, context: Callable[[], AbstractContextManager[None]], spec: TransformationSpec) -> PlanBuilder:
        """The same function, with other inputs or outputs, of which every build is made within a `context`."""
        other = copy.copy(self)
        other.spec = spec
        other._context = context
        return other

    def build(
        self, session: SparkSession, inputs: Mapping[str, DataFrame], beats: Mapping[str, DataFrame] | None = None
    ) -> Built:
        """Make the outputs of `inputs`, which are records as the sources have them, and `beats`, of those that have
        some. `session` is this caller's alone.

        Raises PackageInvalid (the function raises, or gives other outputs than there are sinks), ConfigInvalid (the
        SQL, or columns that do not fit a format), SparkUnavailable.
        """
        specs = self.spec.inputs
        decoded = {
            name: watermarked(decode(frame, specs[name]), specs[name], self.spec.state, (beats or {}).get(name))
            for name, frame in inputs.items()
        }
        with self._context():
            given = self._by_sql(session, decoded) if self._function is None else self._by_function(session, decoded)
        encoded = {name: encode(frame, self.spec.outputs[name]) for name, frame in given.items()}
        return Built(decoded, given, encoded, self._late(inputs))

    def _late(self, inputs: Mapping[str, DataFrame]) -> DataFrame | None:
        """The late records of all sources, if they go anywhere. Each source is read once more for them."""
        state = self.spec.state
        if state is None or state.late is None:
            return None
        return united_late(
            {
                name: late_records(frame, self.spec.inputs[name], column, state.late)
                for name, frame in inputs.items()
                if (column := state.late_by(name)) is not None
            }
        )

    def check(self, built: Built) -> tuple[str, ...]:
        """The operators of the executed plans. Raises NotNarrow."""
        operators = [name for output, frame in built.encoded.items() for name in narrow.check_narrow(frame, output)]
        if len(built.encoded) > 1:
            for output, frame in built.encoded.items():
                if not narrow.is_deterministic(frame):
                    raise NotNarrow(
                        f"output '{output}' uses something random (rand, uuid, a nondeterministic UDF) beside other "
                        "outputs, which would see other values for the same record: use a hash of the record instead"
                    )
        return tuple(dict.fromkeys(operators))

    def _by_sql(self, session: SparkSession, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        for name, frame in inputs.items():
            frame.createOrReplaceTempView(name)
        frames = {}
        for output, statement in (self.spec.sql or {}).items():
            try:
                frames[output] = session.sql(statement)
            except (PySparkException, Py4JJavaError) as error:
                raise ConfigInvalid(f"the SQL of output '{output}': {one_line(error)}") from error
        self._expect_outputs(frames, "sql")
        return frames

    def _by_function(self, session: SparkSession, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        spec = self.spec
        assert self._function is not None
        settings = Settings(resolved_all(dict(spec.settings)))  # secrets among them are here, and nowhere else
        context = TransformationContext(spec.dataflow, session, spec.package_dir, settings, self._package)
        try:
            with self._package.active():
                result = self._function(Inputs(inputs), context)
        except ScribenginError:
            raise
        except Exception as error:
            if _from_gateway(error):
                raise failure(error, f"building {spec.function}") from error
            raise PackageInvalid(f"{user_traceback(error)}\n{spec.function} raised {one_line(error)}") from error
        return self._frames(result)

    def _frames(self, result: Any) -> dict[str, DataFrame]:
        """What the function returned, by output, without those that are None."""
        name, outputs = self.spec.function, ", ".join(self.spec.outputs)
        if isinstance(result, DataFrame):
            if len(self.spec.outputs) != 1:
                raise PackageInvalid(
                    f"{name} returns one DataFrame, but there are sinks {outputs}: return a dict of them"
                )
            return {next(iter(self.spec.outputs)): result}
        if not isinstance(result, Mapping):
            raise PackageInvalid(
                f"{name} returns {type(result).__name__}: return a DataFrame, or a dict of them by sink"
            )
        self._expect_outputs(result, str(name))
        for output, frame in result.items():
            if frame is not None and not isinstance(frame, DataFrame):
                raise PackageInvalid(
                    f"{name} returns {type(frame).__name__} for '{output}': return a DataFrame, or None"
                )
        frames = {output: result[output] for output in self.spec.outputs if result[output] is not None}
        if not frames:
            raise PackageInvalid(f"{name} returns None for every sink: at least one needs a DataFrame")
        return frames

    @contextmanager
    def planning(self) -> Iterator[None]:
        """What Spark says about a plan as a whole (a cast that cannot be, 1/0) is about what the user wrote."""
        try:
            yield
        except SPARK_ERRORS as error:
            resolved = failure(error, f"planning the transformation of {self.spec.dataflow}")
            if isinstance(resolved, SparkUnavailable) and not refuses_plan(error):
                raise resolved from error
            said = one_line(error) if isinstance(resolved, SparkUnavailable) else resolved
            raise self._refused(f"the transformation of {self.spec.dataflow} cannot be planned: {said}") from error

    def _refused(self, message: str) -> ConfigError:
        return ConfigInvalid(message) if self._function is None else PackageInvalid(message)

    def _expect_outputs(self, given: Mapping[str, Any], what: str) -> None:
        """A sink that is left out is a mistake (None says that it gets nothing); so is one that does not exist."""
        if unknown := sorted(set(map(str, given)) - set(self.spec.outputs)):
            late = None if self.spec.state is None else self.spec.state.late
            if late is not None and late.name in unknown:
                raise self._refused(
                    f"{what} gives '{late.name}', which takes the late records (state.late): the transformation does "
                    "not write it, leave it out"
                )
            raise self._refused(
                f"{what} gives '{unknown[0]}', which is none of the sinks that it writes "
                f"({', '.join(self.spec.outputs)})"
            )
        if missing := [name for name in self.spec.outputs if name not in given]:
            raise self._refused(
                f"{what} gives nothing for sink '{missing[0]}': give it a DataFrame (None, from a function: no records)"
            )


def _from_gateway(error: Exception) -> bool:
    """Whether it is the connection to the JVM that failed, and nothing in it."""
    if isinstance(error, Py4JError):
        return not isinstance(error, Py4JJavaError)
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, OSError) and frames[-1].filename.startswith(str(Path(py4j.__file__).parent))
