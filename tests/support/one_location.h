/* A whole conclusion put together by hand: an operator, its chain to the finding, a cause, a batch
 * made small. For tests of files. */
#ifndef FB_TESTS_SUPPORT_ONE_LOCATION_H
#define FB_TESTS_SUPPORT_ONE_LOCATION_H

#include "locate/locate_json.h"
#include "search/bisect.h"
#include "search/minimise.h"
#include "support/one_witness.h"

typedef struct one_location {
    one_witness one;
    fb_locate_config config;
    fb_locate_result result;
    fb_locate_doc doc;
    double a[4], out[4], exact[4];
    int64_t ids[3];
    uint32_t rows[2];
    uint8_t keep[8];
    const char *differences[2];
    fb_witness_place swallowed;
} one_location;

/* sqrt of -4 in element [1, 0], which a product carries to the loss. */
static inline void make_location(one_location *l, const char *folder)
{
    static const uint8_t keep[] = {1, 1, 0, 1, 0, 0, 1, 0};
    memset(l, 0, sizeof *l);
    for (int i = 0; i < 4; i++) l->a[i] = l->out[i] = l->exact[i] = 4;
    l->a[2] = -4;
    l->out[2] = l->exact[2] = a_nan();
    begin(&l->one, "sqrt", "h.2.mlp", FB_FORWARD);
    add_input(&l->one, "squares", FB_F16, l->a, 4, 2, 2, 2);
    add_output(&l->one, "root", FB_F16, l->out, 4, 2, 2, 2);
    set_exact(&l->one, l->exact);
    l->one.w.place.tensor = (char *)(uintptr_t) "root";
    l->one.w.place.label = FB_LABEL_GENERATE;
    l->one.chain[0] = l->one.w.place;
    set_place(&l->one.chain[1], "mul", "h.2.mlp", "scaled", FB_FORWARD);
    set_place(&l->one.chain[2], "mean", "loss", "cross_entropy", FB_LOSS);
    for (uint32_t i = 0; i < 3; i++) l->one.chain[i].made = 40 + i;
    for (uint32_t i = 1; i < 3; i++) {
        l->one.chain[i].reads = 39 + i;
        l->one.chain[i].label = FB_LABEL_PROPAGATE;
    }
    l->one.w.place.made = 40;
    l->one.w.finding = 42;
    l->one.w.chain = l->one.chain;
    l->one.w.chain_count = 3;
    set_place(&l->swallowed, "div", "h.0.attn", "unused", FB_FORWARD);
    l->one.w.swallowed = &l->swallowed;
    l->one.w.swallowed_count = 1;
    l->config = (fb_locate_config)FB_LOCATE_CONFIG_INIT;
    l->config.parts = FB_LOCATE_ALL;
    l->config.rank = l->config.finding_rank = 1;
    l->config.world = 4;
    l->config.finding_boundary = FB_LOSS;
    l->config.finding_kind = FB_KIND_NAN;
    l->config.finding_module = "loss";
    l->config.finding_tensor = "cross_entropy";
    l->config.folder = folder;
    l->config.precision = "fp16";
    l->config.rows = 3;
    l->config.columns = 4;
    for (int i = 0; i < 3; i++) l->ids[i] = 20416 + i;
    l->config.sample_ids = l->ids;
    l->config.step = 412;
    l->result = (fb_locate_result)FB_LOCATE_RESULT_INIT;
    l->result.found = FB_LOCATED_OPERATOR;
    l->result.owner = 1;
    l->result.persists = 1;
    l->result.reproduced = l->result.tried = 3;
    l->result.other_ranks_tried = l->result.other_ranks_bad = 3;
    l->result.replays = 9;
    l->result.search_replays = 2;
    l->result.nanoseconds = 800000000;
    l->result.rows_needed = 2;
    l->result.tokens_needed = 4;
    l->rows[0] = 0;
    l->rows[1] = 2;
    l->result.rows = l->rows;
    memcpy(l->keep, keep, sizeof keep);
    l->result.keep = l->keep;
    strcpy(l->result.sentence, "sqrt read finite numbers");
    l->differences[0] = "4 ranks became 1";
    l->differences[1] = "another \"build\"";
    l->one.facts.rows = 2;
    (void)judge(&l->one);
    l->doc =
        (fb_locate_doc){&l->config, &l->result, &l->one.w, &l->one.cause, l->differences, 2, FB_MINIMISE_MINIMAL, 17, "no note"};
}

#endif
