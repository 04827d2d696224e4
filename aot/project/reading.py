# pyright: basic
"""Reads a project file.

Enters: YAML, and the keys that a bundle may have. Leaves: a `Project`: for each bundle its command line.
Invariant: whatever is wrong is refused with the file's name and the line; nothing in the file runs, refers back or nests deeply.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click
import yaml

from aot.errors import CompileError
from aot.names import listed, suggestion
from aot.project.keys import Key

FILE = "bundle.yaml"
MOST_NBYTES = 1 << 18
MOST_DEPTH = 8
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
"""What a bundle may be called: it is the name of a folder, too."""
_SECTIONS = ("defaults", "bundles")
_STRING, _NULL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"
_NUMBERS = ("tag:yaml.org,2002:int",)
_SWITCH = {"true": True, "false": False}


@dataclass(frozen=True)
class Setting:
    """A key's value: what it is on a command line, which files it names, and where it stands."""

    line: int
    arguments: tuple[str, ...]
    files: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(text.partition("=")[2] for text in self.arguments if "=" in text)


@dataclass(frozen=True)
class Item:
    """One bundle. models, output: paths from the project's folder on. settings: by key."""

    name: str
    line: int
    models: tuple[str, ...]
    output: str
    settings: Mapping[str, Setting]

    @property
    def arguments(self) -> tuple[str, ...]:
        """What `aot bundle` takes."""
        options = (text for setting in self.settings.values() for text in setting.arguments)
        return (*options, f"--output={self.output}", "--", *self.models)

    @property
    def files(self) -> dict[str, int]:
        """The files that it is made of, with the line that names each."""
        found = {name: setting.line for setting in self.settings.values() for name in setting.files}
        return found | dict.fromkeys(self.models, self.settings["models"].line)

    def line_of(self, message: str) -> int:
        """The line that an error is about: that of the first key whose option it names, or whose value it quotes, or the bundle's."""
        named = [self.settings.get(found[1]) for found in re.finditer(r"--([a-z][a-z-]*)", message)]
        quoted = [setting for setting in self.settings.values() if any(f"'{value}'" in message for value in setting.values)]
        return next((setting.line for setting in (*named, *quoted) if setting is not None), self.line)


@dataclass(frozen=True)
class Project:
    """The bundles of a file. path: as the user named it."""

    path: Path
    items: tuple[Item, ...]

    @property
    def folder(self) -> Path:
        return self.path.parent


def read(path: Path, keys: Mapping[str, Key]) -> Project:
    """The project in a file, or in a folder's bundle.yaml. CompileError, with the line, for what it may not say."""
    path = path / FILE if path.is_dir() else path
    try:
        with path.open("rb") as stream:
            content = stream.read(MOST_NBYTES + 1)
    except OSError as error:
        hint = "aot init writes one" if isinstance(error, FileNotFoundError) else ""
        raise CompileError(f"can't be read: {error.strerror}", where=str(path), hint=hint) from error
    if len(content) > MOST_NBYTES:
        raise CompileError(f"has more than {MOST_NBYTES} bytes", where=str(path))
    return _Reader(path, keys).project(content)


