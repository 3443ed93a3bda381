"""The one form in which notebooks are committed: `python tests/notebooks/canonical.py [--fix]`.

It is what JupyterLab saves (sorted keys, one space of indentation, sources as lists of lines), less all that running or
looking leaves behind: outputs, execution counts, widget state, the kernel's version, folded cells. Unique cell ids are
kept, so a diff shows what an author changed and nothing else.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {  # as the kernel tells it, less its version; `nbconvert --to script` needs it to write Python
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}
CELL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # nbformat 4.5's rule


def notebooks() -> list[Path]:
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def canonical(notebook: dict) -> str:
    """The canonical text of a parsed notebook (nbformat 4)."""
    cells, ids = [], set()
    for number, cell in enumerate(notebook["cells"], start=1):
        name = cell.get("id", "")
        if not CELL_ID.fullmatch(name) or name in ids:
            name = next(f"cell-{n:02d}" for n in range(number, 1000) if f"cell-{n:02d}" not in ids)
        ids.add(name)
        source = "".join(cell["source"]).strip("\n")
        tags = cell.get("metadata", {}).get("tags")
        clean = {
            "cell_type": cell["cell_type"],
            "id": name,
            "metadata": {"tags": tags} if tags else {},
            "source": source.splitlines(keepends=True),
        }
        if cell["cell_type"] == "code":
            clean |= {"execution_count": None, "outputs": []}
        cells.append(clean)
    whole = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that every notebook is in canonical form.")
    parser.add_argument("--fix", action="store_true", help="rewrite those that are not")
    fix = parser.parse_args().fix
    differing = 0
    for path in notebooks():
        text = canonical(json.loads(path.read_text(encoding="utf-8")))
        if path.read_bytes() == text.encode():
            continue
        differing += 1
        print(f"{path.name}: {'rewritten' if fix else 'not canonical'}")
        if fix:
            new = path.with_suffix(".ipynb.new")
            new.write_text(text, encoding="utf-8")
            os.replace(new, path)
    if differing and not fix:
        print(f"Put them right with: python {os.path.relpath(__file__)} --fix")
    return int(differing and not fix)


if __name__ == "__main__":
    sys.exit(main())
