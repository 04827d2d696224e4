/* tests/run/apart.py in C, for code of other machines: runs a model whose parts must be apart. apart < input > output.
 *
 * Each part runs once from memory as it was before the layer, and once after all the others. It must change bytes that no other part
 * changes, to the same values both times. What is kept are the changes of the first runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define MOST_PARTS (8u)

struct memory {
    _Alignas(64) unsigned char workspace[MODEL_WORKSPACE_SIZE + 1u];
    _Alignas(64) unsigned char output[MODEL_OUTPUT_0_SIZE];
};

static _Alignas(64) unsigned char input[MODEL_INPUT_0_SIZE];
static struct memory now, before, theirs, alone[MOST_PARTS];
static unsigned layers;

static int changed(uint32_t part, size_t at) {
    return ((const unsigned char *)&alone[part])[at] != ((const unsigned char *)&before)[at];
}

static void fail(uint32_t part, uint32_t other, const char *what, size_t at) {
    (void)fprintf(stderr, "layer %u, part %u and part %u: %s at byte %lu\n", layers, part, other, what, (unsigned long)at);
    exit(3);
}

static void apart(void *pool, uint32_t parts, void (*body)(void *arg, uint32_t part), void *arg) {
    (void)pool;
    layers++;
    before = now;
    for (uint32_t part = 0u; part < parts; part++) {
        now = before;
        body(arg, part);
        alone[part] = now;
    }
    for (uint32_t part = 0u; part < parts; part++) {
        now = before;
        for (uint32_t other = parts; other-- > 0u;) {
            if (other != part) {
                body(arg, other);
            }
        }
        theirs = now;
        body(arg, part);
        for (size_t at = 0u; at < sizeof now; at++) {
            const unsigned char last = ((const unsigned char *)&now)[at];
            if (changed(part, at) && last != ((const unsigned char *)&alone[part])[at]) {
                fail(part, part, "what it writes depends on the others", at);
            }
            if (!changed(part, at) && last != ((const unsigned char *)&theirs)[at]) {
                fail(part, part, "where it writes depends on the others", at);
            }
            for (uint32_t other = 0u; other < part; other++) {
                if (changed(part, at) && changed(other, at)) {
                    fail(part, other, "both write", at);
                }
            }
        }
    }
    now = before;
    for (uint32_t part = 0u; part < parts; part++) {
        for (size_t at = 0u; at < sizeof now; at++) {
            if (changed(part, at)) {
                ((unsigned char *)&now)[at] = ((const unsigned char *)&alone[part])[at];
            }
        }
    }
}

int main(void) {
    unsigned garbage = 12345u;
    for (size_t at = 0u; at < sizeof now; at++) {
        garbage = garbage * 1103515245u + 12345u;
        ((unsigned char *)&now)[at] = (unsigned char)(garbage >> 16);
    }
    if (fread(input, 1, sizeof input, stdin) != sizeof input) {
        return 2;
    }
    if (model_run((void *)input, (void *)now.output, now.workspace, apart, NULL) != MODEL_OK) {
        return 1;
    }
    (void)fprintf(stderr, "%u\n", layers);
    return fwrite(now.output, 1, sizeof now.output, stdout) == sizeof now.output ? 0 : 1;
}
