"""Resource variables."""

from __future__ import annotations

from cvm.frontends.tflite.call import Made, TfliteCall
from cvm.frontends.tflite.rules.registry import rule
from cvm.frontends.tflite.translation import TfliteTranslation

__all__: list[str] = []


@rule("CALL_ONCE")
def call_once(translation: TfliteTranslation, call: TfliteCall) -> list[Made]:
    """A subgraph that assigns the initial values before the first run."""
    translation.variables.initialise(call)
    return []


@rule("VAR_HANDLE")
def var_handle(translation: TfliteTranslation, call: TfliteCall) -> list[Made]:
    """A handle that refers to a variable."""
    translation.variables.handle(call)
    return []


@rule("READ_VARIABLE")
def read_variable(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The current value of a variable."""
    return Made(translation.variables.read(translation, call))


@rule("ASSIGN_VARIABLE")
def assign_variable(translation: TfliteTranslation, call: TfliteCall) -> list[Made]:
    """The value that a variable has from here on, and in the next run."""
    translation.variables.assign(translation, call, translation.name(call.operand(1)))
    return []
