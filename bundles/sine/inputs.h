/* Made by make.py: values of x from 0 to 2 pi. */
#ifndef SINE_INPUTS_H
#define SINE_INPUTS_H

#include <stdint.h>

#define POINT_COUNT (21)
#define PLOT_WIDTH (41)

static const int8_t points[POINT_COUNT] = {-128, -116, -104, -92, -80, -68, -56, -44, -32, -20, -8, 4, 16, 28, 40, 52, 64, 76, 88, 100, 112};
static const int16_t point_hundredths[POINT_COUNT] = {0, 30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 330, 360, 390, 420, 450, 480, 510, 540, 570, 600};

#endif /* SINE_INPUTS_H */
