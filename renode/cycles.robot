*** Comments ***
The sample for a bundle made with --instrument cycles: Renode's DWT unit counts instructions, so that each layer has taken some.
Build the firmware first (python -m bundles.emulate does both):
    make -C bundles firmware SAMPLE=digits BOARD=stm32f405 INSTRUMENT=cycles
    renode-test renode/cycles.robot

*** Variables ***
${ELFS}                 ${CURDIR}/../build/firmware
${TOOLCHAIN}            gcc
${SECONDS}              10

*** Test Cases ***
Layers Of Digits On Cortex-M4
    Execute Command         mach create "stm32f405"
    Execute Command         machine LoadPlatformDescription "${CURDIR}/stm32f405.repl"
    Execute Command         sysbus LoadELF @${ELFS}/digits-stm32f405-${TOOLCHAIN}-cycles/digits.elf
    Create Terminal Tester  sysbus.usart2  timeout=${SECONDS}  defaultPauseEmulation=true
    Start Emulation
    Wait For Line On Uart   ^cycles [1-9][0-9]+: conv_0,  treatAsRegex=true
    Wait For Line On Uart   ^cycles [1-9][0-9]+: depthwise_2,  treatAsRegex=true
    Wait For Line On Uart   ^cycles [1-9][0-9]+: conv_4,  treatAsRegex=true
    Wait For Line On Uart   ^cycles [1-9][0-9]+: scores,  treatAsRegex=true
    Wait For Line On Uart   digits: 1 of 1 recognised
