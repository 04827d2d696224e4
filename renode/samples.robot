*** Comments ***
Every sample's firmware on every platform: each line of its expected.txt must appear on the UART, in order.
Build the firmware first (python -m bundles.emulate does both):
    renode-test --variable ELFS:/path/to/build/firmware --variable TOOLCHAIN:gcc renode/samples.robot

*** Settings ***
Library                 OperatingSystem
Library                 String

*** Variables ***
${ELFS}                 ${CURDIR}/../build/firmware
${TOOLCHAIN}            gcc
${SECONDS}              10

*** Keywords ***
Sample Should Print Its Lines
    [Arguments]             ${sample}  ${board}  ${uart}
    Execute Command         mach create "${board}"
    Execute Command         machine LoadPlatformDescription "${CURDIR}/${board}.repl"
    Execute Command         sysbus LoadELF @${ELFS}/${sample}-${board}-${TOOLCHAIN}/${sample}.elf
    Create Terminal Tester  sysbus.${uart}  timeout=${SECONDS}  defaultPauseEmulation=true
    ${text}=                Get File  ${CURDIR}/../bundles/${sample}/expected.txt
    @{lines}=               Split To Lines  ${text}
    Start Emulation
    FOR  ${line}  IN  @{lines}
        ${printed}=         Wait For Line On Uart  ${line}
        Should Be Equal     ${printed.Line}  ${line}  strip_spaces=True
    END

*** Test Cases ***
Digits On Cortex-M4
    Sample Should Print Its Lines  digits        stm32f405   usart2

Digits On Cortex-M7
    Sample Should Print Its Lines  digits        stm32f746   usart1

Digits On Cortex-M55
    Sample Should Print Its Lines  digits        mps3_an547  uart0

Float Digits On Cortex-M4
    Sample Should Print Its Lines  digits_float  stm32f405   usart2

Float Digits On Cortex-M7
    Sample Should Print Its Lines  digits_float  stm32f746   usart1

Float Digits On Cortex-M55
    Sample Should Print Its Lines  digits_float  mps3_an547  uart0

Sine On Cortex-M4
    Sample Should Print Its Lines  sine          stm32f405   usart2

Sine On Cortex-M7
    Sample Should Print Its Lines  sine          stm32f746   usart1

Sine On Cortex-M55
    Sample Should Print Its Lines  sine          mps3_an547  uart0
