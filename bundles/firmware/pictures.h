/* Small grey pictures as text. */
#ifndef PICTURES_H
#define PICTURES_H

#include <stdint.h>

/* Prints a picture of `side` x `side` pixels, 0 (paper) to 16 (ink), with a line that says which one it is. */
void picture_draw(int index, int label, const uint8_t *pixels, int side);

/* "recognised 7, score 99 %" */
void picture_recognised(int label, int32_t percent);

/* The last two lines: how many were right, and the end. */
void picture_summary(const char *name, int right, int count);

#endif /* PICTURES_H */
