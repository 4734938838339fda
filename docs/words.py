"""How many words the documentation has, by group of pages: `python docs/words.py`.

Words of code blocks and the bars of tables are not counted.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = {
    "Start": ("README", "docs/tutorial", "docs/using-the-loss", "docs/choosing"),
    "Guides": (
        *("docs/data", "docs/models", "docs/recipes", "docs/trainers", "docs/teachers", "docs/plugins"),
        *(
            "docs/runs",
            "docs/report",
            "docs/export",
            "docs/suspects",
            "docs/analysis",
            "docs/processes",
            "docs/executors",
        ),
    ),
    "Method": ("docs/method", "docs/waiting", "docs/attraction"),
    "Evidence": (
        *("docs/claims", "docs/reproduce", "docs/ablations", "docs/label-issues", "docs/human-confusions"),
        *("docs/speed", "docs/scale", "docs/gpu-plan"),
    ),
    "Project": ("docs/architecture", "docs/security", "CONTRIBUTING", "CHANGELOG", "SECURITY"),
}
READ = ("Start", "Guides", "Method")
"""The groups that together have at most `MOST` words."""
MOST = 12_000


def count_words(text: str) -> int:
    """The words of a page in Markdown: tokens with a letter or a digit, outside code blocks.

    >>> count_words("# One two\\n\\n| three | 4 |\\n|---|---|\\n\\n    code\\n\\n```python\\ncode\\n```\\n")
    4
    """
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)  # where a link leads
    return sum(any(letter.isalnum() for letter in token) for token in text.split())


def main() -> None:
    """Print the count of each page, each group and the groups that are to be read."""
    totals = {}
    for group, pages in PAGES.items():
        counts = {page: count_words((ROOT / f"{page}.md").read_text(encoding="utf-8")) for page in pages}
        totals[group] = sum(counts.values())
        for page, count in counts.items():
            print(f"{count:7,}  {page}.md")
        print(f"{totals[group]:7,}  {group}\n")
    print(f"{sum(totals[group] for group in READ):7,}  {', '.join(READ)} (at most {MOST:,})")


if __name__ == "__main__":
    main()
