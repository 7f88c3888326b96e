"""The C++ and C reference: public headers marked for Doxygen, and a page for each.

The comments of the headers are plain ones. Here the comment that opens a file, those above declarations and
those after them become Doxygen's, in a copy below build/docs/include. A comment before an empty line speaks
of several declarations and belongs to no one of them.
"""

import re
import shutil
import subprocess
from pathlib import Path

from declarations import Declarations, as_rst

LINE = re.compile(r"^\s*// ?(.*)$")
TRAILING = re.compile(r"^(\s*[^/\s].*?)\s+// (.*)$")
C_TRAILING = re.compile(r"^(\s*[^/\s*].*?)\s+/\* (.*)$")
FORWARD = re.compile(r"^\s*(?:class|struct) \w+;")
NO_DECLARATION = re.compile(r"^\s*(?:$|#|\}|namespace\b|public:|private:|using namespace)")
CODE = re.compile(r"(`[^`]*`)")
FIELDS = "The structs have a field for each parameter of :doc:`/parameters`, written by ``sluice/params.def``."


def escaped(text):
    """Doxygen's special characters, outside code, as themselves."""
    return "".join(part if part.startswith("`") else re.sub(r"([\\@<>#%&])", r"\\\1", part)
                   for part in CODE.split(text))


def belongs(line):
    """A comment right above this line is about what it declares."""
    return not (FORWARD.match(line) or NO_DECLARATION.match(line))


def marked_cpp(text):
    lines, out, index, opening = text.split("\n"), [], 0, True
    while index < len(lines):
        if LINE.match(lines[index]):
            end = index
            while end < len(lines) and LINE.match(lines[end]):
                end += 1
            words = [escaped(LINE.match(line)[1]) for line in lines[index:end]]
            if opening:
                out.append("/// @file")
            after = lines[end] if end < len(lines) else ""
            mark = "///" if opening or belongs(after) else "//"
            out += [f"{mark} {word}" for word in words]
            if opening:
                out.append("")
            index = end
        else:
            trailing = TRAILING.match(lines[index])
            if trailing and belongs(trailing[1]):
                out.append(f"{trailing[1]}  ///< {escaped(trailing[2])}")
                column = lines[index].rindex("// ")
                while index + 1 < len(lines) and re.match(rf"^\s{{{column}}}// ", lines[index + 1]):
                    index += 1
                    out.append(" " * column + "///< " + escaped(LINE.match(lines[index])[1]))
            else:
                out.append(lines[index])
            index += 1
        opening = False
    return "\n".join(out)


def marked_c(text):
    """As marked_cpp, and a struct with its typedef, which would be declared twice, is the struct alone."""
    text = re.sub(r"(?ms)^typedef struct (?:SLUICE_ALIASED )?(\w+) \{(.*?)^\} \1;", r"struct \1 {\2};", text)
    lines, out, index, opening = text.split("\n"), [], 0, True
    while index < len(lines):
        line, trailing = lines[index], C_TRAILING.match(lines[index])
        if not trailing and not line.lstrip().startswith("/*"):
            out.append(line)
            index, opening = index + 1, False
            continue
        end = index
        while "*/" not in lines[end]:
            end += 1
        body = "\n".join(lines[index:end + 1])
        start = body.index("/*", len(trailing[1]) if trailing else 0)
        before, comment, after = body[:start], body[start + 2:body.rindex("*/")], body[body.rindex("*/") + 2:]
        following = lines[end + 1] if end + 1 < len(lines) else ""
        mark = "/*"
        if opening:
            mark = "/** @file\n *"
        elif trailing and belongs(trailing[1]) and not after.strip():
            mark = "/**<"
        elif not trailing and belongs(following):
            mark = "/**"
        out.append(before + mark + escaped(comment) + "*/" + after)
        index, opening = end + 1, False
    return "\n".join(out)


