"""docs/python.md: the public names of `aot`, as their signatures and docstrings have them.

Enters: `aot.__all__`. Leaves: the text of the page.
Invariant: a field that a docstring explains stands under its own name; no sentence is written twice.
"""

from __future__ import annotations

import dataclasses
import inspect
import re

import aot

_HEAD = """# Python

This page is made by `make docs` from the package's own docstrings. These names are what stays compatible; everything else in `aot` is its own affair.

```python
import aot

bundle = aot.compile("model.tflite", "cortex-m4", options=aot.Options(optimize="ram", io="workspace"))
print(bundle)
for layer in bundle.main.layers:
    print(layer.kernel, layer.operators, layer.out_shape, layer.macs)
aot.write(bundle, "out")
```
"""
_ORDER = ("compile", "Options", "Bundle", "write", "CompileError", "InternalError")


def python_page() -> str:
    """The text of docs/python.md."""
    return _HEAD + "".join(_section(name, getattr(aot, name)) for name in _ORDER) + _version()


def _version() -> str:
    return "\n## aot.\\_\\_version\\_\\_\n\nThe version, which `aot --version` prints and `NAME.json` holds.\n"


def _section(name: str, value: object) -> str:
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    parts = [
        f"\n## aot.{name}",
        f"```python\n{_signature(name, value, fields)}\n```",
        *_documented(inspect.getdoc(value) or "", fields),
    ]
    if properties := _properties(value) if fields else "":
        parts.append("Besides:\n\n" + properties)
    return "\n\n".join(parts) + "\n"


def _signature(name: str, value: object, fields: tuple[dataclasses.Field, ...]) -> str:
    """A line a field or parameter, with its type and default."""
    if not fields:
        base = ", ".join(each.__name__ for each in value.__bases__) if isinstance(value, type) else ""
        if base:
            return f"class {name}({base})"
        assert callable(value)
        found = inspect.signature(value)
        lines = []
        for each in found.parameters.values():
            if each.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in lines:
                lines.append("*")
            lines.append(_parameter(each))
        return f"def {name}(\n" + "".join(f"    {line},\n" for line in lines) + f") -> {found.return_annotation}"
    return f"class {name}:\n" + "\n".join(f"    {each.name}: {each.type}{_default(each)}" for each in fields)


def _parameter(each: inspect.Parameter) -> str:
    return f"{each.name}: {each.annotation}" + ("" if each.default is each.empty else f" = {each.default!r}")


def _default(each: dataclasses.Field) -> str:
    if each.default is not dataclasses.MISSING:
        return f" = {each.default!r}"
    return "" if each.default_factory is dataclasses.MISSING else f" = {each.default_factory()!r}"


def _documented(text: str, fields: tuple[dataclasses.Field, ...]) -> list[str]:
    """Paragraphs; what is said of fields as a list."""
    names = "|".join(each.name for each in fields)
    found: list[str] = []
    for paragraph in text.split("\n\n"):
        body, *rest = (
            re.split(rf"(?:^|(?<=[.;] ))`?({names})`?: ", " ".join(paragraph.split())) if names else [" ".join(paragraph.split())]
        )
        items = [f"- `{name}`: {said.strip(' .;')}." for name, said in zip(rest[::2], rest[1::2], strict=True)]
        found += [part for part in (body.strip(), "\n".join(items)) if part]
    return [re.sub(r"`docs/(\w+\.md)`", r"[\1](\1)", part) for part in found]


def _properties(value: object) -> str:
    members = [(name, one) for name, one in vars(value).items() if isinstance(one, property) and inspect.getdoc(one)]
    return "\n".join(f"- `{name}`: {' '.join((inspect.getdoc(one) or '').split())}" for name, one in members)
