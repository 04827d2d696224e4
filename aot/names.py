"""Names: C identifiers from untrusted text, and the answer to a name that is none of the valid ones.

Enters: file stems, tensor labels, signature keys; what a user typed. Leaves: identifiers that are safe in C, CMake and section names; a valid name.
Invariant: an identifier matches [A-Za-z_][A-Za-z0-9_]* and is no keyword, whatever the text was.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from aot.errors import CompileError

_RESERVED = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr continue default delete
    do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new
    noexcept not not_eq NULL char8_t char16_t char32_t concept consteval constinit co_await co_return co_yield decltype requires
    typeof_unqual nullptr operator or or_eq private protected public register reinterpret_cast restrict return short signed
    sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename typeof union
    unsigned using virtual void volatile wchar_t while xor xor_eq main workspace weights state
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t errno linux unix i386
    """.split()
)
_HEADERS = frozenset(
    """
    alloca assert complex ctype endian errno features fenv float inttypes iso646 limits locale malloc math pthread sched setjmp signal
    stdalign stdarg stdatomic stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string strings tgmath threads time uchar unistd
    wchar wctype
    """.split()
)
"""Headers of C and of what its libraries include: with the bundle's folder among those of headers, one of its name would hide it."""
_STANDARD = re.compile(r"_[A-Z]\w*|u?int\w*_t|U?INT\w*_(MIN|MAX|C|WIDTH)|(SIZE|PTRDIFF|WCHAR|WINT|SIG_ATOMIC)_(MIN|MAX)")
"""Names that C keeps for itself, and those of <stdint.h>, which the headers include."""
_TAKEN = re.compile(
    r"workspace|state|weights|rows?|n|error|stack|(.*_)?stack|(input|output)_.*|in|out|init|load|read|ctx|window|begin|end"
)
"""Names of regions that would be those of other parameters and macros of a header, in lower case."""
_LIBRARY = frozenset(
    """
    abort abs acos acosh asctime asin asinh atan atan2 atanh atexit atof atoi atol atoll bsearch calloc cbrt ceil clearerr clock copysign
    cos cosh ctime difftime div erf erfc exit exp exp2 expm1 fabs fclose fdim feof ferror fflush fgetc fgetpos fgets floor fma fmax fmin
    fmod fopen fprintf fputc fputs fread free freopen frexp fscanf fseek fsetpos ftell fwrite getc getchar getenv gets gmtime hypot ilogb
    imaxabs imaxdiv isalnum isalpha isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit labs ldexp ldiv lgamma
    llabs lldiv llrint llround localeconv localtime log log10 log1p log2 logb longjmp lrint lround malloc mblen mbstowcs mbtowc memchr
    memcmp memcpy memmove memset mktime modf nan nearbyint nextafter nexttoward perror pow printf putc putchar puts qsort raise rand
    realloc remove remainder remquo rename rewind rint round scalbln scalbn scanf setbuf setjmp setlocale setvbuf signal sin sinh snprintf
    sprintf sqrt srand sscanf strcat strchr strcmp strcoll strcpy strcspn strerror strftime strlen strncat strncmp strncpy strpbrk
    strrchr strspn strstr strtod strtof strtok strtol strtold strtoll strtoul strtoull strxfrm system tan tanh tgamma time tmpfile tmpnam
    tolower toupper trunc ungetc vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf wcstombs wctomb
    """.split()
)
"""The functions of C99's library, but for those on wide characters and complex numbers, and the float forms of the mathematical ones."""
_LONGEST = 63


def printable(text: object) -> str:
    """Untrusted text without control characters, and without those that turn the direction of others."""
    return "".join(char if char.isprintable() else "?" for char in str(text))


def identifier(text: str, fallback: str = "model") -> str:
    """`text` as a C identifier: other characters become `_`; empty, reserved or leading-digit names get `fallback` in front."""
    name = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9]", "_", text)).strip("_")[:_LONGEST].rstrip("_")
    if not name:
        return fallback
    return f"{fallback}_{name}" if name[0].isdigit() or name in _RESERVED else name


def bundle_identifier(text: str) -> str:
    """`text` as the name of a bundle, whose files are NAME.h and others: a C identifier that no other header is called by."""
    name = identifier(text)
    return f"model_{name}" if name.lower() in _HEADERS else name


