"""Loops: Relax's operators become TIRx functions, whose loops are arranged and lowered."""
