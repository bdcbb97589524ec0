/*
 * What the Trainer of transformers, accelerate and FSDP write beside each other: model, optimizer.pt, scheduler.pt,
 * trainer_state.json, files numbered by rank. Each is read by its own format; here is what they say of each other.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "ckpt/layout.h"
#include "ckpt/peek.h"
#include "ckpt/rank_name.h"

static const uint64_t STATE_BYTES_MAX = 256u << 20; /* it keeps the whole history of the run */

/* ---- the Trainer ------------------------------------------------------------------------------------------------------------ */

/* "global_step" of trainer_state.json; -1: none, or the file is broken. */
static int64_t global_step(const uint8_t *data, uint64_t bytes, int *broken)
{
    fb_json_reader json;
    fb_json_token token;
    int64_t step = -1;
    *broken = 1;
    fb_json_read(&json, data, (size_t)bytes);
    if (fb_json_next(&json, &token, NULL) != FB_OK || token.type != FB_JSON_OBJECT) return -1;
    for (;;) {
        if (fb_json_next(&json, &token, NULL) != FB_OK) return -1;
        if (token.type != FB_JSON_KEY) break;
        if (!fb_json_is(&token, "global_step")) {
            if (fb_json_skip(&json, NULL) != FB_OK) return -1;
            continue;
        }
        if (fb_json_next(&json, &token, NULL) != FB_OK || token.type != FB_JSON_INT) return -1;
        step = token.i;
    }
    *broken = 0;
    return step;
}

/* The last bytes that are no blank: a JSON object that was written to its end closes. */
static int is_cut_off(const uint8_t *data, uint64_t bytes)
{
    while (bytes > 0 && (data[bytes - 1] == '\n' || data[bytes - 1] == '\r' || data[bytes - 1] == ' ')) bytes--;
    return bytes == 0 || data[bytes - 1] != '}';
}

typedef struct facts {
    int64_t trainer, scheduler, optimizer; /* -1: not known */
} facts;

static fb_status look_at_scheduler(fb_folder *f, uint32_t dir, facts *x, fb_error *err)
{
    static const char *const last_epoch[] = {"last_epoch", NULL}, *const plateau[] = {"num_bad_epochs", NULL};
    const fb_tree_file *file = fb_tree_find(&f->tree, dir, "scheduler.pt");
    char path[FB_OS_PATH_MAX];
    fb_peek p;
    fb_node root;
    fb_status status;
    if (!file || file->kind != FB_OS_FILE) return FB_OK;
    if ((status = fb_folder_path(f, file->name, path, err)) != FB_OK) return status;
    status = fb_peek_open(&p, f->scan, path, err);
    if (status != FB_OK) return status == FB_E_NOTFOUND ? FB_OK : status;
    root = fb_pickle_root(p.pickle);
    /* ReduceLROnPlateau counts evaluations under the same name. */
    if (!fb_peek_get(&p, root, plateau) && !fb_peek_number(&p, fb_peek_get(&p, root, last_epoch), &x->scheduler)) x->scheduler = -1;
    fb_peek_close(&p);
    return FB_OK;
}

static fb_status look_at_optimizer(fb_folder *f, uint32_t dir, facts *x, fb_error *err)
{
    const fb_tree_file *file = fb_tree_find(&f->tree, dir, "optimizer.pt");
    char path[FB_OS_PATH_MAX];
    fb_peek p;
    fb_status status;
    if (!file || file->kind != FB_OS_FILE) return FB_OK;
    if ((status = fb_folder_path(f, file->name, path, err)) != FB_OK) return status;
    status = fb_peek_open(&p, f->scan, path, err);
    if (status != FB_OK) return status == FB_E_NOTFOUND ? FB_OK : status;
    if (!fb_peek_optimizer_step(&p, fb_pickle_root(p.pickle), &x->optimizer)) x->optimizer = -1;
    fb_peek_close(&p);
    return FB_OK;
}

/*
 * The Trainer moves the scheduler exactly when the optimizer made a step, so both counts are equal, also when steps were skipped.
 * The step of the trainer counts skipped ones too, and goes on where somebody resumed without optimizer.pt: a difference is only
 * told.
 * A scheduler that is moved once for each process (accelerate) has a multiple of the optimizer's count.
 */