def opening(text):
    """The paragraphs of the comment that opens a header."""
    body = re.match(r"(?://[^\n]*\n)+|/\*.*?\*/", text, re.DOTALL)[0]
    plain = re.sub(r"(?m)^(?://| \*|/\*) ?|\s*\*/$", "", body).removeprefix("Part of sluice.h: ")
    return plain[0].upper() + plain[1:]


def contract(text):
    """The comment that opens a header; its lists and drawings, which are indented, stay as they are."""
    words = []
    for part in re.split(r"(?m)((?:^(?:  |- ).*\n?)+)", opening(text)):
        is_drawn = part.startswith(("  ", "- "))
        words.append("\n\n::\n\n" + "".join(f"   {line}\n" for line in part.rstrip().split("\n")) + "\n" if is_drawn
                     else as_rst(part))
    return "".join(words)


def groups(include):
    """(title, headers) for the pages: the core is what sluice.hpp includes."""
    core = re.findall(r'"(sluice/\w+\.hpp)"', (include / "sluice/sluice.hpp").read_text(encoding="utf-8"))
    every = sorted(str(path.relative_to(include)) for path in include.rglob("*.hpp"))
    plain = [name for name in every if name.count("/") == 1 and name != "sluice/sluice.hpp"]
    return [
        ("Core, in `Sluice::core`", [name for name in plain if name in core]),
        ("CUDA, in `Sluice::cuda`", [name for name in every if name.startswith("sluice/cuda/")]),
        ("Text, models, engines and the server", [name for name in plain if name not in core]),
        ("Research", [name for name in every if name.startswith("sluice/research/")]),
    ]


def page(name, text, declarations, target):
    """One header: the comment that opens it, and its declarations."""
    target.parent.mkdir(parents=True, exist_ok=True)
    title = name.removeprefix("sluice/")
    target.write_text("\n".join([title, "=" * len(title), "", ".. code-block:: c++", "", f'   #include "{name}"', "",
                                 contract(text), "", *([FIELDS, ""] if "params.def" in text else []), *declarations.of(name), ""]), encoding="utf-8")


def write(root, build, source):
    """Marked copies below `build`/include, pages below `source`/reference."""
    include = root / "include"
    texts = {}
    for path in sorted(include.rglob("*")):
        if path.suffix not in (".hpp", ".h", ".def"):
            continue
        name = str(path.relative_to(include))
        text = path.read_text(encoding="utf-8")
        marked = {".hpp": marked_cpp, ".h": marked_c, ".def": str}[path.suffix](text)
        copy = build / "include" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(marked, encoding="utf-8")
        texts[name] = text

    xml = build / "xml"
    shutil.rmtree(xml, ignore_errors=True)
    subprocess.run(["doxygen", root / "docs/site/Doxyfile"], cwd=build, check=True)
    declarations = Declarations(xml)

    def index(title, words, parts, folder):
        lines = [f"# {title}", "", words, ""]
        for heading, names in parts:
            lines += [f"## {heading}", ""] if heading else []
            lines += ["| header | |", "|---|---|"]
            places = [f"{folder}/{Path(name.removeprefix('sluice/').removeprefix('c/')).with_suffix('')}"
                      for name in names]
            for name, place in zip(names, places):
                page(name, texts[name], declarations, source / "reference" / f"{place}.rst")
                first = " ".join(opening(texts[name]).split("\n\n")[0].split())
                first = re.sub(r"([<>*_|])", r"\\\1", first)
                lines.append(f"| [{name.removeprefix('sluice/')}]({place}.rst) | {first} |")
            lines += ["", "```{toctree}", ":hidden:", "", *places, "```", ""]
        (source / "reference" / f"{folder}.md").write_text("\n".join(lines), encoding="utf-8")

    (source / "reference").mkdir(parents=True, exist_ok=True)
    index("C++", "A page for each public header, made from its comments. `sluice/sluice.hpp` includes those of the core.",
          groups(include), "cpp")
    index("C", "`sluice/sluice.h` includes all of these.\n\n" + opening(texts["sluice/sluice.h"]),
          [("", sorted(name for name in texts if name.startswith("sluice/c/")))], "c")
