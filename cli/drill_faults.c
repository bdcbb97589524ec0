/*
 * The faults and their truth; see drill_faults.h. Modules and layers are those of a GPT of 3 blocks. `what` fits into the column of
 * the table.
 */
#include "drill_faults.h"

#include "firstbad/firstbad.h"
#include "policy/gate.h"

/* Where the guard may see it first. */
#define SEEN_LOSS (1 << FB_LOSS)
#define SEEN_LOCAL (1 << FB_LOCAL_GRAD)
#define SEEN_INPUT (1 << FB_INPUT)
#define SEEN_REDUCED (1 << FB_REDUCED_GRAD)
#define SEEN_ENTRY (1 << FB_ENTRY)
#define SEEN_UPDATE (1 << FB_UPDATE)

/* The parts of a row: what it is, who is to blame (or what was there already), and why. */
#define FAULT(id_, what_, arguments_) .id = id_, .what = what_, .arguments = arguments_
#define BLAMES(seen_, origin_, module_, op_) \
    .answer = DRILL_OPERATOR, .seen = seen_, .origin = origin_, .module = module_, .op = op_
#define THERE(seen_, origin_, module_, tensor_) \
    .answer = DRILL_ENTRY_BAD, .seen = seen_, .origin = origin_, .module = module_, .tensor = tensor_
#define NOBODY(answer_, seen_) .answer = answer_, .seen = seen_, .module = "*"
#define WHY(cause_, rule_, samples_) .cause = cause_, .rule = rule_, .samples = samples_
#define PARTED(reason_) .answer = DRILL_DISAGREEMENT, .module = "*", .cause = "*", .reason = reason_
#define EVERY_RANK .every_rank = 1
#define LATE .late = 1
#define SPREADS .spreads = 1
#define LASTS .lasts = 1
/* Begun three steps before a comparison, or two, or one. */
#define COMPARED .compared = 1, .late = 3
#define FIRST_LAYER(layer_) .layer_first = layer_
#define F16 "--precision fp16 --loss-scale 256"
#define F16_SMALL "--precision fp16 --loss-scale 1"
#define STATE "--check-state full"
#define KEPT "--keep-state"
#define REPLICAS "--replica-period 4"

