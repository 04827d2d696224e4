#include "pictures.h"

#include "print.h"

void picture_draw(int index, int label, const uint8_t *pixels, int side) {
    static const char ramp[] = " .:-=+*#%@";
    print_text("picture ");
    print_number(index);
    print_text(", a ");
    print_number(label);
    print_text("\n");
    for (int row = 0; row < side; row++) {
        print_text("  |");
        for (int column = 0; column < side; column++) {
            const char ink = ramp[((int)pixels[(row * side) + column] * 9) / 16];
            print_char(ink);
            print_char(ink);
        }
        print_text("|\n");
    }
}

void picture_recognised(int label, int32_t percent) {
    print_text("recognised ");
    print_number(label);
    print_text(", score ");
    print_number(percent);
    print_text(" %\n");
}

void picture_summary(const char *name, int right, int count) {
    print_text(name);
    print_text(": ");
    print_number(right);
    print_text(" of ");
    print_number(count);
    print_text(" recognised\n");
    print_text(name);
    print_text(": end\n");
}
