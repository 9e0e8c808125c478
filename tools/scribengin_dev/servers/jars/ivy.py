"""Jars from a repository, through the Ivy that ships inside PySpark: its default one, or what the user's settings name.

`SCRIBENGIN_IVY_SETTINGS` is the path of an Ivy settings file, for machines that reach repositories in their own way.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from threading import Event
from xml.sax.saxutils import quoteattr

from scribengin.errors import ArtifactUnavailable
from scribengin_dev.servers.jars.lock import Artifact
from scribengin_registry.java.jars import pyspark_jars
from scribengin_registry.java.runtime import find_java

SETTINGS_VARIABLE = "SCRIBENGIN_IVY_SETTINGS"
"""The path of an Ivy settings file, for machines that reach repositories of jars in their own way."""
_ATTEMPTS_MAX = 4
_FIRST_PAUSE_S = 1.0
_TIMEOUT_S = 900.0
_SHOWN_LINES = 12
# Sums are ours to check, and descriptors are read only where we ask what a jar needs.
_SETTINGS = """<ivysettings>
 <settings defaultResolver="default"/>
 <resolvers><ibiblio name="default" m2compatible="true" usepoms="{poms}" {checksums}/></resolvers>
</ivysettings>
"""
_SYSTEM_TRUST_STORE = Path("/etc/ssl/certs/java/cacerts")  # Debian's: it knows what an administrator has added
_SEPARATOR = "##"


def fetch(artifacts: Sequence[Artifact], folder: Path) -> dict[Artifact, Path]:
    """Fetch exactly these jars into `folder`. Raises ArtifactUnavailable with what Ivy said, JavaMissing."""
    _run(_module(artifacts, exact=True), _SETTINGS.format(poms="false", checksums='checksums=""'), folder)
    found = _retrieved(folder)
    if missing := [artifact for artifact in artifacts if artifact not in found]:
        raise ArtifactUnavailable(f"{missing[0]} was not fetched: check that the repository has it, then try again")
    return {artifact: found[artifact] for artifact in artifacts}


def resolve(roots: Sequence[Artifact], folder: Path) -> dict[Artifact, Path]:
    """Fetch these jars and all that they need at run time. Raises as `fetch`."""
    _run(_module(roots, exact=False), _SETTINGS.format(poms="true", checksums=""), folder)
    return _retrieved(folder)


def _module(artifacts: Iterable[Artifact], *, exact: bool) -> str:
    def module(artifact: Artifact) -> tuple[str, str, str]:
        return artifact.organisation, artifact.name, artifact.revision

    wanted = "".join(
        _dependency(*key, [artifact.classifier for artifact in group] if exact else [])
        for key, group in groupby(sorted(artifacts), key=module)
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="-" module="wanted"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{wanted}</dependencies></ivy-module>'
    )


def _dependency(organisation: str, name: str, revision: str, classifiers: Sequence[str]) -> str:
    """Of a jar and what it needs, or of just these jars."""
    head = f"<dependency org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(revision)}"
    if not classifiers:
        return f'{head} conf="default-&gt;default"/>'
    jars = "".join(
        f'<artifact name={quoteattr(name)} type="jar" ext="jar"'
        + (f" m:classifier={quoteattr(classifier)}/>" if classifier else "/>")
        for classifier in classifiers
    )
    return f'{head} transitive="false" conf="default-&gt;*">{jars}</dependency>'


def _run(module: str, settings: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix="ivy-") as name:
        place = Path(name)
        (place / "ivy.xml").write_text(module, encoding="utf-8")
        (place / "settings.xml").write_text(settings, encoding="utf-8")
        command = _command(place, folder)
        pause_s = _FIRST_PAUSE_S
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            said = _attempt(command)
            if said is None:
                return
            if attempt < _ATTEMPTS_MAX:  # a flaky network: what came through is in the cache of this run
                Event().wait(pause_s)
                pause_s *= 2
    raise ArtifactUnavailable(
        f"jars could not be fetched in {_ATTEMPTS_MAX} attempts: check the network, or name a repository that this "
        f"machine reaches with an Ivy settings file in {SETTINGS_VARIABLE}. Ivy said:\n{said}"
    )


def _command(place: Path, folder: Path) -> list[str]:
    trust = [f"-Djavax.net.ssl.trustStore={_SYSTEM_TRUST_STORE}"] if _SYSTEM_TRUST_STORE.is_file() else []
    [ivy_jar] = pyspark_jars(["ivy-*"], ArtifactUnavailable)
    parts = ("[organisation]", "[artifact]", "[revision]", "([classifier])")
    return [
        *(str(find_java().executable), "-Xmx512m", "-Djava.awt.headless=true", *trust),
        *("-cp", str(ivy_jar), "org.apache.ivy.Main", "-warn", "-types", "jar", "bundle", "maven-plugin"),
        *("-settings", os.environ.get(SETTINGS_VARIABLE) or str(place / "settings.xml")),
        *("-cache", str(place / "cache"), "-ivy", str(place / "ivy.xml")),
        *("-retrieve", f"{folder}/{_SEPARATOR.join(parts)}.[ext]"),
    ]


def _attempt(command: Sequence[str]) -> str | None:
    """None when all went well, else the end of what Ivy had to say."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"(nothing for {_TIMEOUT_S:g} s)"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    told = [line for line in lines if re.search(r"\w", line) and not re.fullmatch(r"\.*\s*\(\d+kB\)", line)]
    return "\n".join(told[-_SHOWN_LINES:])


def _retrieved(folder: Path) -> dict[Artifact, Path]:
    return {Artifact(*path.stem.split(_SEPARATOR)): path for path in folder.glob(f"*{_SEPARATOR}*.jar")}
