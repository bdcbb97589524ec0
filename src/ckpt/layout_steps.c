/*
 * Shards of one thing must be of one step: a shard that was left from another save is finite and wrong. Shards are files whose
 * names differ in the numbers of ranks alone. Compared is one and the same number in each of them, found behind the same keys; a
 * step of an optimizer and one of the training are different numbers, since steps may be skipped.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/layout.h"
#include "ckpt/order.h"
#include "ckpt/peek.h"
#include "ckpt/rank_name.h"

enum { KEYS_MAX = 4 };

/* Where steps stand in files of torch.save, by whoever writes them. */
static const char *const step_keys[][KEYS_MAX] = {
    {"step", NULL},
    {"steps", NULL},
    {"global_step", NULL},
    {"global_steps", NULL},
    {"iteration", NULL},
    {"iter", NULL},
    {"iter_num", NULL},
    {"num_updates", NULL},
    {"last_epoch", NULL},
    {"train_state", "step", NULL},
    {"extra_state", "num_updates", NULL},
    {"trainer", "step", NULL},
};
/* And where optimizers stand. */
static const char *const optimizer_keys[][KEYS_MAX] = {
    {NULL},
    {"optimizer", NULL},
    {"optim", NULL},
    {"optimizer_state_dict", NULL},
    {"optimizer_states", "0", NULL},
    {"optimizer_state_dict", "base_optimizer_state", NULL},
    {"optimizer_state_dict", "optimizer_state_dict", NULL},
    {"optimizer", "optimizer", NULL},
};
enum {
    STEP_KEYS = sizeof step_keys / sizeof step_keys[0],
    OPTIMIZER_KEYS = sizeof optimizer_keys / sizeof optimizer_keys[0],
    FACTS = STEP_KEYS + OPTIMIZER_KEYS + 1, /* the last one: what a reader remarked */
    FACT_REMARKED = FACTS - 1
};

typedef struct shard {
    const char *family;
    const fb_tree_file *file;
} shard;

/* The first value of each fact in the family in work, and who has it. */
typedef struct seen {
    int64_t value[FACTS];
    const fb_tree_file *file[FACTS];
    const fb_tree_file *told; /* a disagreement was told: one sentence for a family is enough */
} seen;

typedef struct fb_steps {
    shard *shards; /* sorted by family */
    uint64_t count;
    uint32_t *order;
    char remarked_family[FB_OS_PATH_MAX];
    seen remarked;
    /* Files of a distributed checkpoint: the one in work, and the first one whose steps are all the same. */
    const fb_tree_file *slices_of, *uniform;
    int64_t slices_step, uniform_step;
    int32_t slices_differ, told;
    int64_t fallback; /* a step that a reader remarked, for the summary; -1: none, -2: several */
} steps;

static void release(void *what)
{
    steps *s = what;
    fb_free(s->shards);
    fb_free(s->order);
    fb_free(s);
}

/* ---- comparing -------------------------------------------------------------------------------------------------------------- */

static void key_text(int fact, char *text, size_t bytes)
{
    const char *const *keys = fact < STEP_KEYS ? step_keys[fact] : optimizer_keys[fact < FACT_REMARKED ? fact - STEP_KEYS : 0];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < KEYS_MAX && keys[i]; i++) {
        int n = snprintf(text + used, bytes - used, "%s%s", used ? "." : "", keys[i]);
        if (n > 0 && (size_t)n < bytes - used) used += (size_t)n;
    }
    if (fact >= STEP_KEYS && fact < FACT_REMARKED) (void)snprintf(text + used, bytes - used, "%sstate.*.step", used ? "." : "");
    if (fact == FACT_REMARKED) (void)snprintf(text, bytes, "step");
}

static void take_fact(fb_folder *f, seen *s, const fb_tree_file *file, int fact, int64_t value)
{
    char key[128];
    if (!s->file[fact]) {
        s->file[fact] = file;
        s->value[fact] = value;
        return;
    }
    if (s->value[fact] == value || s->told) return;
    s->told = file;
    key_text(fact, key, sizeof key);
    fb_folder_unreadable(f, "the shards are of different steps: %.200s is of step %lld and %.200s of step %lld (by %s)",
                         s->file[fact]->name, (long long)s->value[fact], file->name, (long long)value, key);
}

static fb_status look_into(fb_folder *f, const fb_tree_file *file, seen *s, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_peek p;
    int64_t value;
    fb_status status = fb_folder_path(f, file->name, path, err);
    if (status == FB_OK) status = fb_peek_open(&p, f->scan, path, err);
    if (status == FB_E_NOTFOUND) return FB_OK;
    if (status != FB_OK) return status;
    for (int i = 0; i < STEP_KEYS; i++) {
        if (fb_peek_number(&p, fb_peek_get(&p, fb_pickle_root(p.pickle), step_keys[i]), &value)) take_fact(f, s, file, i, value);
    }
    for (int i = 0; i < OPTIMIZER_KEYS; i++) {
        fb_node optimizer = fb_peek_get(&p, fb_pickle_root(p.pickle), optimizer_keys[i]);
        if (fb_peek_optimizer_step(&p, optimizer, &value)) take_fact(f, s, file, STEP_KEYS + i, value);
    }
    fb_peek_close(&p);
    return FB_OK;
}

/* ---- families --------------------------------------------------------------------------------------------------------------- */

static int by_family(const void *ctx, uint32_t a, uint32_t b)
{
    const steps *s = ctx;
    int order = strcmp(s->shards[a].family, s->shards[b].family);
    return order != 0 ? order : strcmp(s->shards[a].file->name, s->shards[b].file->name);
}

