/* A pool of POSIX threads: whoever has nothing to do takes the next part. */
#include "pool.h"

/* Takes and runs parts until none is left to take. The lock is held before and after. */
static void run_parts(struct pool *pool) {
    while (pool->next < pool->parts) {
        void (*const body)(void *, uint32_t) = pool->body;
        void *const arg = pool->arg;
        const uint32_t part = pool->next++;
        (void)pthread_mutex_unlock(&pool->lock);
        body(arg, part);
        (void)pthread_mutex_lock(&pool->lock);
        if (--pool->waiting == 0u) {
            (void)pthread_cond_signal(&pool->done);
        }
    }
}

static void *work(void *given) {
    struct pool *const pool = given;
    (void)pthread_mutex_lock(&pool->lock);
    while (!pool->ends) {
        run_parts(pool);
        if (!pool->ends) {
            (void)pthread_cond_wait(&pool->begun, &pool->lock);
        }
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return NULL;
}

int pool_start(struct pool *pool, int threads) {
    pool->parts = pool->next = pool->waiting = 0u;
    pool->ends = pool->count = 0;
    if (threads < 1 || threads > POOL_MOST + 1 || pthread_mutex_init(&pool->lock, NULL) != 0) {
        return -1;
    }
    if (pthread_cond_init(&pool->begun, NULL) != 0) {
        (void)pthread_mutex_destroy(&pool->lock);
        return -1;
    }
    if (pthread_cond_init(&pool->done, NULL) != 0) {
        (void)pthread_cond_destroy(&pool->begun);
        (void)pthread_mutex_destroy(&pool->lock);
        return -1;
    }
    while (pool->count < threads - 1) {
        if (pthread_create(&pool->threads[pool->count], NULL, work, pool) != 0) {
            pool_stop(pool);
            return -1;
        }
        pool->count++;
    }
    return 0;
}

void pool_stop(struct pool *pool) {
    (void)pthread_mutex_lock(&pool->lock);
    pool->ends = 1;
    (void)pthread_cond_broadcast(&pool->begun);
    (void)pthread_mutex_unlock(&pool->lock);
    while (pool->count > 0) {
        (void)pthread_join(pool->threads[--pool->count], NULL);
    }
    (void)pthread_cond_destroy(&pool->done);
    (void)pthread_cond_destroy(&pool->begun);
    (void)pthread_mutex_destroy(&pool->lock);
}

void pool_run(void *given, uint32_t parts, void (*body)(void *arg, uint32_t part), void *arg) {
    struct pool *const pool = given;
    (void)pthread_mutex_lock(&pool->lock);
    pool->body = body;
    pool->arg = arg;
    pool->next = 0u;
    pool->parts = pool->waiting = parts;
    (void)pthread_cond_broadcast(&pool->begun);
    run_parts(pool);
    while (pool->waiting != 0u) {
        (void)pthread_cond_wait(&pool->done, &pool->lock);
    }
    (void)pthread_mutex_unlock(&pool->lock);
}
