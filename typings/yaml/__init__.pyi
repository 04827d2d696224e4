from typing import IO, Any

class Mark:
    line: int
    column: int

class YAMLError(Exception): ...

class MarkedYAMLError(YAMLError):
    problem: str | None
    problem_mark: Mark | None

def safe_load(stream: str | bytes | IO[str] | IO[bytes]) -> Any: ...