static int may_hold_steps(const fb_folder *f, const fb_tree_file *file)
{
    static const char *const patterns[] = {"*.pt", "*.pth", "*.bin", "*.ckpt"};
    const fb_folder_plan *plan = &f->plans[file - f->tree.files];
    if (file->kind != FB_OS_FILE || plan->take > FB_TAKE_AS || plan->reader == &fb_ckpt_distcp) return 0;
    if (fb_ckpt_name_fits("*rng_state*", file->base)) return 0;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        if (fb_ckpt_name_fits(patterns[i], file->base)) return 1;
    }
    return 0;
}

static fb_status find_families(fb_folder *f, steps *s, fb_error *err)
{
    char family[FB_OS_PATH_MAX];
    s->shards = fb_calloc((size_t)f->tree.count + 1, sizeof *s->shards);
    s->order = fb_calloc((size_t)f->tree.count + 1, sizeof *s->order);
    if (!s->shards || !s->order) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory", f->tree.path);
    for (uint64_t i = 0; i < f->tree.count; i++) {
        const fb_tree_file *file = &f->tree.files[i];
        if (!may_hold_steps(f, file) || !fb_rank_family(file->name, family, sizeof family)) continue;
        s->shards[s->count].family = fb_pool_text(&f->pool, family, strlen(family));
        if (!s->shards[s->count].family) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory", f->tree.path);
        s->shards[s->count].file = file;
        s->order[s->count] = (uint32_t)s->count;
        s->count++;
    }
    fb_ckpt_sort(s->order, s->count, by_family, s);
    return FB_OK;
}

static int same_family(const steps *s, uint64_t a, uint64_t b)
{
    return a < s->count && b < s->count && strcmp(s->shards[s->order[a]].family, s->shards[s->order[b]].family) == 0;
}

/*
 * The steps of all parameters that have their state in one file of a distributed checkpoint. Parameters may have made different
 * numbers of updates (experts, layers that were frozen for a while); two files that are each of one step throughout, and not of the
 * same, are of two saves.
 */
static void end_slices(fb_folder *f)
{
    steps *s = f->steps;
    const fb_tree_file *file = s->slices_of;
    s->slices_of = NULL;
    if (!file || s->slices_differ) return;
    if (!s->uniform || s->uniform->dir != file->dir) {
        s->uniform = file;
        s->uniform_step = s->slices_step;
        s->told = 0;
    } else if (s->uniform_step != s->slices_step && !s->told) {
        s->told = 1;
        fb_folder_unreadable(f, "the shards are of different steps: %.200s is of step %lld and %.200s of step %lld",
                             s->uniform->name, (long long)s->uniform_step, file->name, (long long)s->slices_step);
    }
}

static void take_slices(fb_folder *f, int64_t step)
{
    steps *s = f->steps;
    if (s->slices_of != f->now) {
        end_slices(f);
        s->slices_of = f->now;
        s->slices_step = step;
        s->slices_differ = 0;
    } else if (s->slices_step != step) {
        s->slices_differ = 1;
    }
}

/* ---- what readers remark ---------------------------------------------------------------------------------------------------- */

static void take_remarked(void *ctx, const char *path, const char *name, double value)
{
    fb_folder *f = ctx;
    steps *s = f->steps;
    char family[FB_OS_PATH_MAX];
    int64_t step;
    (void)path;
    if (strcmp(name, FB_CKPT_FACT_STEP) != 0 || !(value >= 0 && value <= 9007199254740992.0)) return;
    step = (int64_t)value;
    if (s->fallback == -1) s->fallback = step;
    else if (s->fallback != step) s->fallback = -2;
    if (f->now && f->plans[f->now - f->tree.files].reader == &fb_ckpt_distcp) take_slices(f, step);
    /* In a torch file it may be one of several; those were looked for by their keys. */
    if (!f->now || !fb_ckpt_name_fits("*.safetensors", f->now->base) || !fb_rank_family(f->now->name, family, sizeof family))
        return;
    if (strcmp(family, s->remarked_family) != 0) {
        memset(&s->remarked, 0, sizeof s->remarked);
        memcpy(s->remarked_family, family, strlen(family) + 1);
    }
    take_fact(f, &s->remarked, f->now, FACT_REMARKED, step);
}

fb_status fb_layout_steps(fb_folder *f, fb_error *err)
{
    steps *s = fb_calloc(1, sizeof *s);
    fb_status status;
    if (!s) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory", f->tree.path);
    if ((status = fb_folder_keep(f, s, release, err)) != FB_OK) return status;
    f->steps = s;
    s->fallback = -1;
    if ((status = find_families(f, s, err)) != FB_OK) return status;
    for (uint64_t i = 0; i < s->count;) {
        seen family;
        uint64_t end = i + 1;
        while (same_family(s, i, end)) end++;
        memset(&family, 0, sizeof family);
        for (int alone = end - i == 1; !alone && i < end; i++) {
            if ((status = look_into(f, s->shards[s->order[i]].file, &family, err)) != FB_OK) return status;
        }
        i = end;
    }
    f->scan->on_fact = take_remarked;
    f->scan->on_fact_ctx = f;
    return FB_OK;
}

void fb_layout_steps_end(fb_folder *f)
{
    end_slices(f);
    if (f->scan->summary->step < 0 && !f->step_unclear && f->steps->fallback >= 0) f->scan->summary->step = f->steps->fallback;
}
