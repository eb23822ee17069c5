"""What an engine does to each quantised operator: models of one operator with hard numbers, judged by exact codes."""

from cvm.conformance.cases import Case
from cvm.conformance.judging import VERDICTS, cases_for, statement
from cvm.conformance.page import markdown

__all__ = ["VERDICTS", "Case", "cases_for", "markdown", "statement"]
