# SPDX-License-Identifier: Apache-2.0
"""The compile report: what the compiler did to a model, as a page and as JSON."""

from utvm.compiler.report.page import FILES, RuleCount, as_json, plan_svg, render, total_macs, write_report

__all__ = ["FILES", "RuleCount", "as_json", "plan_svg", "render", "total_macs", "write_report"]
