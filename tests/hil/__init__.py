"""Tests of the HIL room."""
