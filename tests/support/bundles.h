/* A bundle of two ranks out of three, for the tests of bundles. */
#ifndef FB_TESTS_SUPPORT_BUNDLES_H
#define FB_TESTS_SUPPORT_BUNDLES_H

#include <string.h>

#include "bundle/inside.h"

static const int32_t bundles_tokens[6] = {5, 6, 7, 8, 9, 10};
static const int64_t bundles_ids[2] = {20417, 3};
static const uint32_t bundles_weights[4] = {0x3f800000u, 0x7fc00001u, 0xff800000u, 0x80000000u};
static const uint16_t bundles_half[3] = {0x3c00, 0x7c00, 0x0001};
static const uint64_t bundles_rng[2] = {UINT64_MAX, 1};

static inline fb_bundle_config bundles_config(const char *folder, int32_t rank)
{
    fb_bundle_config config = FB_BUNDLE_CONFIG_INIT;
    config.rank = rank;
    config.world = 3;
    config.folder = folder;
    config.run_id = "run-1";
    config.case_id = "a1-000412";
    config.step = 412;
    return config;
}

/* Everything of one rank; the first status that is not FB_OK. The writer is finished or abandoned. */
static inline fb_status bundles_write(const fb_os *os, const char *folder, int32_t rank, fb_error *err)
{
    static const int64_t two_by_three[] = {2, 3}, two[] = {2}, four[] = {4}, three[] = {3}, none[] = {0};
    static const char *const argv[] = {"firstbad-gpt", "--steps", "500", "a \"quoted\" word", NULL};
    fb_bundle_config config = bundles_config(folder, rank);
    fb_bundle_writer *writer = NULL;
    fb_status status = fb_bundle_create_on(os, &writer, &config, err);
#define BUNDLES_DO(call) \
    if (status == FB_OK) status = (call)
    BUNDLES_DO(fb_bundle_put(writer, FB_BUNDLE_BATCH, "tokens", FB_I32, 2, two_by_three, bundles_tokens, err));
    BUNDLES_DO(fb_bundle_put(writer, FB_BUNDLE_BATCH, "sample_ids", FB_I64, 1, two, bundles_ids, err));
    BUNDLES_DO(fb_bundle_put(writer, FB_BUNDLE_BATCH, "nothing", FB_F32, 1, none, NULL, err));
    BUNDLES_DO(fb_bundle_put(writer, FB_BUNDLE_RNG, "stream", FB_U64, 1, two, bundles_rng, err));
    BUNDLES_DO(fb_bundle_put(writer, FB_BUNDLE_STATE, "w", FB_F32, 1, four, bundles_weights, err));
    BUNDLES_DO(fb_bundle_put(writer, FB_BUNDLE_STATE, "h", FB_F16, 1, three, bundles_half, err));
    BUNDLES_DO(fb_bundle_put(writer, FB_BUNDLE_STATE, "one", FB_F32, 0, NULL, bundles_weights, err));
    BUNDLES_DO(fb_bundle_set_integer(writer, "micro_step", 2, err));
    BUNDLES_DO(fb_bundle_set_number(writer, "loss_scale", 65536.0, err));
    BUNDLES_DO(fb_bundle_set_text(writer, "precision", "fp16", err));
    BUNDLES_DO(fb_bundle_set_parent(writer, "ckpt/step-000400", 400, 0, err));
    BUNDLES_DO(fb_bundle_set_command(writer, argv, "/job", err));
    if (status == FB_OK) return fb_bundle_finish(writer, err);
    fb_bundle_abandon(writer);
    return status;
#undef BUNDLES_DO
}

/* Ranks 0 and 2 of 3, sealed. */
static inline fb_status bundles_make(const fb_os *os, const char *folder, fb_error *err)
{
    fb_status status = bundles_write(os, folder, 0, err);
    if (status == FB_OK) status = bundles_write(os, folder, 2, err);
    if (status == FB_OK) status = fb_bundle_seal_on(os, folder, 3, err);
    return status;
}

/* 1: everything that bundles_write put in comes out, of both ranks. */
static inline int bundles_whole(const fb_bundle *bundle)
{
    for (int32_t rank = 0; rank < 3; rank += 2) {
        int32_t tokens[6];
        uint32_t weights[4];
        uint16_t half[3];
        uint64_t stream[2];
        int64_t micro = 0;
        double scale = 0;
        const char *precision = fb_bundle_text(bundle, rank, "precision");
        if (fb_bundle_get(bundle, rank, FB_BUNDLE_BATCH, "tokens", FB_I32, 6, tokens, NULL) != FB_OK) return 0;
        if (fb_bundle_get(bundle, rank, FB_BUNDLE_STATE, "w", FB_F32, 4, weights, NULL) != FB_OK) return 0;
        if (fb_bundle_get(bundle, rank, FB_BUNDLE_STATE, "h", FB_F16, 3, half, NULL) != FB_OK) return 0;
        if (fb_bundle_get(bundle, rank, FB_BUNDLE_RNG, "stream", FB_U64, 2, stream, NULL) != FB_OK) return 0;
        if (fb_bundle_get(bundle, rank, FB_BUNDLE_BATCH, "nothing", FB_F32, 0, NULL, NULL) != FB_OK) return 0;
        if (fb_bundle_integer(bundle, rank, "micro_step", &micro, NULL) != FB_OK || micro != 2) return 0;
        if (fb_bundle_number(bundle, rank, "loss_scale", &scale, NULL) != FB_OK || !(scale >= 65536.0 && scale <= 65536.0))
            return 0;
        if (!precision || strcmp(precision, "fp16") != 0) return 0;
        if (memcmp(tokens, bundles_tokens, sizeof tokens) != 0 || memcmp(weights, bundles_weights, sizeof weights) != 0 ||
            memcmp(half, bundles_half, sizeof half) != 0 || memcmp(stream, bundles_rng, sizeof stream) != 0)
            return 0;
    }
    return fb_bundle_step(bundle) == 412 && fb_bundle_world(bundle) == 3;
}

#endif
