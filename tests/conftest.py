"""Settings of all tests."""

import pytest
from hypothesis import settings

# Machines are noisy and proofs take as long as they take: a test fails for what it finds, never for its duration.
settings.register_profile("cvm", deadline=None)
settings.load_profile("cvm")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests measured and recorded as the property "measured": the random documents of each operation."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    rows = [value for report in reports for key, value in report.user_properties if key == "measured"]
    if rows:
        titles = ("operation", "documents", "refused", "codes compared", "differ", "by at most", "bound")
        widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
        terminalreporter.section("random documents against the exact evaluator")
        for row in (titles, *sorted(rows)):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            terminalreporter.write_line(line.rstrip())
