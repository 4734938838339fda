"""The first sheet of an Excel file."""

import zipfile
from datetime import date, time
from pathlib import Path
from typing import Any

from adaptive_labels.lab import limits
from adaptive_labels.lab.data.dataset import DataError
from adaptive_labels.lab.files import check_members, open_regular
from adaptive_labels.lab.words import counted

LAST_ROW = 2**20  # Excel's own limit


def read_sheet(path: Path) -> tuple[list[list[Any]], list[int], list[str]]:
    """The rows of an .xlsx file that are not empty, the number of each from 1, and notes."""
    try:
        import openpyxl
    except ImportError as error:
        raise DataError(
            f'Reading {path} needs openpyxl: pip install "adaptive-labels[excel]"; or save the sheet as CSV '
            "(in Excel: File, Save As, CSV UTF-8)."
        ) from error
    try:
        with open_regular(path) as file:
            check_members(path, zipfile.ZipFile(file))
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            sheets = book.sheetnames
            filled = _filled_rows(path, book[sheets[0]])
            book.close()
    except (OSError, DataError, limits.LimitError):
        raise
    except Exception as error:  # zipfile's, xml's and openpyxl's own kinds, for a file that is no workbook
        raise DataError(f"{path} is no readable Excel file ({type(error).__name__}); save it as CSV.") from error
    if not filled:
        raise DataError(f"The first sheet of {path}, {sheets[0]!r}, is empty.")
    width = max(place + 1 for _, row in filled for place, cell in enumerate(row) if cell is not None)
    limits.check(limits.FILE, 8 * width * len(filled), path)  # a row may be much longer than all others
    rows = [[_plain(cell) for cell in [*row, *[None] * width][:width]] for _, row in filled]
    notes = []
    if len(sheets) > 1:
        others = counted(len(sheets) - 1, "other sheet")
        notes.append(f"Of {path.name} the first sheet, {sheets[0]!r}, is read; {others} not.")
    return rows, [number for number, _ in filled], notes


def _filled_rows(path: Path, sheet: Any) -> list[tuple[int, list[Any]]]:
    """The rows that are not empty, after their numbers from 1."""
    sheet.reset_dimensions()  # what the file says of its size may be the largest one that there is
    found = []
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        if number > LAST_ROW:  # rows that the file skips are made up one by one, and a damaged number skips billions
            raise DataError(f"{path} has a row after number {LAST_ROW:,}, the last of a sheet; save it as CSV.")
        limits.check(limits.COLUMNS, len(row), path)
        if any(cell is not None for cell in row):
            found.append((number, list(row)))
    return found


def _plain(cell: Any) -> Any:
    return cell.isoformat() if isinstance(cell, date | time) else cell
