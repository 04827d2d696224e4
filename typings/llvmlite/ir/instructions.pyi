from collections.abc import Sequence
from typing import Any

from llvmlite.ir import Block, Function, Type, Value

class Instruction(Value):
    opname: str
    operands: Sequence[Any]
    flags: list[str]
    parent: Any
    function: Function
    def __init__(
        self, parent: Block, typ: Type, opname: str, operands: Sequence[Any], name: str = "", flags: Sequence[str] = ()
    ) -> None: ...
    def descr(self, buf: list[str]) -> None: ...
    def set_metadata(self, name: str, node: Any) -> None: ...

class CallInstr(Instruction):
    callee: Any
    args: Sequence[Any]
    tail: str
    def _descr(self, buf: list[str], add_metadata: bool) -> None: ...

class ICMPInstr(Instruction):
    op: str

class FCMPInstr(Instruction):
    op: str

class CastInstr(Instruction): ...
class SelectInstr(Instruction): ...
class Terminator(Instruction): ...
class Ret(Terminator): ...
class Branch(Terminator): ...
class ConditionalBranch(Terminator): ...
class Unreachable(Terminator): ...

class SwitchInstr(Terminator):
    default: Block
    cases: list[tuple[Any, Block]]
    def add_case(self, value: Any, block: Block) -> None: ...

class PhiInstr(Instruction):
    incomings: list[tuple[Any, Any]]
    def add_incoming(self, value: Any, block: Block) -> None: ...

class LoadInstr(Instruction):
    align: int | None
    def __init__(self, parent: Block, ptr: Any, name: str = "", typ: Type | None = None) -> None: ...

class StoreInstr(Instruction):
    align: int | None
    def __init__(self, parent: Block, value: Any, ptr: Any) -> None: ...

class AllocaInstr(Instruction):
    align: int | None
    allocated_type: Any

class GEPInstr(Instruction):
    pointer: Any
    indices: Sequence[Any]
    inbounds: bool
    source_etype: Any

class ExtractElement(Instruction): ...
class InsertElement(Instruction): ...
class ShuffleVector(Instruction): ...

class ExtractValue(Instruction):
    aggregate: Any
    indices: Sequence[int]

class InsertValue(Instruction):
    aggregate: Any
    indices: Sequence[int]
