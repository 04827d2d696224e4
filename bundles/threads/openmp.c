/* The parts of a layer by OpenMP (-fopenmp); threads is the int that an entry is passed as the pool. */
#include "openmp.h"

void openmp_run(void *threads, uint32_t parts, void (*body)(void *arg, uint32_t part), void *arg) {
    const int count = *(const int *)threads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(count)
    for (uint32_t part = 0u; part < parts; part++) {
        body(arg, part);
    }
}
