"""The reference of the Python package: pages for autodoc, and the package as autodoc imports it.

The extension module is replaced by its stub, which has every signature and docstring: the site is built without
the libraries, and by any Python. What a build left out is missing from its stub, and so from the site.
"""

import ast
import enum
import importlib.machinery
import importlib.util
import sys
from pathlib import Path

# Classes of modules that are loaded at first use.
LATER = {"DeviceParams": "sluice.device_params", "DeviceSampler": "sluice.device_sampler",
         "DeviceStep": "sluice.device_sampler", "MetadataSampler": "sluice.metadata_sampler",
         "AsyncEngineClient": "sluice.async_engine", "AsyncOutputStream": "sluice.async_engine"}
# What a build has or has not, in a module that is loaded at first use.
RESEARCH = {"ClusterHead": "sluice.research"}
INTERNAL = ("build", "build_report")  # for show_config and `python -m sluice`
PAGES = [
    ("Functions", "functions", None),
    ("Results and requests", "results", None),
    ("Requests on a GPU", "gpu", ("DeviceSampler", "DeviceStep", "DeviceParams", "MetadataSampler")),
    ("Text", "text", ("Tokenizer", "Detokenizer", "StopScanner", "TextStream", "TextDelta", "ChatTemplate")),
    ("Engines", "engines", ("EngineClient", "OutputStream", "Output", "AsyncEngineClient", "AsyncOutputStream")),
    ("Research", "research", tuple(RESEARCH)),
    ("Errors", "errors", ("Error", "ArgumentTypeError", "UnavailableError", "ExhaustedError")),
]


def load(package, sources):
    """Imports the package from its sources, with the stub in the place of the extension module."""
    stub = package / "sluice/_sluice.pyi"
    loader = importlib.machinery.SourceFileLoader("sluice._sluice", str(stub))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("sluice._sluice", loader))
    code = compile(stub.read_text(encoding="utf-8").replace("numpy.typing.", ""), str(stub), "exec",
                   flags=__import__("__future__").annotations.compiler_flag, dont_inherit=True)
    exec(code, module.__dict__)
    module.__dict__.update({name: {} for name, value in module.__dict__.items() if value is ...})
    module.build = lambda: {"version": "", "compiler": "", "cuda": "", "assertions": False}
    sys.modules["sluice._sluice"] = module
    sys.modules["sluice.rows"] = module  # which wraps some of its functions, and would hide their signatures
    sys.path.insert(0, str(sources))


def names(package):
    """Functions and classes of the stub, less its private ones."""
    tree = ast.parse((package / "sluice/_sluice.pyi").read_text(encoding="utf-8"))
    public = [node for node in tree.body if getattr(node, "name", "_")[0] != "_" and ast.get_docstring(node)]
    functions = dict.fromkeys(node.name for node in public if isinstance(node, ast.FunctionDef))
    for name in INTERNAL:
        functions.pop(name, None)
    facts = [name for name in ("parameters", "backends", "algorithms") if name in functions]
    classes = [node.name for node in public if isinstance(node, ast.ClassDef)]
    return [*(name for name in functions if name not in facts), *facts, "show_config"], classes


def write(package, source):
    target = source / "reference/python.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    if not (package / "sluice/_sluice.pyi").is_file():
        target.write_text("# Python\n\nThis site was built where the Python package was not, so its reference is "
                          "missing: `help(sluice)` has the same text. [Sampling from Python](../python.md) is the "
                          "guide.\n", encoding="utf-8")
        return
    functions, classes = names(package)
    placed = {name for _, _, listed in PAGES for name in listed or ()}
    lines = ["# Python", "", "Made from the docstrings of the package. [Sampling from Python](../python.md) and "
             "[Python on a GPU](../python-gpu.md) are the guides.", ""]
    entries = []
    for title, file, listed in PAGES:
        if file == "functions":
            items = [("function", "sluice", name) for name in functions]
        else:
            chosen = listed or [name for name in classes if name not in placed]
            items = [("exception" if file == "errors" else "class", (LATER | RESEARCH).get(name, "sluice"), name)
                     for name in chosen if listed is None or name in classes or name in LATER or file == "errors"]
        page = [title, "=" * len(title), ""]
        for kind, module, name in items:
            page += [f".. auto{kind}:: {module}.{name}", *(["   :members:"] if kind == "class" else []), ""]
        (target.parent / "python").mkdir(exist_ok=True)
        (target.parent / f"python/{file}.rst").write_text("\n".join(page), encoding="utf-8")
        lines.append(f"- [{title}](python/{file}.rst): " + ", ".join(f"`{name}`" for _, _, name in items))
        entries.append(f"python/{file}")
    lines += ["", "```{toctree}", ":hidden:", "", *entries, "```", ""]
    target.write_text("\n".join(lines), encoding="utf-8")
