#include "ckpt/moment_name.h"

#include <string.h>

/* What optimizers keep for each parameter. A name that is not here stays as it is, which is plain as well. */
static const char *const moments[] = {
    "exp_avg",      "exp_avg_sq",     "max_exp_avg_sq", "step",         "momentum_buffer",
    "fp32_param",   "square_avg",     "acc_delta",      "sum",          "grad_avg",
    "exp_inf",      "prev",           "step_size",      "mu_product",   "master_param",
    "param",        "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_diff", "neg_pre_grad",
    "exp_avg_slow",
};

static int is_moment(const char *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++) {
        if (strlen(moments[i]) == bytes && memcmp(moments[i], text, bytes) == 0) return 1;
    }
    return 0;
}

/* After "state.", where it stands for the state of an optimizer: at the begin of the name, or behind
 * a part that begins with "optim". */
static const char *after_state(const char *name)
{
    const char *at;
    if (strncmp(name, "state.", 6) == 0) return name + 6;
    if (strncmp(name, "optim", 5) != 0) return NULL;
    at = strstr(name, ".state.");
    return at ? at + 7 : NULL;
}

const char *fb_moment_name(fb_pool *pool, const char *name)
{
    const char *rest = after_state(name), *dot, *moment, *owner;
    size_t moment_bytes, owner_bytes, head;
    char *made;
    if (!rest) return name;
    head = (size_t)(rest - name);
    if ((dot = strchr(rest, '.')) != NULL && dot[1] != '\0' && is_moment(rest, (size_t)(dot - rest))) {
        moment = rest;
        moment_bytes = (size_t)(dot - rest);
        owner = dot + 1;
        owner_bytes = strlen(owner);
    } else if ((dot = strrchr(rest, '.')) != NULL && dot > rest && is_moment(dot + 1, strlen(dot + 1))) {
        moment = dot + 1;
        moment_bytes = strlen(moment);
        owner = rest;
        owner_bytes = (size_t)(dot - rest);
    } else {
        return name;
    }
    made = fb_pool_take(pool, head + moment_bytes + 4 + owner_bytes + 1);
    if (!made) return NULL;
    memcpy(made, name, head);
    memcpy(made + head, moment, moment_bytes);
    memcpy(made + head + moment_bytes, " of ", sizeof " of ");
    memcpy(made + head + moment_bytes + 4, owner, owner_bytes);
    return made;
}
