/* The Linux process that calls a bundle's functions on an Xtensa: no library, only system calls.
 *
 * Standard input: what memory holds before the run, then the rows that are pushed. Standard output: what the calls returned, in four bytes,
 * and what memory holds after them.
 */
extern int transfer(int number, int file, void *start, unsigned nbytes);
extern int make_calls(void);
extern const unsigned arena_nbytes;
extern char arena[];

enum { READ = 12, WRITE = 13 };

/* What a compiler makes calls of, where it sees a loop that copies or fills. */
void *memcpy(void *to, const void *from, unsigned nbytes);
void *memmove(void *to, const void *from, unsigned nbytes);
void *memset(void *to, int value, unsigned nbytes);

void *memcpy(void *to, const void *from, unsigned nbytes) {
    return memmove(to, from, nbytes);
}

void *memmove(void *to, const void *from, unsigned nbytes) {
    volatile char *target = to;
    const volatile char *source = from;
    if (target <= source) {
        for (unsigned i = 0; i < nbytes; i++) {
            target[i] = source[i];
        }
    } else {
        for (unsigned i = nbytes; i > 0; i--) {
            target[i - 1] = source[i - 1];
        }
    }
    return to;
}

void *memset(void *to, int value, unsigned nbytes) {
    volatile char *target = to;
    for (unsigned i = 0; i < nbytes; i++) {
        target[i] = (char)value;
    }
    return to;
}

static void transfer_all(int number, int file, char *start, unsigned nbytes) {
    while (nbytes > 0) {
        const int done = transfer(number, file, start, nbytes);
        if (done <= 0) {
            return;
        }
        start += done;
        nbytes -= (unsigned)done;
    }
}

void read_bytes(void *start, unsigned nbytes);

void read_bytes(void *start, unsigned nbytes) {
    transfer_all(READ, 0, start, nbytes);
}

void run(void);

void run(void) {
    read_bytes(arena, arena_nbytes);
    int code = make_calls();
    transfer_all(WRITE, 1, (char *)&code, sizeof code);
    transfer_all(WRITE, 1, arena, arena_nbytes);
}