const drill_fault drill_faults[] = {
    /* Forward, in FP32 as well. */
    {FAULT("mask-full-row", "a sample without a key: softmax of -Inf", ""), BLAMES(SEEN_INPUT, FB_FORWARD, "h.0.attn", "softmax"),
     WHY("mask_full_row", "domain|batch", 1)},
    {FAULT("mask-left-padding", "left padding under a causal mask", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.0.attn", "softmax"),
     WHY("mask_full_row", "domain", 1)},
    {FAULT("temperature-zero", "scores divided by a temperature of 0", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.attn", "div"),
     WHY("domain_math", "domain", 1)},
    {FAULT("softmax-no-max", "exp / sum without taking off the max", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.attn", "exp"),
     WHY("overflow", "range", 1)},
    {FAULT("entropy-log-zero", "p log p at p = 0", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.attn", "log"),
     WHY("domain_math", "domain", 1)},
    {FAULT("l2-norm-zero", "x / |x| at 0", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.attn", "div"), WHY("domain_math", "domain", 1)},
    {FAULT("variance-cancel", "E[x^2] - E[x]^2 below 0", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.ln_2", "rsqrt"),
     WHY("domain_math", "rounding_upstream", 1)},
    {FAULT("norm-no-epsilon", "a norm without epsilon, constant rows", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.ln_2", "rsqrt"),
     WHY("domain_math", "domain", 1)},
    {FAULT("norm-half-epsilon", "an epsilon that is 0 in fp16", F16), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.ln_2", "rsqrt"),
     WHY("epsilon_underflow", "rounding_upstream", 1)},
    {FAULT("exp-ratio", "exp(x) / (1 + exp(x)) at 200", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.mlp", "exp"),
     WHY("overflow", "range", 1)},
    {FAULT("inf-then-nan", "a square is Inf; NaN comes later", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.mlp", "square"),
     WHY("overflow", "range", 1)},
    {FAULT("dropout-all", "inverted dropout with p = 1", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.mlp", "div"),
     WHY("domain_math", "domain", 1)},
    {FAULT("fp8-amax-zero", "an FP8 scale of 448 / 0", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.mlp", "reciprocal"),
     WHY("fp8_scaling", "domain", 1)},
    {FAULT("table-inf", "a buffer holds one Inf", ""), THERE(SEEN_LOSS, FB_ENTRY, "", "table"), WHY("state_bad", "state", 0)},
    {FAULT("buffer-nan", "a buffer holds one value never written", ""), THERE(SEEN_LOSS, FB_ENTRY, "", "table"),
     WHY("state_bad", "state", 0)},
    {FAULT("swallowed-then-real", "a NaN that where drops, then another", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.attn", "div"),
     WHY("domain_math", "domain", 1), FIRST_LAYER(1)},
    /* Forward, beyond 65504. */
    {FAULT("scores-fp16", "attention scores beyond fp16", F16), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.attn", "matmul"),
     WHY("fp16_forward_overflow", "range", 1)},
    {FAULT("mlp-fp16", "a feed-forward layer beyond fp16", F16), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.mlp", "linear"),
     WHY("fp16_forward_overflow", "range", 1)},
    {FAULT("residual-fp16", "stream plus branch beyond fp16", F16), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d", "add"),
     WHY("fp16_forward_overflow", "range", 1)},
    {FAULT("logits-fp16", "logits beyond fp16", F16), BLAMES(SEEN_LOSS, FB_FORWARD, "lm_head", "linear"),
     WHY("fp16_forward_overflow", "range", 1)},
    {FAULT("embedding-scale-fp16", "scaled embeddings beyond fp16", F16), BLAMES(SEEN_LOSS, FB_FORWARD, "", "mul"),
     WHY("fp16_forward_overflow", "range", 1)},
    {FAULT("gelu-square-fp16", "x^2 in a GELU; only backward shows it", F16_SMALL),
     BLAMES(SEEN_LOCAL, FB_FORWARD, "h.%d.mlp", "square"), WHY("fp16_forward_overflow", "range", 1), LATE},
    /* The loss. */
    {FAULT("log-of-softmax", "log(softmax) where p rounds to 0", ""), BLAMES(SEEN_LOSS, FB_LOSS, "loss", "log"),
     WHY("domain_math", "rounding_upstream", 1)},
    {FAULT("logsumexp-no-max", "log(sum(exp)) as written, logits of 200", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "lm_head", "exp"),
     WHY("overflow", "range", 1)},
    {FAULT("group-std-of-one", "unbiased variance of one member", ""), BLAMES(SEEN_LOSS, FB_LOSS, "loss", "var"),
     WHY("domain_math", "domain", 1)},
    {FAULT("batch-sum-overflow", "two samples, only their sum is Inf", ""), BLAMES(SEEN_LOSS, FB_LOSS, "loss", "sum"),
     WHY("overflow", "range", 2)},
    /* Backward alone: forward and loss are finite. */
    {FAULT("reciprocal-where", "1/p behind a where, at p = 0", ""), BLAMES(SEEN_LOCAL, FB_FORWARD, "h.%d.attn", "reciprocal"),
     WHY("domain_math", "domain", 1)},
    {FAULT("nan-to-num-hides", "root of a negative, hidden in forward", ""), BLAMES(SEEN_LOCAL, FB_FORWARD, "h.%d.mlp", "sqrt"),
     WHY("domain_math", "domain", 1)},
    {FAULT("softplus-where", "the other branch of a where overflows", ""), BLAMES(SEEN_LOCAL, FB_FORWARD, "h.%d.mlp", "exp"),
     WHY("overflow", "range", 1)},
    {FAULT("norm-slope-zero", "the slope of a root at 0", ""), BLAMES(SEEN_LOCAL, FB_LOCAL_GRAD, "h.%d.attn", "sqrt_backward"),
     WHY("domain_math", "domain", 1)},
    {FAULT("norm-clamp-late", "a norm clamped after its root, at 0", ""),
     BLAMES(SEEN_LOCAL, FB_LOCAL_GRAD, "h.%d.attn", "sqrt_backward"), WHY("domain_math", "domain", 1)},
    {FAULT("division-where", "x/0 behind a where: 0/0 in backward", ""),
     BLAMES(SEEN_LOCAL, FB_LOCAL_GRAD, "h.%d.mlp", "div_backward"), WHY("domain_math", "domain", 1)},
    {FAULT("clamp-log1p-bf16", "a bound that bf16 rounds to 1", "--precision bf16"),
     BLAMES(SEEN_LOCAL, FB_LOCAL_GRAD, "ln_f", "log1p_backward"), WHY("domain_math", "domain|rounding_upstream", 1)},
    {FAULT("gradient-fp16", "a weighted gradient beyond fp16", F16_SMALL),
     BLAMES(SEEN_LOCAL, FB_LOCAL_GRAD, "h.%d.mlp", "mul_backward"), WHY("fp16_backward_overflow", "range", 1), LATE},
    {FAULT("norm-backward-fp16", "backward of a norm beyond fp16", F16_SMALL),
     BLAMES(SEEN_LOCAL, FB_LOCAL_GRAD, "h.%d.ln_2", "layer_norm_backward"), WHY("fp16_backward_overflow", "range", 1), LATE},
    {FAULT("accumulate-fp16", "two micro-steps, their sum beyond fp16", F16_SMALL " --accum 2"),
     BLAMES(SEEN_LOCAL, FB_LOCAL_GRAD, "h.%d.mlp", "accumulate"), WHY("fp16_backward_overflow", "range", 1), LATE},
    /* The batch. */
    {FAULT("labels-ignored", "all labels of a rank are ignored", ""), BLAMES(SEEN_INPUT, FB_LOSS, "loss", "div"),
     WHY("label_all_ignored", "domain|batch", 1)},
    {FAULT("weights-zero", "all weights of the loss are 0", ""), BLAMES(SEEN_INPUT, FB_LOSS, "loss", "div"),
     WHY("zero_denominator", "domain|batch", 1)},
    {FAULT("weight-nan", "one weight of the loss is NaN", ""), THERE(SEEN_INPUT, FB_INPUT, "", "loss_weights"),
     WHY("input_nonfinite", "batch", 1)},
    {FAULT("weight-inf", "one weight of the loss is Inf", ""), THERE(SEEN_INPUT, FB_INPUT, "", "loss_weights"),
     WHY("input_nonfinite", "batch", 1)},
    {FAULT("token-unknown", "a token that has no row", ""), BLAMES(SEEN_INPUT, FB_FORWARD, "wte", "embedding"),
     WHY("token_out_of_range", "batch", 1)},
    {FAULT("label-unknown", "a label that is no token", ""), BLAMES(SEEN_INPUT, FB_LOSS, "loss", "nll_loss"),
     WHY("token_out_of_range", "batch", 1)},
    {FAULT("position-unknown", "a position that has no row", ""), BLAMES(SEEN_INPUT, FB_FORWARD, "wpe", "embedding"),
     WHY("position_out_of_range", "batch", 1)},
    /* The collective. */
    {FAULT("sum-fp16", "finite on each rank, sum beyond fp16", F16_SMALL),
     BLAMES(SEEN_REDUCED, FB_REDUCED_GRAD, "h.%d.mlp", "all_reduce"), WHY("fp16_backward_overflow", "range", 0), EVERY_RANK, LATE},
    {FAULT("sum-fp32", "finite on each rank, sum beyond fp32", ""), BLAMES(SEEN_REDUCED, FB_REDUCED_GRAD, "h.%d.mlp", "all_reduce"),
     WHY("overflow", "range", 0), EVERY_RANK},
    {FAULT("collective-one-rank", "a bad value for one rank, each time", ""),
     BLAMES(SEEN_REDUCED, FB_REDUCED_GRAD, "h.%d.mlp", "all_reduce"), WHY("hardware_fault", NULL, 0)},
    {FAULT("collective-all-ranks", "a bad value for all ranks, each time", ""),
     BLAMES(SEEN_REDUCED, FB_REDUCED_GRAD, "h.%d.mlp", "all_reduce"), WHY("collective_race", NULL, 0), EVERY_RANK},
    {FAULT("collective-race", "a bad value for all, now and then", ""), NOBODY(DRILL_NOT_STEADY, SEEN_REDUCED),
     WHY("collective_race", "not_reproducible", 0), EVERY_RANK},
    /* The update, held back beside the state until every rank has found it finite. */
    {FAULT("norm-fp32", "finite gradients, a norm beyond fp32", ""), BLAMES(SEEN_REDUCED, FB_REDUCED_GRAD, "optimizer", "norm"),
     WHY("overflow", "range", 0)},
    {FAULT("clip-zero-norm", "clipping divides by a norm of 0", KEPT), BLAMES(SEEN_UPDATE, FB_UPDATE, "optimizer", "div"),
     WHY("domain_math|zero_denominator", "domain", 0), EVERY_RANK},
    {FAULT("adam-half", "Adam in fp16: 0 / (0 + 0)", KEPT), BLAMES(SEEN_UPDATE, FB_UPDATE, "*", "div"),
     WHY("epsilon_underflow", "rounding_upstream|domain", 0), EVERY_RANK},
    {FAULT("adam-no-epsilon", "Adam without epsilon: 0 / 0", KEPT), BLAMES(SEEN_UPDATE, FB_UPDATE, "*", "div"),
     WHY("epsilon_underflow", "domain", 0), EVERY_RANK},
    {FAULT("bias-correction-zero", "a step counter of 0: 1 - beta^0", KEPT), BLAMES(SEEN_UPDATE, FB_UPDATE, "*", "div"),
     WHY("optimizer_state", "domain", 0), EVERY_RANK},
    {FAULT("rate-nan", "a warm-up of no steps: rate 0/0", KEPT), THERE(SEEN_UPDATE, FB_ENTRY, "optimizer", "learning_rate"),
     WHY("lr_instability", "state|domain", 0), EVERY_RANK},
    {FAULT("moment-negative", "second moments below 0", KEPT), BLAMES(SEEN_UPDATE, FB_UPDATE, "h.%d.mlp", "sqrt"),
     WHY("optimizer_state", "domain", 0), EVERY_RANK, LASTS},
    {FAULT("rate-too-high", "a rate of 1e20; forward overflows next", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.0.attn", "linear"),
     WHY("overflow|lr_instability", "range", 1), EVERY_RANK, LATE, SPREADS},
    /* State and scale. */
    {FAULT("scale-runaway", "a loss scale of Inf", F16_SMALL), THERE(SEEN_LOCAL, FB_ENTRY, "", "loss_scale"),
     WHY("scale_runaway", "state", 0), EVERY_RANK, LATE},
    {FAULT("scale-zero", "a loss scale of 0: unscaling divides", F16_SMALL), BLAMES(SEEN_REDUCED, FB_REDUCED_GRAD, "*", "mul"),
     WHY("scale_runaway", "domain|state", 0), EVERY_RANK, LATE},
    {FAULT("parameter-unset", "part of a weight was never written", STATE), THERE(SEEN_ENTRY, FB_ENTRY, "h.%d.mlp", "c_fc.weight"),
     WHY("state_bad|uninitialised_memory", "state", 0), EVERY_RANK},
    {FAULT("moment-inf", "a second moment of Inf", STATE), THERE(SEEN_ENTRY, FB_ENTRY, "h.%d.mlp", "c_fc.weight.exp_avg_sq"),
     WHY("optimizer_state", "state", 0), EVERY_RANK},
    {FAULT("moment-nan", "first moments lost when loaded", STATE), THERE(SEEN_ENTRY, FB_ENTRY, "h.%d.mlp", "c_fc.weight.exp_avg"),
     WHY("optimizer_state", "state", 0), EVERY_RANK},
    {FAULT("gradient-unset", "gradient memory that was not cleared", ""),
     THERE(SEEN_LOCAL, FB_ENTRY, "h.%d.mlp", "store.c_fc.weight"), WHY("state_bad|uninitialised_memory", "state", 0)},
    /* Machines and kernels. */
    {FAULT("flip-once", "a value damaged once", ""), NOBODY(DRILL_NOT_REPRODUCED, SEEN_LOSS),
     WHY("transient", "not_reproducible", 0)},
    {FAULT("device-broken", "one device, one element, each time", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.mlp", "gelu"),
     WHY("hardware_fault", NULL, 0)},
    {FAULT("kernel-race", "a kernel that reads too early, at times", ""), NOBODY(DRILL_NOT_STEADY, SEEN_LOSS),
     WHY("transient", "not_reproducible", 0)},
    {FAULT("kernel-tail", "a kernel that leaves a row unwritten", ""), BLAMES(SEEN_LOSS, FB_FORWARD, "h.%d.mlp", "linear"),
     WHY("uninitialised_memory|kernel_bug", NULL, 0)},
    /* Ranks that part; every number is finite. */
    {FAULT("scale-on-one-rank", "one rank has another loss scale", "--precision fp16"), PARTED(FB_REASON_DISAGREE)},
    {FAULT("parameter-flip", "one bit of one parameter on one rank", REPLICAS), PARTED(FB_REASON_REPLICAS), COMPARED},
    {FAULT("update-left-out", "one rank leaves an update out", REPLICAS), PARTED(FB_REASON_REPLICAS), COMPARED},
};
const int drill_fault_count = sizeof drill_faults / sizeof *drill_faults;
