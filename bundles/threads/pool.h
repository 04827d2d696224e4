/* A pool of POSIX threads that runs the parts of a layer: what an entry made with --threads is passed.
 *
 *     struct pool pool;
 *     if (pool_start(&pool, 4) == 0) {
 *         model_run(input, output, workspace, pool_run, &pool);
 *         pool_stop(&pool);
 *     }
 *
 * The thread that calls the entry is one of the four. One pool serves one call at a time.
 */
#ifndef POOL_H
#define POOL_H

#include <pthread.h>
#include <stdint.h>

#define POOL_MOST (64)

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t begun;  /* there are parts to run, or the pool ends */
    pthread_cond_t done;   /* no part is left, or running */
    void (*body)(void *arg, uint32_t part);
    void *arg;
    uint32_t parts;   /* of the layer that runs */
    uint32_t next;    /* the first one that nobody has taken */
    uint32_t waiting; /* those that have not returned */
    int ends;
    int count; /* of `threads` */
    pthread_t threads[POOL_MOST];
};

/* Starts a pool of so many threads, the caller's included. Returns 0; or -1, and then nothing is left running. */
int pool_start(struct pool *pool, int threads);

/* Ends the pool's threads. */
void pool_stop(struct pool *pool);

/* Runs body(arg, part) for each part below parts, and returns when all have returned. */
void pool_run(void *pool, uint32_t parts, void (*body)(void *arg, uint32_t part), void *arg);

#endif /* POOL_H */
