"""The commands, in the order `aot --help` lists them."""

from aot.commands.build import build_command
from aot.commands.bundle import bundle
from aot.commands.check import check
from aot.commands.completion import completion
from aot.commands.diff_dump import diff_dump
from aot.commands.doctor import doctor
from aot.commands.init import init
from aot.commands.inspect import inspect
from aot.commands.listing import ops, targets
from aot.commands.profile import profile_command
from aot.commands.report import report_command
from aot.commands.run import run
from aot.commands.schema import schema_command
from aot.commands.verify import verify_command
from aot.commands.where import where

COMMANDS = (
    bundle,
    init,
    build_command,
    run,
    verify_command,
    profile_command,
    report_command,
    diff_dump,
    inspect,
    check,
    ops,
    targets,
    where,
    schema_command,
    doctor,
    completion,
)
