# pyright: basic
"""A project file to begin with: a bundle for each model of a folder, every key as a comment.

Enters: a folder, and the keys of a bundle. Leaves: YAML. Invariant: `aot.project.read` takes it, whatever the models are called.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from aot.artefacts.contents import environment
from aot.names import unique_identifiers
from aot.project.keys import Key
from aot.project.schema import FILE as SCHEMA_FILE
from aot.project.schema import summary_of

_WIDTH = 110


def find_models(folder: Path) -> tuple[str, ...]:
    """The .tflite files in a folder and below, from it on; those in hidden folders, or with names that are no text, are left out."""
    return tuple(sorted(_models(folder)))


def _models(folder: Path) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = (Path(root) / name).relative_to(folder).as_posix()
            if name.endswith(".tflite") and path.isprintable():
                yield path


def project_text(models: Sequence[str], keys: Mapping[str, Key]) -> str:
    """bundle.yaml for these models."""
    names = unique_identifiers([Path(model).stem for model in models], "model")
    bundles = [(_scalar(name), _scalar(model)) for name, model in zip(names, models, strict=True)]
    template = environment().get_template("bundle.yaml.j2")
    return template.render(schema=SCHEMA_FILE, bundles=bundles, keys=[(key, _comment(key)) for key in keys.values()])


def _comment(key: Key) -> list[str]:
    return textwrap.wrap(summary_of(key), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _scalar(text: str) -> str:
    """Text as YAML, in quotes where it would be something else."""
    return yaml.safe_dump(text, allow_unicode=True, width=1 << 20).removesuffix("...\n").strip()
