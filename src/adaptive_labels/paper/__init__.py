"""The paper's tables and figure again: its printed figures as data, the recipes, and ours beside them."""
