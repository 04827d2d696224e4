/* Runs a model of one input and one output on several threads: main THREADS RUNS < input > output. The bundle is named `model`. */
#include <stdio.h>
#include <stdlib.h>

#include "model.h"
#ifdef _OPENMP
#include "openmp.h"
#else
#include "pool.h"
#endif

static _Alignas(64) unsigned char input[MODEL_INPUT_0_SIZE];
static _Alignas(64) unsigned char output[MODEL_OUTPUT_0_SIZE];
static _Alignas(64) unsigned char workspace[MODEL_WORKSPACE_SIZE + 1u];

#define RUN(function, pool) model_run((void *)input, (void *)output, workspace, function, pool)

static int run(int threads, int runs) {
    int code = MODEL_OK;
#ifdef _OPENMP
    while (code == MODEL_OK && runs-- > 0) {
        code = RUN(openmp_run, &threads);
    }
#else
    struct pool pool;
    if (pool_start(&pool, threads) != 0) {
        return 1;
    }
    while (code == MODEL_OK && runs-- > 0) {
        code = RUN(pool_run, &pool);
    }
    pool_stop(&pool);
#endif
    return code;
}

int main(int count, char **arguments) {
    if (count != 3 || fread(input, 1, sizeof input, stdin) != sizeof input) {
        (void)fprintf(stderr, "main THREADS RUNS < input > output\n");
        return 2;
    }
    const int code = run(atoi(arguments[1]), atoi(arguments[2]));
    if (code != MODEL_OK) {
        (void)fprintf(stderr, "model_run: %d\n", code);
        return 1;
    }
    return fwrite(output, 1, sizeof output, stdout) == sizeof output ? 0 : 1;
}