static void compare(fb_folder *f, uint32_t dir, const fb_tree_file *state, const facts *x)
{
    const char *shown = f->tree.dirs[dir].name;
    const char *slash = *shown ? "/" : "";
    uint64_t named;
    int multiple = x->optimizer > 0 && x->scheduler % x->optimizer == 0 && x->scheduler != x->trainer;
    if (x->trainer >= 0 && fb_rank_name("checkpoint-#", fb_tree_dir_base(&f->tree, dir), &named) && (int64_t)named != x->trainer) {
        fb_folder_unreadable(f, "%.300s is of step %lld, and its folder of step %llu", state->name, (long long)x->trainer,
                             (unsigned long long)named);
    }
    if (x->scheduler >= 0 && x->optimizer >= 0 && x->scheduler != x->optimizer && !multiple) {
        fb_folder_unreadable(
            f, "%.200s%soptimizer.pt is of step %lld and %.200s%sscheduler.pt of step %lld: they are of different saves", shown,
            slash, (long long)x->optimizer, shown, slash, (long long)x->scheduler);
    } else if (x->trainer >= 0 && x->optimizer >= 0 && x->optimizer != x->trainer) {
        fb_folder_note(f, state->name, "it is of step %lld, and optimizer.pt made %lld updates", (long long)x->trainer,
                       (long long)x->optimizer);
    }
}

static fb_status take_trainer(fb_folder *f, uint32_t dir, fb_error *err)
{
    const fb_tree_file *file = fb_tree_find(&f->tree, dir, "trainer_state.json");
    facts x = {-1, -1, -1};
    uint8_t *data;
    uint64_t bytes;
    int broken;
    fb_status status;
    if (!file || file->kind != FB_OS_FILE || file->size_bytes > STATE_BYTES_MAX) return FB_OK;
    fb_folder_format(f, "transformers");
    if ((status = fb_folder_load(f, file, 0, STATE_BYTES_MAX, &data, &bytes, err)) != FB_OK || !data) return status;
    x.trainer = global_step(data, bytes, &broken);
    /* The history may hold NaN, which Python writes and strict JSON refuses: only an end that is missing is a fault. */
    if (broken && is_cut_off(data, bytes)) fb_folder_unreadable(f, "%.300s is cut off: the save did not finish", file->name);
    fb_free(data);
    if (x.trainer >= 0) fb_folder_step(f, x.trainer);
    if ((status = look_at_scheduler(f, dir, &x, err)) != FB_OK) return status;
    if ((status = look_at_optimizer(f, dir, &x, err)) != FB_OK) return status;
    compare(f, dir, file, &x);
    return FB_OK;
}

/* ---- files numbered by rank ------------------------------------------------------------------------------------------------- */

/* Numbers from 0 without a hole. How many there must be is written nowhere. */
static void check_ranks(fb_folder *f, uint32_t dir, const char *pattern, int needed)
{
    const fb_tree_file *file, *last = NULL;
    uint64_t number, count = 0, highest = 0;
    for (uint64_t i = 0; (file = fb_tree_of_dir(&f->tree, dir, i)) != NULL; i++) {
        if (!fb_rank_name(pattern, file->base, &number)) continue;
        count++;
        if (number < highest && last) continue;
        highest = number;
        last = file;
    }
    if (!last || highest + 1 == count) return;
    if (needed) {
        fb_folder_unreadable(f, "by its number %.300s is one of %llu, and %llu are there", last->name,
                             (unsigned long long)highest + 1, (unsigned long long)count);
    } else {
        fb_folder_note(f, last->name, "by its number it is one of %llu, and %llu are there", (unsigned long long)highest + 1,
                       (unsigned long long)count);
    }
}

fb_status fb_layout_huggingface(fb_folder *f, fb_error *err)
{
    for (uint32_t dir = 0; dir < f->tree.dir_count; dir++) {
        fb_status status = take_trainer(f, dir, err);
        if (status != FB_OK) return status;
        check_ranks(f, dir, "pytorch_model_fsdp_rank#.bin", 1);
        check_ranks(f, dir, "optimizer_rank#.bin", 1);
        check_ranks(f, dir, "rng_state_#.pth", 0);
        check_ranks(f, dir, "random_states_#.pkl", 0);
    }
    return FB_OK;
}