def unique_identifiers(texts: Iterable[str], fallback: str, taken: Iterable[str] = ()) -> tuple[str, ...]:
    """An identifier for each text, in lower case; clashes, with those taken too, get a number: ("a", "a") -> ("a", "a_1")."""
    taken = set(taken)
    names: list[str] = []
    for text in texts:
        stem = identifier(text, fallback).lower()
        stem = identifier(stem, fallback)
        name, number = stem, 0
        while name in taken:
            number += 1
            name = f"{stem}_{number}"
        taken.add(name)
        names.append(name)
    return tuple(names)


def require_function(name: str, what: str) -> None:
    """CompileError unless a function of the firmware may have this name in C, beside the compiler's own names. `what` it is for."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name in _RESERVED or len(name) > _LONGEST:
        raise CompileError(f"{what}: '{name}' can't be the name of a C function")
    if _STANDARD.fullmatch(name):
        raise CompileError(f"{what}: the name '{name}' is the C language's own", hint="give the function another name")
    if name.lower().startswith(("aot_", "__")):
        raise CompileError(f"{what}: names like '{name}' are not the firmware's", hint="they begin with neither aot_ nor __")


def require_no_library_function(name: str, what: str) -> None:
    """CompileError if a global function of this name would take the place of one of the C library's. `what` it is for."""
    if name in _LIBRARY or name.removesuffix("f") in _LIBRARY or name.removesuffix("l") in _LIBRARY:
        raise CompileError(f"{what}: '{name}' is a function of the C library", hint="give the bundle another name with --name")


def require_regions(sizes: Mapping[str, int]) -> None:
    """CompileError unless each of these memories can be a parameter, and a part of macros, of a header, and has some bytes."""
    seen: set[str] = set()
    for name, nbytes in sizes.items():
        text = f"--region {name}={nbytes}"
        if (
            not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
            or name in _RESERVED
            or len(name) > _LONGEST
            or _STANDARD.fullmatch(name)
        ):
            raise CompileError(f"{text}: '{name}' can't be the name of a parameter in C")
        if _TAKEN.fullmatch(name.lower()):
            raise CompileError(f"{text}: the header has other macros of this name", hint="give the region another name")
        if name.lower() in seen:
            raise CompileError(f"{text}: another region has this name, capitals apart")
        if nbytes < 1:
            raise CompileError(f"{text}: a region has one byte or more")
        seen.add(name.lower())


def choose(kind: str, name: str, valid: Iterable[str], everything: str = "") -> str:
    """`name` if it is valid; otherwise a CompileError that says which are, as `suggestion`."""
    names = sorted(valid)
    if name in names:
        return name
    raise CompileError(f"unknown {kind} '{name}'", hint=suggestion(name, names, everything=everything))


_MOST_LISTED, _MOST_CLOSE = 20, 5


def suggestion(name: str, valid: Iterable[str], lead: str = "known: ", everything: str = "") -> str:
    """A hint for a name that is none of the valid ones: the closest, and all of them after `lead`, or where they are many, those close
    to it and where to see all (`everything`, a command)."""
    names = list(valid)
    close = close_names(name, names)
    if everything and len(names) > _MOST_LISTED:
        return f"{_question(close)}{everything} lists all {len(names)}"
    return f"{_question(close[:1])}{lead}{listed(names)}"


def listed(names: Sequence[str]) -> str:
    """At most 20 of the names, with commas between them, and how many more there are."""
    more = len(names) - _MOST_LISTED
    return (", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")) or "none"


def _question(close: list[str]) -> str:
    return f"did you mean {' or '.join(filter(None, (', '.join(close[:-1]), close[-1])))}? " if close else ""


def close_names(name: str, valid: Iterable[str]) -> list[str]:
    """The valid names that may have been meant, the likeliest first: the same but for case and punctuation; else at most 5, those that
    contain what was typed (short ones first), or else those with the most letters in common."""
    keys = {each: _key(each) for each in valid}
    typed = _key(name)
    if same := [each for each, key in keys.items() if key == typed]:
        return same[:1]
    if holding := sorted((each for each, key in keys.items() if typed and typed in key), key=lambda each: (len(each), each)):
        return holding[:_MOST_CLOSE]
    by_key = {key: each for each, key in reversed(keys.items())}
    return [by_key[key] for key in difflib.get_close_matches(typed, list(by_key), 3)]


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