class _Reader:
    """A file that is being read. Its nodes are YAML's own, which know their lines."""

    def __init__(self, path: Path, keys: Mapping[str, Key]) -> None:
        self.path, self.keys = path, keys

    def refuse(self, what: str, line: int, hint: str = "") -> NoReturn:
        raise CompileError(what, where=f"{self.path}:{line}", hint=hint)

    def project(self, content: bytes) -> Project:
        root = self.compose(content)
        sections = self.entries(root, "the file")
        for name, (line, _) in sections.items():
            if name not in _SECTIONS:
                self.refuse(f"unknown section '{name}'", line, suggestion(name, _SECTIONS))
        defaults = self.settings(sections["defaults"][1], "defaults") if "defaults" in sections else {}
        for name in ("name", "output"):
            if name in defaults:
                self.refuse(f"'{name}' is each bundle's own", defaults[name].line, "it can't be a default")
        if "bundles" not in sections:
            self.refuse("there is no section 'bundles'", 1)
        line, node = sections["bundles"]
        items = tuple(
            self.item(name, at, each, defaults) for name, (at, each) in self.entries(node, "bundles", r"bundle's name").items()
        )
        if not items:
            self.refuse("no bundle is named", line)
        self.require_apart(items)
        return Project(self.path, items)

    def compose(self, content: bytes) -> yaml.Node:
        """The file's one document. Refused: aliases, tags, deep nesting."""
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.refuse("is not UTF-8", content.count(b"\n", 0, error.start) + 1)
        depth, line = 0, 1
        try:
            for event in yaml.parse(text, Loader=yaml.SafeLoader):
                line = event.start_mark.line + 1
                if isinstance(event, yaml.AliasEvent):
                    self.refuse(
                        f"'*{event.anchor}' refers back, which is not taken here", line, "the section 'defaults' is for that"
                    )
                if (tag := getattr(event, "tag", None)) is not None:
                    self.refuse(f"the tag '{tag}' is not taken here", line)
                depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
                if depth > MOST_DEPTH:
                    self.refuse("is nested too deeply", line)
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.refuse(f"is not YAML: {error.problem or error.context}", mark.line + 1 if mark else 1)
        except yaml.YAMLError as error:
            self.refuse(f"is not YAML: {error}", text.count("\n", 0, getattr(error, "position", 0)) + 1)
        except (ValueError, OverflowError):  # PyYAML's, of "\UFFFFFFFF"
            self.refuse("is not YAML: a character that there is not", line)
        if root is None:
            self.refuse("is empty", 1, "aot init writes one")
        return root

    def entries(self, node: yaml.Node, what: str, kind: str = "key") -> dict[str, tuple[int, yaml.Node]]:
        """A mapping's values by key, with the lines of the keys. Nothing at all is an empty one."""
        if node.tag == _NULL:
            return {}
        if not isinstance(node, yaml.MappingNode):
            self.refuse(f"{what} is not a mapping", _line(node), f"write {kind}: value")
        found: dict[str, tuple[int, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.refuse(f"a {kind} of {what} is not text", _line(key))
            if key.value in found:
                self.refuse(f"'{key.value}' stands twice in {what}, first in line {found[key.value][0]}", _line(key))
            found[key.value] = (_line(key), value)
        return found

    def item(self, name: str, line: int, node: yaml.Node, defaults: Mapping[str, Setting]) -> Item:
        if not re.fullmatch(NAME, name):
            self.refuse(f"'{name}' can't be the name of a bundle", line, "letters, digits, _, - and . make one")
        own = self.settings(node, f"the bundle '{name}'")
        settings = {key: setting for key, setting in {**defaults, **own}.items() if setting.arguments}
        if "models" not in settings:
            self.refuse(f"the bundle '{name}' has no models", line, "models: model.tflite")
        models = settings["models"].arguments
        settings["models"] = Setting(settings["models"].line, ())
        output = settings.pop("output").values[0] if "output" in settings else f"build/{name}"
        settings.setdefault("name", Setting(line, (f"--name={name}",)))
        order = {key: number for number, key in enumerate(("models", *self.keys))}
        return Item(name, line, models, output, dict(sorted(settings.items(), key=lambda each: order[each[0]])))

    def settings(self, node: yaml.Node, what: str) -> dict[str, Setting]:
        """The keys of a bundle, or the defaults. A key of nothing, or false, has no arguments: it takes back a default."""
        found: dict[str, Setting] = {}
        for name, (line, value) in self.entries(node, what).items():
            if name == "models":
                found[name] = Setting(line, tuple(self.texts(value, name)))
            elif name in self.keys:
                found[name] = self.setting(self.keys[name], line, value)
            else:
                self.refuse(f"unknown key '{name}' in {what}", line, suggestion(name, ("models", *self.keys)))
        return found

    def setting(self, key: Key, line: int, node: yaml.Node) -> Setting:
        if node.tag == _NULL:
            return Setting(line, ())
        if key.switch:
            return Setting(line, (f"--{key.name}",) * self.truth(node, key.name))
        values = []
        for at, text in self.values(key, node):
            try:
                key.check(text)
            except click.BadParameter as error:
                self.refuse(f"{key.name}: {error.message}", at)
            values.append(text)
        return Setting(line, key.arguments(values), key.files(values))

    def truth(self, node: yaml.Node, name: str) -> bool:
        if not isinstance(node, yaml.ScalarNode) or node.style or node.value.lower() not in _SWITCH:
            self.refuse(f"{name} is true or false", _line(node))
        return _SWITCH[node.value.lower()]

    def values(self, key: Key, node: yaml.Node) -> Iterator[tuple[int, str]]:
        """A key's values with their lines: one; a list's; NAME=VALUE for each pair of a mapping."""
        if key.pairs and isinstance(node, yaml.MappingNode):
            for name, (line, value) in self.entries(node, key.name, "name").items():
                parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
                if not parts:
                    self.refuse(f"{key.name}: '{name}' has no value", line)
                yield line, f"{name}={','.join(self.text(part, key.name, True) for part in parts)}"
        elif key.many and isinstance(node, yaml.SequenceNode):
            for each in node.value:
                yield _line(each), self.text(each, key.name, key.numeric)
        else:
            yield _line(node), self.text(node, key.name, key.numeric)

    def texts(self, node: yaml.Node, name: str) -> list[str]:
        return [self.text(each, name) for each in (node.value if isinstance(node, yaml.SequenceNode) else [node])]

    def text(self, node: yaml.Node, name: str, numeric: bool = False) -> str:
        """A scalar as it is written; only text, and where numbers may be, whole numbers."""
        if not isinstance(node, yaml.ScalarNode):
            self.refuse(
                f"{name} takes one value, not {'a list' if isinstance(node, yaml.SequenceNode) else 'a mapping'}", _line(node)
            )
        if node.tag != _STRING and not (numeric and node.tag in _NUMBERS):
            self.refuse(
                f"{name}: {node.value or 'nothing'} is not text", _line(node), f'write "{node.value}"' if node.value else ""
            )
        if not node.value or not node.value.isprintable():
            self.refuse(f"{name} is one line of text", _line(node))
        return node.value

    def require_apart(self, items: tuple[Item, ...]) -> None:
        """Each bundle has a folder of its own: files of two would have the same names."""
        owners: dict[str, Item] = {}
        for item in items:
            other = owners.setdefault(os.path.normpath(item.output), item)
            if other is not item:
                self.refuse(
                    f"the bundles {listed([other.name, item.name])} have the same output, {item.output}",
                    item.line,
                    "each has a folder of its own",
                )


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1
