/* Integer routines that the compiler calls and Debian's libgcc for Xtensa leaves to a chip's ROM: products of 64 bits, quotients. */
typedef unsigned u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

u64 __muldi3(u64 a, u64 b);
u32 __udivsi3(u32 a, u32 b);
u32 __umodsi3(u32 a, u32 b);
i32 __divsi3(i32 a, i32 b);
i32 __modsi3(i32 a, i32 b);
u64 __udivdi3(u64 a, u64 b);
u64 __umoddi3(u64 a, u64 b);
i64 __divdi3(i64 a, i64 b);
i64 __moddi3(i64 a, i64 b);

/* The 64 bits of a product of 32-bit numbers, of four products of 16-bit ones. */
static u64 wide_product(u32 a, u32 b) {
    const u32 low = (a & 0xffffu) * (b & 0xffffu), high = (a >> 16) * (b >> 16);
    const u32 first = (a >> 16) * (b & 0xffffu), second = (a & 0xffffu) * (b >> 16);
    const u32 middle = (low >> 16) + (first & 0xffffu) + (second & 0xffffu);
    return ((u64)(high + (first >> 16) + (second >> 16) + (middle >> 16)) << 32) | ((middle << 16) | (low & 0xffffu));
}

u64 __muldi3(u64 a, u64 b) {
    const u32 cross = (u32)(a >> 32) * (u32)b + (u32)a * (u32)(b >> 32);
    return wide_product((u32)a, (u32)b) + ((u64)cross << 32);
}

/* Bit by bit: the quotient; `rest` gets the remainder. */
static u32 divided(u32 a, u32 b, u32 *rest) {
    u32 quotient = 0, left = 0;
    for (int bit = 31; bit >= 0; bit--) {
        const u32 carry = left >> 31;
        left = (left << 1) | ((a >> bit) & 1u);
        if (carry || left >= b) {
            left -= b;
            quotient |= 1u << bit;
        }
    }
    *rest = left;
    return quotient;
}

static u64 divided_wide(u64 a, u64 b, u64 *rest) {
    u64 quotient = 0, left = 0;
    for (int bit = 63; bit >= 0; bit--) {
        const u64 carry = left >> 63;
        left = (left << 1) | ((a >> bit) & 1u);
        if (carry || left >= b) {
            left -= b;
            quotient |= (u64)1 << bit;
        }
    }
    *rest = left;
    return quotient;
}

u32 __udivsi3(u32 a, u32 b) {
    u32 rest;
    return divided(a, b, &rest);
}

u32 __umodsi3(u32 a, u32 b) {
    u32 rest;
    (void)divided(a, b, &rest);
    return rest;
}

static u32 size(i32 a) {
    return a < 0 ? 0u - (u32)a : (u32)a;
}

static u64 size_wide(i64 a) {
    return a < 0 ? 0u - (u64)a : (u64)a;
}

i32 __divsi3(i32 a, i32 b) {
    const u32 quotient = __udivsi3(size(a), size(b));
    return (i32)((a < 0) != (b < 0) ? 0u - quotient : quotient);
}

i32 __modsi3(i32 a, i32 b) {
    const u32 rest = __umodsi3(size(a), size(b));
    return (i32)(a < 0 ? 0u - rest : rest);
}

u64 __udivdi3(u64 a, u64 b) {
    u64 rest;
    return divided_wide(a, b, &rest);
}

u64 __umoddi3(u64 a, u64 b) {
    u64 rest;
    (void)divided_wide(a, b, &rest);
    return rest;
}

i64 __divdi3(i64 a, i64 b) {
    const u64 quotient = __udivdi3(size_wide(a), size_wide(b));
    return (i64)((a < 0) != (b < 0) ? 0u - quotient : quotient);
}

i64 __moddi3(i64 a, i64 b) {
    const u64 rest = __umoddi3(size_wide(a), size_wide(b));
    return (i64)(a < 0 ? 0u - rest : rest);
}
