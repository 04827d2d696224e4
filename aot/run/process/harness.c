/* The Linux process that calls a bundle's functions: no library, only system calls.
 *
 * Standard input: a job (job.py writes it). Standard output: a report, and what memory that may be written holds at the end.
 * All numbers are 64-bit little-endian words. Memory is where the job says, alone on its pages; everything else is unmapped.
 */

typedef unsigned char byte;
typedef unsigned long word;
typedef unsigned long long u64;

#if defined(__aarch64__)
enum { READ = 63, WRITE = 64, EXIT = 94, SIGACTION = 134, SIGALTSTACK = 132, MMAP = 222, MPROTECT = 226 };
enum { REGISTERS = 8, SAVED = 11, SAVED_FLOATS = 8, PC_OFFSET = 440 };
static long call_system(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#elif defined(__arm__)
enum { READ = 3, WRITE = 4, EXIT = 248, SIGACTION = 174, SIGALTSTACK = 186, MMAP = 192, MPROTECT = 125 };
enum { REGISTERS = 4, SAVED = 8, SAVED_FLOATS = 8, PC_OFFSET = 92 };
static long call_system(long number, long a, long b, long c, long d, long e, long f) {
    register long r7 __asm__("r7") = number;
    register long r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c;
    register long r3 __asm__("r3") = d, r4 __asm__("r4") = e, r5 __asm__("r5") = f;
    __asm__ volatile("svc #0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5) : "memory");
    return r0;
}
#elif defined(__riscv)
enum { READ = 63, WRITE = 64, EXIT = 94, SIGACTION = 134, SIGALTSTACK = 132, MMAP = 222, MPROTECT = 226 };
#if defined(__riscv_flen) && __riscv_flen == 64
enum { REGISTERS = 8, SAVED = 12, SAVED_FLOATS = 12, PC_OFFSET = 176 };
#else
enum { REGISTERS = 8, SAVED = 12, SAVED_FLOATS = 0, PC_OFFSET = 160 };
#endif
static long call_system(long number, long a, long b, long c, long d, long e, long f) {
    register long a7 __asm__("a7") = number;
    register long a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c;
    register long a3 __asm__("a3") = d, a4 __asm__("a4") = e, a5 __asm__("a5") = f;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5) : "memory");
    return a0;
}
#elif defined(__hexagon__)
enum { READ = 63, WRITE = 64, EXIT = 94, SIGACTION = 134, SIGALTSTACK = 132, MMAP = 222, MPROTECT = 226 };
enum { REGISTERS = 6, SAVED = 12, SAVED_FLOATS = 0, PC_OFFSET = 192 };
static long call_system(long number, long a, long b, long c, long d, long e, long f) {
    register long r6 __asm__("r6") = number;
    register long r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c;
    register long r3 __asm__("r3") = d, r4 __asm__("r4") = e, r5 __asm__("r5") = f;
    __asm__ volatile("trap0(#1)" : "+r"(r0) : "r"(r6), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5) : "memory");
    return r0;
}
#endif

enum { MAY_READ = 1, MAY_WRITE = 2, MAP_FIXED_ANONYMOUS = 0x32 };
enum { SIGILL = 4, SIGTRAP = 5, SIGBUS = 7, SIGFPE = 8, SIGSEGV = 11, SA_SIGINFO = 4, SA_ONSTACK = 0x08000000 };
enum { MAX_REGIONS = 256, MAX_ARGUMENTS = 256, STACK_POINTER = 200, FLOATS = 100 };
enum status { RETURNED = 1, FAULTED, FAILED, BROKE_SAVED, BAD_READ, BAD_JOB };

/* What call.S takes and leaves: registers that a function must preserve, before and after the call. */
struct frame {
    word before[16], after[16], stack_pointer, unused;
    u64 floats_before[12], floats_after[12];
};
extern word aot_call(word function, const word *registers, word stack_pointer, struct frame *frame);

