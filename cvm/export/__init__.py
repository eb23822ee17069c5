"""Export of programs and graphs as models of other systems."""
