#!/bin/sh
# What make needs from the system.
#   setup.sh venv PYTHON FOLDER   make a virtual environment (installs Debian's python3-venv where it is missing)
#   setup.sh system               install the Debian packages that the tests use: emulators, compilers, a compiler for QEMU's plugin, CMake, a browser
# Packages are installed as root or through sudo; where neither can be had, it says what to install.
set -eu

root() { # root COMMAND...: run it as root, if that can be had without asking
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo "$@"
    elif command -v sudo >/dev/null && [ -t 0 ]; then sudo "$@"
    else return 1
    fi
}

install() { # install PACKAGE...: with apt, or explain
    command -v apt-get >/dev/null || { echo "setup: this is no Debian: please install the equivalents of: $*" >&2; return 1; }
    echo "setup: installing Debian packages: $*"
    log=$(mktemp)
    { root env DEBIAN_FRONTEND=noninteractive apt-get update -qq && root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"; } >"$log" 2>&1 || {
        tail -n 5 "$log" >&2; rm -f "$log"
        echo "setup: could not install them (not root, no sudo, or no network). As root: apt-get install $*" >&2
        return 1
    }
    rm -f "$log"
}

case "${1:-}" in
venv)
    python=$2 folder=$3
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { echo "setup: aot needs Python 3.10 or later; '$python' is not (make PYTHON=/path/to/python3)" >&2; exit 1; }
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install python3-venv
    "$python" -m venv "$folder"
    touch "$folder/.made"
    ;;
system)
    missing=""
    command -v qemu-system-arm >/dev/null || missing="$missing qemu-system-arm"
    command -v qemu-aarch64 >/dev/null || missing="$missing qemu-user"
    command -v gcc >/dev/null || missing="$missing gcc libc6-dev"
    command -v arm-none-eabi-gcc >/dev/null || missing="$missing gcc-arm-none-eabi"
    command -v xtensa-lx106-elf-gcc >/dev/null || missing="$missing gcc-xtensa-lx106"
    command -v chromium >/dev/null || missing="$missing chromium"
    command -v cmake >/dev/null || missing="$missing cmake"
    command -v ninja >/dev/null || missing="$missing ninja-build"
    command -v cppcheck >/dev/null || missing="$missing cppcheck"
    [ -f /usr/share/i18n/locales/tr_TR ] || missing="$missing locales"
    # A missing emulator or compiler is no failure: the tests that need it skip and say so.
    [ -z "$missing" ] || install $missing || echo "setup: going on without: the tests that need them will skip" >&2
    # Not every Debian has it.
    command -v arduino-builder >/dev/null || install arduino-builder || echo "setup: going on without arduino-builder: its test will skip" >&2
    ;;
*) sed -n '2,5p' "$0" >&2; exit 2 ;;
esac
