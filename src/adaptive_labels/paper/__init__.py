"""The paper's tables and figure again: its printed figures as data, the recipes, and ours beside them."""

from adaptive_labels.paper.comparison import Cell, Comparison, compare_with_paper, render, to_plain
from adaptive_labels.paper.printed import paper_figure, paper_tables
from adaptive_labels.paper.recipes import SCALES, Choice, Reproduction, choose, load_reproduction, tables

__all__ = [
    "SCALES",
    "Cell",
    "Choice",
    "Comparison",
    "Reproduction",
    "choose",
    "compare_with_paper",
    "load_reproduction",
    "paper_figure",
    "paper_tables",
    "render",
    "tables",
    "to_plain",
]
