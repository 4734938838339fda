"""The paper's tables and figure: the printed figures as data, the recipes that rerun them, and our figures."""
