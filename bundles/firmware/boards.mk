# The boards: CPU for aot and for the compilers, and how QEMU runs the board's programs.
# QEMU_NS_PER_TICK: with -icount shift=0 an instruction takes 1 ns of virtual time, so that is also instructions per SysTick tick.

BOARDS := stm32f405 stm32f746 mps3_an547

stm32f405_CPU := cortex-m4
stm32f405_GCC := -mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16
stm32f405_ZIG := -mcpu=cortex_m4+vfp4d16sp
stm32f405_QEMU := -M netduinoplus2 -serial null -serial stdio -kernel ELF
stm32f405_QEMU_NS_PER_TICK := 5.952

stm32f746_CPU := cortex-m7
stm32f746_GCC := -mcpu=cortex-m7 -mfloat-abi=hard -mfpu=fpv5-sp-d16
stm32f746_ZIG := -mcpu=cortex_m7-fp64-fp_armv8d16+fp_armv8d16sp
stm32f746_QEMU := -M mps2-an500 -serial stdio -device loader,file=ELF,cpu-num=0
stm32f746_QEMU_NS_PER_TICK := 40

mps3_an547_CPU := cortex-m55
mps3_an547_GCC := -mcpu=cortex-m55 -mfloat-abi=hard
mps3_an547_ZIG := -mcpu=cortex_m55+mve_fp+fp_armv8d16
mps3_an547_QEMU := -M mps3-an547 -serial stdio -kernel ELF
mps3_an547_QEMU_NS_PER_TICK := 31.25