static struct {
    u64 magic, status, signal, address, pc, call, code, which, before, after, read_calls, read_nbytes;
} report = {0x314E5552544F41, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};

static struct {
    u64 late, context, file, file_nbytes, stack, stack_nbytes, guard, spans, regions, calls;
} job;

struct region {
    u64 start, nbytes, writable;
};
static struct region regions[MAX_REGIONS], spans[16];
static byte handler_stack[16384] __attribute__((aligned(16)));

static void give(const void *from, word nbytes) {
    while (nbytes) {
        long done = call_system(WRITE, 1, (long)from, (long)nbytes, 0, 0, 0);
        if (done <= 0)
            call_system(EXIT, 3, 0, 0, 0, 0, 0);
        from = (const byte *)from + done, nbytes -= (word)done;
    }
}

static void finish(enum status status) {
    report.status = status;
    give(&report, sizeof report);
    for (word i = 0; status == RETURNED && i < job.regions; i++)
        if (regions[i].writable)
            give((void *)(word)regions[i].start, (word)regions[i].nbytes);
    call_system(EXIT, 0, 0, 0, 0, 0, 0);
}

static void take(void *to, word nbytes) {
    while (nbytes) {
        long done = call_system(READ, 0, (long)to, (long)nbytes, 0, 0, 0);
        if (done <= 0)
            finish(BAD_JOB);
        to = (byte *)to + done, nbytes -= (word)done;
    }
}

static void on_signal(int signal, const byte *info, const byte *context) {
    report.signal = (u64)signal;
    report.address = *(const word *)(info + (sizeof(word) == 8 ? 16 : 12));
    report.pc = *(const word *)(context + PC_OFFSET);
    finish(FAULTED);
}

static void catch_signals(void) {
    word alternative[3] = {(word)handler_stack, 0, sizeof handler_stack};
    call_system(SIGALTSTACK, (long)alternative, 0, 0, 0, 0, 0);
    const int caught[] = {SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV};
    for (int i = 0; i < 5; i++) {
        word action[6] = {(word)on_signal, SA_SIGINFO | SA_ONSTACK, 0, 0, 0, 0};
        call_system(SIGACTION, caught[i], (long)action, 0, 8, 0, 0);
    }
}

static void fill(word at, byte value, word nbytes) {
    for (word i = 0; i < nbytes; i++)
        ((volatile byte *)at)[i] = value;
}

static void copy(word to, word from, word nbytes) {
    for (word i = 0; i < nbytes; i++)
        ((volatile byte *)to)[i] = ((const volatile byte *)from)[i];
}

/* The caller's function that reads weights. Late: what is asked for is there at the next call only, and other bytes until then. */
static word pending_to, pending_from, pending_nbytes;

int aot_read(void *context, unsigned offset, unsigned nbytes, void *to) {
    int inside = !nbytes;
    copy(pending_to, pending_from, pending_nbytes);
    pending_nbytes = 0;
    report.read_calls++, report.read_nbytes += nbytes;
    for (word i = 0; i < job.spans; i++)
        inside |= (word)to >= spans[i].start && (word)to + nbytes <= spans[i].start + spans[i].nbytes;
    if (!inside || (u64)offset + nbytes > job.file_nbytes || (((word)to | offset | nbytes) & 3) || (word)context != job.context) {
        report.address = (word)to, report.before = offset, report.after = nbytes;
        finish(BAD_READ);
    }
    if (job.late) {
        pending_to = (word)to, pending_from = (word)job.file + offset, pending_nbytes = nbytes;
        fill((word)to, 0x77, nbytes);
    } else
        copy((word)to, (word)job.file + offset, nbytes);
    return 0;
}

/* The caller's function that runs the parts of a layer, in any order: backwards. */
void aot_parallel_for(void *pool, unsigned parts, void (*body)(void *, unsigned), void *argument) {
    if ((word)pool != job.context)
        finish(BAD_JOB);
    while (parts)
        body(argument, --parts);
}

