/* The parts of a layer by OpenMP: model_run(input, output, workspace, openmp_run, &threads). */
#ifndef OPENMP_H
#define OPENMP_H

#include <stdint.h>

/* Runs body(arg, part) for each part below parts, on *(const int *)threads threads. */
void openmp_run(void *threads, uint32_t parts, void (*body)(void *arg, uint32_t part), void *arg);

#endif /* OPENMP_H */
