#include "ckpt/order.h"

static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t kept = *a;
    *a = *b;
    *b = kept;
}

/* Let the element at `at` sink to its place in the heap order[0 .. count), whose largest is first. */
static void sink(uint32_t *order, uint64_t at, uint64_t count, fb_ckpt_compare compare, const void *ctx)
{
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child >= count) return;
        if (child + 1 < count && compare(ctx, order[child], order[child + 1]) < 0) child++;
        if (compare(ctx, order[at], order[child]) >= 0) return;
        swap(&order[at], &order[child]);
        at = child;
    }
}

static int sorted(const uint32_t *order, uint64_t count, fb_ckpt_compare compare, const void *ctx)
{
    for (uint64_t i = 1; i < count; i++) {
        if (compare(ctx, order[i - 1], order[i]) > 0) return 0;
    }
    return 1;
}

void fb_ckpt_sort(uint32_t *order, uint64_t count, fb_ckpt_compare compare, const void *ctx)
{
    if (count < 2 || sorted(order, count, compare, ctx)) return;
    for (uint64_t i = count / 2; i-- > 0;) sink(order, i, count, compare, ctx);
    for (uint64_t end = count - 1; end > 0; end--) {
        swap(&order[0], &order[end]);
        sink(order, 0, end, compare, ctx);
    }
}