/* The counter (counter.c) starts anew here. */
__attribute__((noinline)) void aot_start(void) { __asm__ volatile("" ::: "memory"); }

static void check(const struct frame *frame, word code, word stack_pointer) {
    for (int i = 0; i < SAVED; i++)
        if (frame->before[i] != frame->after[i]) {
            report.which = (u64)i, report.before = frame->before[i], report.after = frame->after[i];
            finish(BROKE_SAVED);
        }
    for (int i = 0; i < SAVED_FLOATS; i++)
        if (frame->floats_before[i] != frame->floats_after[i]) {
            report.which = FLOATS + (u64)i, report.before = frame->floats_before[i], report.after = frame->floats_after[i];
            finish(BROKE_SAVED);
        }
    if (frame->stack_pointer != stack_pointer) {
        report.which = STACK_POINTER, report.before = stack_pointer, report.after = frame->stack_pointer;
        finish(BROKE_SAVED);
    }
    report.code = (u64)(long long)(int)code;
    if ((int)code)
        finish(FAILED);
}

/* Call a function with its arguments: the first in registers, the rest above its stack. */
static void make_call(word function, const u64 *arguments, word count) {
    static struct frame frame;
    word registers[REGISTERS] = {0};
    word stack_pointer = (word)(job.stack + job.stack_nbytes);
    for (word i = 0; i < count; i++)
        *(i < REGISTERS ? registers + i : (word *)stack_pointer + (i - REGISTERS)) = (word)arguments[i];
    for (int i = 0; i < SAVED; i++)
        frame.before[i] = 0x5AFE0000u + (word)i;
    for (int i = 0; i < SAVED_FLOATS; i++)
        frame.floats_before[i] = 0x3FF0000000000000u + (u64)i;
    word code = aot_call(function, registers, stack_pointer, &frame);
    check(&frame, code, stack_pointer);
}

static void put_region(const struct region *region) {
    word start = (word)region->start, nbytes = (word)region->nbytes;
    long got = call_system(MMAP, (long)start, (long)nbytes, MAY_READ | MAY_WRITE, MAP_FIXED_ANONYMOUS, -1, 0);
    if ((word)got != start)
        finish(BAD_JOB);
    take((void *)start, nbytes);
    if (!region->writable)
        call_system(MPROTECT, (long)start, (long)nbytes, MAY_READ, 0, 0, 0);
}

void aot_main(void) {
    static u64 arguments[MAX_ARGUMENTS];
    word started = 0;
    catch_signals();
    take(&job, sizeof job);
    if (job.regions > MAX_REGIONS || job.spans > sizeof spans / sizeof *spans)
        finish(BAD_JOB);
    take(spans, (word)job.spans * sizeof *spans);
    for (word i = 0; i < job.regions; i++) {
        take(regions + i, sizeof *regions);
        put_region(regions + i);
    }
    for (report.call = 0; report.call < job.calls; report.call++) {
        struct {
            u64 function, prepares, arguments;
            struct region rows;
        } call;
        take(&call, sizeof call);
        if (call.arguments > MAX_ARGUMENTS)
            finish(BAD_JOB);
        take(arguments, (word)call.arguments * sizeof *arguments);
        if (call.rows.nbytes) {
            call_system(MPROTECT, (long)call.rows.start, (long)call.rows.nbytes, MAY_READ | MAY_WRITE, 0, 0, 0);
            take((void *)(word)call.rows.start, (word)call.rows.nbytes);
            call_system(MPROTECT, (long)call.rows.start, (long)call.rows.nbytes, MAY_READ, 0, 0, 0);
        }
        if (!call.prepares && !started++) {
            fill((word)job.stack, (byte)job.guard, (word)job.stack_nbytes);
            aot_start();
        }
        make_call((word)call.function, arguments, (word)call.arguments);
    }
    report.before = pending_nbytes;
    finish(RETURNED);
}
