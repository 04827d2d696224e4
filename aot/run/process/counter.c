/* A plugin of QEMU's user mode: counts the instructions of a bundle's code, function by function.
 *
 * Arguments: ranges (a file of lines "first end owner", in order: hexadecimal addresses, and the counter that the code between them
 * counts for; 0: that of the code which called it), out (a file for the counters), start (the address that sets them to 0), limit
 * (instructions after which the process ends), version of the interface.
 * What is used of QEMU's plugin interface (version 1 and later) is declared here, as Debian has no header of it.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*on_translation)(plugin_id, struct qemu_plugin_tb *);
typedef void (*on_execution)(unsigned vcpu, void *data);
typedef void (*on_end)(plugin_id, void *data);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, on_translation);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, on_execution, int flags, void *data);
void qemu_plugin_register_atexit_cb(plugin_id, on_end, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);

#ifndef PLUGIN_VERSION
#define PLUGIN_VERSION 1
#endif
#define EXPORTED __attribute__((visibility("default")))
EXPORTED int qemu_plugin_version = PLUGIN_VERSION;

enum { MAX_RANGES = 65536, HUNG = 98 };

struct range {
    uint64_t first, end;
    unsigned owner;
};
/* A translated block: whose instructions these are, and how many. */
struct block {
    unsigned owner, count;
    uint64_t address;
};

static struct range ranges[MAX_RANGES];
static uint64_t counters[MAX_RANGES], total, limit = UINT64_MAX, start;
static size_t range_count, last_owner;
static unsigned current;
static const char *out_path = "/dev/null";

static void write_counters(uint64_t stopped_at) {
    FILE *out = fopen(out_path, "w");
    if (!out)
        return;
    fprintf(out, "%" PRIx64 "\n", stopped_at);
    for (size_t i = 0; i <= last_owner; i++)
        fprintf(out, "%" PRIu64 "\n", counters[i]);
    fclose(out);
}

static void at_exit(plugin_id id, void *data) {
    (void)id, (void)data;
    write_counters(0);
}

static void at_start(unsigned vcpu, void *data) {
    (void)vcpu, (void)data;
    memset(counters, 0, sizeof counters);
    current = 0, total = 0;
}

static void count(unsigned vcpu, void *data) {
    const struct block *block = data;
    (void)vcpu;
    current = block->owner ? block->owner : current;
    counters[current] += block->count;
    total += block->count;
    if (total > limit) {
        write_counters(block->address);
        _exit(HUNG);
    }
}

/* The range that holds an address, if one does. */
static const struct range *range_of(uint64_t address) {
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < range_count && ranges[low].first <= address ? ranges + low : NULL;
}

static void on_block(plugin_id id, struct qemu_plugin_tb *translated) {
    uint64_t address = qemu_plugin_tb_vaddr(translated);
    const struct range *range = range_of(address);
    (void)id;
    if (address == start)
        qemu_plugin_register_vcpu_tb_exec_cb(translated, at_start, 0, NULL);
    if (range) {
        struct block *block = malloc(sizeof *block);
        if (!block)
            abort();
        block->owner = range->owner, block->count = (unsigned)qemu_plugin_tb_n_insns(translated), block->address = address;
        qemu_plugin_register_vcpu_tb_exec_cb(translated, count, 0, block);
    }
}

static int read_ranges(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    struct range *next = ranges;
    while (range_count < MAX_RANGES && fscanf(file, "%" SCNx64 " %" SCNx64 " %u", &next->first, &next->end, &next->owner) == 3) {
        last_owner = next->owner > last_owner ? next->owner : last_owner;
        next++, range_count++;
    }
    fclose(file);
    return last_owner < MAX_RANGES;
}

EXPORTED int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    (void)info;
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            return 1;
        *value++ = 0;
        if (!strcmp(argv[i], "out"))
            out_path = strdup(value);
        else if (!strcmp(argv[i], "start"))
            start = strtoull(value, NULL, 16);
        else if (!strcmp(argv[i], "limit"))
            limit = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "ranges") || !read_ranges(value))
            return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
