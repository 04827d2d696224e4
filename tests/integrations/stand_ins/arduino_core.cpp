/* What an Arduino core does: it calls setup once and loop for ever, and has a serial port. */
#include "Arduino.h"

extern "C" {
#include "print.h"
}

SerialPort Serial;

void SerialPort::begin(unsigned long baud) {
    (void)baud;
}

void SerialPort::print(const char *text) {
    print_text(text);
}

void SerialPort::println(int number) {
    print_number(number);
    print_text("\n");
}

void delay(unsigned long milliseconds) {
    (void)milliseconds;
}

__attribute__((weak)) void setup() {
}

__attribute__((weak)) void loop() {
}

extern "C" __attribute__((weak)) int main() {
    setup();
    for (;;) {
        loop();
    }
}
