"""Code in the documentation is cut from files that a test runs.

A fenced block that follows the comment `<!-- FILE [name] -->` must equal, line by line, what stands
between the two `// [name]` lines of FILE, less its indentation.

    snippets.py ROOT           checks README.md and what docs/ has
    snippets.py ROOT --write   puts the cut text into the documents
"""

import re
import sys
import textwrap
from pathlib import Path

BLOCK = re.compile(r"<!-- (\S+) \[(\w+)\] -->\n```(\w*)\n(.*?)```", re.DOTALL)


def cut(path: Path, name: str) -> str:
    parts = re.split(rf"^[ \t]*(?://|#) \[{name}\]\n", path.read_text(), flags=re.MULTILINE)
    if len(parts) != 3:
        raise SystemExit(f"{path}: needs two lines '[{name}]', has {len(parts) - 1}")
    return textwrap.dedent(parts[1])


def main() -> int:
    root = Path(sys.argv[1])
    write = "--write" in sys.argv
    stale = 0
    found = 0
    for document in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        def replaced(match):
            nonlocal stale, found
            file, name, language, text = match.groups()
            found += 1
            expected = cut(root / file, name)
            if text != expected and not write:
                stale += 1
                print(f"{document}: the snippet [{name}] is not that of {file}")
            return f"<!-- {file} [{name}] -->\n```{language}\n{expected}```"

        text = document.read_text()
        updated = BLOCK.sub(replaced, text)
        if write and updated != text:
            document.write_text(updated)
    print(f"snippets: {found} found, {stale} stale")
    return 1 if stale or not found else 0


if __name__ == "__main__":
    sys.exit(main())
