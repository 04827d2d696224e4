/* What the samples print with, over the board's UART: text and %d. */
#include <stdarg.h>

#include "print.h"
#include "stdio.h"
#include "zephyr/sys/printk.h"

static void print_arguments(const char *format, va_list arguments) {
    for (; *format; format++) {
        if (format[0] == '%' && format[1] == 'd') {
            print_number(va_arg(arguments, int));
            format++;
        } else {
            print_char(*format);
        }
    }
}

void printk(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_arguments(format, arguments);
    va_end(arguments);
}

int printf(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_arguments(format, arguments);
    va_end(arguments);
    return 0;
}
