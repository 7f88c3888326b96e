"""Files of engines' own wheels, run among stand-ins for all that they import from their engine.

An engine takes gigabytes and a GPU to install; its sampler is a few files of torch. The folder
SLUICE_PEER_WHEELS has wheels (pip download --no-deps vllm sglang), which are read and never
installed; without it, an installed engine's own files are taken.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import types
import zipfile
from pathlib import Path


class Sources:
    """The files of one version of an engine: its wheel, or where it is installed."""

    def __init__(self, name, version, location):
        self.name, self.version, self.location = name, version, Path(location)

    def __repr__(self):
        return f"{self.name}-{self.version}"

    def read(self, module):
        path = module.replace(".", "/")
        if self.location.is_dir():
            file = self.location / f"{path}.py"
            package = self.location / path / "__init__.py"
            return (file if file.exists() else package).read_text(encoding="utf-8")
        with zipfile.ZipFile(self.location) as wheel:
            file = f"{path}.py" if f"{path}.py" in wheel.namelist() else f"{path}/__init__.py"
            return wheel.read(file).decode()


    def parameters(self, module, path):
        """Those of a function, or of a method "Class.name"; None where there is no such one."""
        *holders, name = path.split(".")
        body = ast.parse(self.read(module)).body
        for holder in holders:
            body = next((node.body for node in body
                         if isinstance(node, ast.ClassDef) and node.name == holder), ())
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                given = node.args
                return tuple(one.arg for one in (
                    *given.posonlyargs, *given.args, *filter(None, [given.vararg]),
                    *given.kwonlyargs, *filter(None, [given.kwarg])))
        return None


def sources_of(name):
    """Every version there is."""
    folder = os.environ.get("SLUICE_PEER_WHEELS")
    if folder:
        wheels = sorted(Path(folder).rglob(f"{name}-*.whl"))
        return [Sources(name, wheel.name.split("-")[1], wheel) for wheel in wheels]
    if (spec := importlib.util.find_spec(name)) is None:
        return []
    version = importlib.metadata.version(name)
    return [Sources(name, version, Path(spec.origin).parents[1])]


class _StandIn(types.ModuleType):
    """A module of which every name is there: a class of its own, which calls and ignores all."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__init__": lambda self, *args, **keywords: None,
                               "__call__": lambda self, *args, **keywords: None,
                               "__module__": self.__name__})
        setattr(self, name, made)
        return made


class Engine(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Within `with`, `import NAME...` gives the files `real` of the sources and stand-ins else.

    `given`: module name to the attributes of its stand-in.
    """

    def __init__(self, sources, real, given):
        self.sources, self.real, self.given = sources, frozenset(real), given

    def find_spec(self, fullname, path=None, target=None):
        if fullname.split(".")[0] == self.sources.name:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return types.ModuleType(spec.name) if spec.name in self.real else _StandIn(spec.name)

    def exec_module(self, module):
        if module.__name__ in self.real:
            text = self.sources.read(module.__name__)
            exec(compile(text, f"{self.sources}/{module.__name__}", "exec"), module.__dict__)
        vars(module).update(self.given.get(module.__name__, {}))

    def __enter__(self):
        assert self.sources.name not in sys.modules
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *error):
        sys.meta_path.remove(self)
        for name in [name for name in sys.modules if name.split(".")[0] == self.sources.name]:
            del sys.modules[name]
