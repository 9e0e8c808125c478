"""The report of a check, as it travels in an application's diagnostics."""

from __future__ import annotations

import textwrap

from scribengin.launcher.yarn.application_master.preflight import PreflightCheck, PreflightReport, marked, report_in


def report(*found: str) -> PreflightReport:
    """One of checks that are all missing."""
    return PreflightReport(
        host="h", checks=[PreflightCheck(name=f"c{n}", ok=False, found=f) for n, f in enumerate(found)]
    )


def test_a_report_is_found_in_yarns_own_words_however_they_are_broken() -> None:
    sent = report("a", "b")
    words = f"Diagnostics: exited\nstderr :\n{textwrap.fill(marked(sent), 40, break_on_hyphens=False)}\nFailing."
    assert report_in(words) == sent


def test_diagnostics_without_one_hold_none() -> None:
    assert report_in("AM Container exited with exitCode: 127") is None


def test_a_report_fits_into_what_yarn_quotes_and_still_names_every_check() -> None:
    long = report(*[f"{n} " + "".join(chr(33 + (n * 7 + i * i) % 90) for i in range(2000)) for n in range(30)])
    assert len(marked(long)) < 4000
    found = report_in(marked(long))
    assert found is not None
    assert [check.name for check in found.checks] == [check.name for check in long.checks]
