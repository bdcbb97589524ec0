/* checkpoint.h: all that a run needs to continue to the same bits: parameters, moments, counters,
 * seed and loss scale, in one file. */
#ifndef GPT_CHECKPOINT_H
#define GPT_CHECKPOINT_H

#include "data.h"
#include "optim.h"
#include "safetensors.h"

/* What is small. The generator has no state besides the seed and the step (rng.h). */
typedef struct train_state {
    int64_t step;    /* the last step that was run */
    int64_t updates; /* of the optimizer; fewer than steps where some were skipped */
    uint64_t seed;
    double scale;
    int32_t growth_tracker, hysteresis_left;
} train_state;

/* Path of the checkpoint after a step: FOLDER/step-000100.safetensors. */
void checkpoint_path(char *out, size_t bytes, const char *folder, int64_t step);

/* Delete all but the newest `keep` step files of the folder, as trainers do: by name, and without asking what is in them. */
void checkpoint_rotate(const char *folder, int64_t keep);

/* 0, or -1 with a sentence. _over writes over the file of that name (safetensors_write_over). Loading changes the model, the
 * optimizer and *state only on success or when the file ends early. */
int checkpoint_save(const char *path, gpt_model *model, adamw *optimizer, train_state *state, file_error *err);
int checkpoint_save_over(const char *path, gpt_model *model, adamw *optimizer, train_state *state, file_error *err);
int checkpoint_load(const char *path, gpt_model *model, adamw *optimizer, train_state *state, file_error *err);

/*
 * One step, for comparison with another implementation: the batch of all micro-steps, logits and loss of the last one, gradients
 * before the clip, parameters after the update.
 */
int dump_step(const char *path, gpt_model *model, batch *b, float *gradients, file_error *err);

#endif
