/* Stands for the header of this name that an Arduino core includes in every sketch: what the examples use of it. */
#ifndef ARDUINO_H
#define ARDUINO_H

void setup();
void loop();
void delay(unsigned long milliseconds);

struct SerialPort {
    void begin(unsigned long baud);
    void print(const char *text);
    void println(int number);
};

extern SerialPort Serial;

#endif
