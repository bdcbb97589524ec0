/* bits.c: train a few steps in each precision and print a hash of all parameters. Builds that differ
 * only in speed print the same. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data.h"
#include "model.h"
#include "optim.h"

static uint64_t hash_of(const void *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return hash;
}

static int train(precision format)
{
    /* Channels and block are no multiples of 16: the edges of tiles and lanes are travelled, too. */
    const gpt_config config = {.layers = 2,
                               .heads = 3,
                               .channels = 39,
                               .block = 21,
                               .batch = 2,
                               .dropout = 0.2f,
                               .format = format,
                               .activation_gain = 1.0f};
    adamw o = {.learning_rate_max = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .decay_steps = 100};
    const double scale = format == PRECISION_FP16 ? 1024.0 : 1.0;
    gpt_model *model = gpt_open(&config);
    dataset data;
    batch b;
    if (!model || adamw_open(&o, model->parameter_count) != 0 || batch_open(&b, 1, config.batch, config.block) != 0 ||
        dataset_open(&data, "/usr/share/common-licenses/GPL-3", config.block) != 0) {
        return 1;
    }
    for (int64_t step = 1; step <= 5; step++) {
        gpt_input input = {.tokens = b.tokens, .targets = b.targets, .weights = b.weights};
        gpt_load_weights(model);
        batch_draw(&b, &data, 1, step, 0);
        memset(model->gradients, 0, model->parameter_count * sizeof *model->gradients);
        gpt_forward(model, input, (gpt_place){step, 0, 0}, scale);
        gpt_backward(model, input, (gpt_place){step, 0, 0});
        precision_round(format, model->gradients, model->parameter_count);
        adamw_update(&o, model, adamw_learning_rate(&o, step), 1.0 / scale);
    }
    printf("%s %016" PRIx64 "\n", precision_name(format),
           hash_of(model->parameters, model->parameter_count * sizeof *model->parameters));
    dataset_close(&data);
    batch_close(&b);
    adamw_close(&o);
    gpt_close(model);
    return 0;
}

int main(void)
{
    return train(PRECISION_FP32) || train(PRECISION_BF16) || train(PRECISION_FP16);
}
