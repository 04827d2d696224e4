"""`aot doctor` says what is there, whatever a tool does; `aot completion` completes what the options take."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from aot import cli
from aot.commands.completion import VARIABLE
from aot.doctor import Tool, examine, tools
from aot.target import load_target, target_names


def program(folder: Path, name: str, script: str) -> Tool:
    """A tool that is a shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Tool("emulator", name, "tests", "nowhere", programs=(name,))


def test_whatever_a_tool_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    good = program(tmp_path, "aot-good", "echo good tool, version 1.2.3-rc1; echo 9.9")
    hangs = program(tmp_path, "aot-hangs", "exec sleep 60")
    fails = program(tmp_path, "aot-fails", "echo 1.5 >&2; exit 3")
    junk = program(tmp_path, "aot-junk", "head -c 100000 /dev/urandom")
    broken = program(tmp_path, "aot-broken", "")
    (tmp_path / "aot-broken").write_bytes(b"\x7fELF and nothing else")
    missing = Tool("oracle", "aot-missing", "tests", "nowhere", programs=("aot-missing",))
    package = Tool("oracle", "aot-nothing", "tests", "nowhere", package="aot-no-such-package")
    found = examine((good, fails, junk, broken, missing, package), 30.0)
    assert [each.found for each in found] == [True, True, True, False, False, False]
    assert found[0].version == "1.2.3-rc1" and not found[0].problem and found[0].where == str(tmp_path / "aot-good")
    assert "ends with code 3" in found[1].problem and found[3].problem.startswith("can't be started")
    (late,) = examine((hangs,), 0.2)
    assert late.found and "says nothing within 0.2 s" in late.problem


def test_every_emulator_of_every_cpu_is_looked_for() -> None:
    names = {tool.name for tool in tools()}
    wanted = {
        str(parameters.get("program", "qemu-system-arm")) if emulator == "qemu" else emulator
        for name in target_names()
        for emulator, parameters in load_target(name).run.items()
    }
    assert wanted <= names and all(tool.use and tool.get for tool in tools())


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert cli.run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["tools"]
    assert next(each for each in found if each["name"] == "llvmlite")["found"]
    assert cli.run(["doctor"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("unicorn", "qemu-system-arm", "ziglang", "tflite-micro"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(text := capsys.readouterr().out)
    assert VARIABLE in text
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(script)], check=True)


def completions(*words: str) -> set[str]:
    """What is offered for the last word."""
    shell = ShellComplete(cli.cli, {}, "aot", VARIABLE)
    return {item.value for item in shell.get_completions(list(words[:-1]), words[-1])}


def test_what_is_offered() -> None:
    assert "verify" in completions("ver") and "bundle" in completions("b")
    assert completions("bundle", "--cpu", "cortex-m0") == {"cortex-m0", "cortex-m0plus"}
    assert {"cmsis-nn", "neon", "generic"} <= completions("verify", "--backend", "")
    assert completions("bundle", "--optimize", "s") == {"speed", "size"}
    assert "fuse_epilogues" in completions("bundle", "--dump-after", "fuse") and "--threads" in completions("bundle", "--thr")


def test_a_shell_asks() -> None:
    environment = {**os.environ, VARIABLE: "bash_complete", "COMP_WORDS": "aot bundle --cpu cortex-m3", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'aot'; from aot.cli import main; main()"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(done.stdout.split()) == ["plain,cortex-m3", "plain,cortex-m33"], done
