#include "print.h"

#include "board.h"

void print_char(char character) {
    if (character == '\n') {
        board_put('\r');
    }
    board_put(character);
}

void print_text(const char *text) {
    while (*text != '\0') {
        print_char(*text++);
    }
}

void print_number(int32_t number) {
    char digits[10];
    int count = 0;
    uint32_t rest = (number < 0) ? 0u - (uint32_t)number : (uint32_t)number;
    if (number < 0) {
        print_char('-');
    }
    do {
        digits[count++] = (char)('0' + (int)(rest % 10u));
        rest /= 10u;
    } while (rest != 0u);
    while (count > 0) {
        print_char(digits[--count]);
    }
}

void print_hundredths(int32_t number) {
    const int32_t size = (number < 0) ? -number : number;
    print_char((number < 0) ? '-' : ' ');
    print_number(size / 100);
    print_char('.');
    print_number((size / 10) % 10);
    print_number(size % 10);
}
