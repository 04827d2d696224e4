"""What a platform of PlatformIO does: names the compiler, adds the board's start-up code, links the program.

AOT_FIRMWARE is the folder of the start-up code, AOT_STAND_INS that of printf's; AOT_CPU holds the compiler's flags for the core.
"""

import os

from SCons.Script import Default, DefaultEnvironment

env = DefaultEnvironment()
firmware, stand_ins, cpu = os.environ["AOT_FIRMWARE"], os.environ["AOT_STAND_INS"], os.environ["AOT_CPU"].split()
env.Replace(
    AR="arm-none-eabi-ar", RANLIB="arm-none-eabi-ranlib", CC="arm-none-eabi-gcc", CXX="arm-none-eabi-g++", LINK="arm-none-eabi-gcc",
    AS="arm-none-eabi-as", PROGSUFFIX=".elf", PROGNAME="firmware",
)  # fmt: skip
env.Append(
    CCFLAGS=[*cpu, "-O2", "-ffreestanding"],
    CPPPATH=[stand_ins, firmware, f"{firmware}/boards"],
    LINKFLAGS=[*cpu, "-nostdlib", "-Wl,-e,Reset_Handler", "-T", f"{firmware}/boards/stm32f405.ld", "-T", f"{firmware}/sections.ld"],
    LIBS=["gcc"],
)
env.BuildSources("$BUILD_DIR/board", firmware, "-<*> +<startup.c> +<print.c> +<boards/stm32f405.c>")
env.BuildSources("$BUILD_DIR/printing", stand_ins, "-<*> +<print_format.c>")
Default(env.BuildProgram())
