#include "ckpt/torch_facts.h"

#include <string.h>

enum { STEP, SCALE, OVERFLOW, PARTITIONS, ZERO_STAGE };

static const char *const fact_names[FB_TORCH_FACTS] = {FB_CKPT_FACT_STEP, FB_CKPT_FACT_SCALE, FB_CKPT_FACT_OVERFLOW,
                                                       FB_CKPT_FACT_PARTITIONS, FB_CKPT_FACT_ZERO_STAGE};

/*
 * Lower ranks win over higher ones, then lesser depth. depth_max: a key of this name further down means something else: the step of
 * an optimizer is not that of the run, since skipped updates are not counted in it.
 */
static const struct row {
    const char *key;
    int fact;
    uint32_t rank, depth_max;
} rows[] = {
    {"iteration", STEP, 0, 1},        {"global_step", STEP, 0, 1},
    {"global_steps", STEP, 0, 1},     {"iter_num", STEP, 0, 1},
    {"num_updates", STEP, 0, 2},      {"step", STEP, 1, 0},
    {"loss_scale", SCALE, 0, 4},      {"cur_scale", SCALE, 0, 4},
    {"overflow", OVERFLOW, 0, 3},     {"partition_count", PARTITIONS, 0, 3},
    {"zero_stage", ZERO_STAGE, 0, 3},
};

/* Value of a double below 2^53 from its bits, without asking the number what it is. */
static int finite_value(uint64_t bits, double *value)
{
    if ((bits >> 52 & 0x7ff) == 0x7ff) return 0;
    memcpy(value, &bits, sizeof *value);
    return 1;
}

/* A number, a list of numbers (the largest), or an enum made from one. */
static int value_of(const fb_pickle *p, fb_node node, double *value)
{
    double each;
    int32_t kind = fb_pickle_kind(p, node);
    uint64_t n = fb_pickle_children(p, node);
    int known = 0;
    if (kind == FB_PICKLE_CALL) node = fb_pickle_child(p, fb_pickle_child(p, node, 1), 0), kind = fb_pickle_kind(p, node);
    if (kind == FB_PICKLE_INT || kind == FB_PICKLE_BOOL) {
        *value = (double)fb_pickle_int(p, node);
        return 1;
    }
    if (kind == FB_PICKLE_FLOAT) return finite_value(fb_pickle_float_bits(p, node), value);
    if (kind != FB_PICKLE_LIST) return 0;
    for (uint64_t i = 0; i < n && i < 1024; i++) {
        fb_node item = fb_pickle_child(p, node, i);
        if (fb_pickle_kind(p, item) != FB_PICKLE_INT) continue;
        each = (double)fb_pickle_int(p, item);
        if (!known || each > *value) *value = each;
        known = 1;
    }
    return known;
}

static void take(const fb_pickle *p, fb_node node, int fact, uint32_t rank, uint32_t depth, fb_torch_facts *facts)
{
    double value;
    if (facts->of[fact].known && (facts->of[fact].rank < rank || (facts->of[fact].rank == rank && facts->of[fact].depth <= depth)))
        return;
    if (!value_of(p, node, &value)) return;
    facts->of[fact].known = 1;
    facts->of[fact].rank = rank;
    facts->of[fact].depth = depth;
    facts->of[fact].value = value;
}

static int is(const char *text, uint64_t bytes, const char *key)
{
    return strlen(key) == bytes && memcmp(text, key, (size_t)bytes) == 0;
}

static void look_at_key(const fb_pickle *p, const char *text, uint64_t bytes, fb_node value, uint32_t depth, fb_torch_facts *facts,
                        fb_torch_keys *keys)
{
    if (bytes > 16) return;
    if (is(text, bytes, "state")) keys->state = value;
    if (is(text, bytes, "param_groups")) keys->groups = value;
    if (is(text, bytes, "params")) keys->params = value;
    if (is(text, bytes, "growth_factor")) keys->growth_factor = value;
    if (is(text, bytes, "scale")) keys->scale = value;
    if (depth > 4) return;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (depth <= rows[i].depth_max && is(text, bytes, rows[i].key)) take(p, value, rows[i].fact, rows[i].rank, depth, facts);
    }
}

void fb_torch_look_at_keys(const fb_pickle *pickle, fb_node dict, uint32_t depth, fb_torch_facts *facts, fb_torch_keys *keys)
{
    uint64_t n = fb_pickle_children(pickle, dict), bytes;
    memset(keys, 0, sizeof *keys);
    for (uint64_t i = 0; i + 1 < n; i += 2) {
        fb_node key = fb_pickle_child(pickle, dict, i);
        const char *text;
        if (fb_pickle_kind(pickle, key) != FB_PICKLE_TEXT) continue;
        text = fb_pickle_text(pickle, key, &bytes);
        look_at_key(pickle, text, bytes, fb_pickle_child(pickle, dict, i + 1), depth, facts, keys);
    }
    if (keys->growth_factor && keys->scale) take(pickle, keys->scale, SCALE, 0, depth, facts);
}

fb_status fb_torch_tell_facts(fb_torch_object *object, const fb_torch_facts *facts, fb_error *err)
{
    for (int i = 0; i < FB_TORCH_FACTS; i++) {
        uint32_t name = 0;
        fb_status status;
        if (!facts->of[i].known) continue;
        if ((status = fb_torch_keep(object, fact_names[i], strlen(fact_names[i]), &name, err)) != FB_OK) return status;
        status = fb_torch_remark_add(object, FB_CKPT_REMARK_FACT, name, facts->of[i].value, err, "as the file says");
        if (status != FB_OK) return status;
    }
    return FB_OK;
}

static int word_is_strict(const char *text, uint64_t bytes)
{
    static const char *const strict[] = {
        "param_groups",
        "optimizer",
        "optimizers",
        "optimizer_state_dict",
        "optimizer_states",
        "optim",
        "scaler",
        "grad_scaler",
        "loss_scaler",
        "lr",
        "_last_lr",
        "base_lrs",
        "scale",
        "cur_scale",
        "loss_scale",
        "eps",
        "betas",
        "momentum",
        "weight_decay",
        "dampening",
        "initial_lr",
        "lr_lambdas",
        "gamma",
        /* What a trainer tells of its last step: infinite, that step was bad. A best or an average of
         * them may wait for its first. */
        "learning_rate",
        "loss",
        "train_loss",
        "training_loss",
        "grad_norm",
        "total_norm",
    };
    for (size_t i = 0; i < sizeof strict / sizeof strict[0]; i++) {
        if (is(text, bytes, strict[i])) return 1;
    }
    return 0;
}

int fb_torch_key_is_strict(const fb_pickle *pickle, fb_node key)
{
    uint64_t bytes;
    const char *text;
    if (fb_pickle_kind(pickle, key) != FB_PICKLE_TEXT) return 0;
    text = fb_pickle_text(pickle, key, &bytes);
    return word_is_strict(text, bytes);
}

int fb_torch_path_is_strict(const char *path)
{
    for (const char *end; *path; path = *end ? end + 1 : end) {
        end = path + strcspn(path, ".");
        if (word_is_strict(path, (uint64_t)(end - path))) return 1;
    }
    return 0;
}
