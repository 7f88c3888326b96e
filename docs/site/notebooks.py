"""Notebooks as pages: Markdown cells as they are, code cells as code with the stored output after it."""

import json
from pathlib import PurePosixPath


def as_markdown(name, text):
    """The page of the notebook `name`, which has a link to the file next to it."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        output = "".join("".join(piece["text"]) for piece in cell["outputs"])
        if output:
            parts.append(f"```text\n{output.rstrip()}\n```")
    parts.append(f'<a href="{PurePosixPath(name).name}">This page as a notebook of Jupyter</a>')
    return "\n\n".join(parts) + "\n"
