"""Finds the methods: every module of this package that defines one."""

import importlib
import pkgutil
from functools import cache

import gcab.methods
from gcab.errors import unknown
from gcab.methods.method import Method


def methods() -> dict[str, type[Method]]:
    """Name (the module's, with dashes) -> method, for each file here that has one; a base class has no `summary`.

    A module whose name would be a word of Python ends in an underscore, which is not part of the method's.
    """
    return dict(methods_in(tuple(gcab.methods.__path__)))


@cache
def methods_in(folders: tuple[str, ...]) -> dict[str, type[Method]]:
    """Cached, as every resolution of a configuration looks up its method."""
    found: dict[str, type[Method]] = {}
    for module_info in pkgutil.iter_modules(folders):
        module = importlib.import_module(f"gcab.methods.{module_info.name}")
        for value in vars(module).values():
            is_method = isinstance(value, type) and issubclass(value, Method) and "summary" in vars(value)
            if is_method and value.__module__ == module.__name__:
                found[module_info.name.rstrip("_").replace("_", "-")] = value
    return found


def method_named(name: str) -> type[Method]:
    table = methods()
    if name not in table:
        raise unknown("method", name, table)
    return table[name]
