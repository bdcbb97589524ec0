#include "locate/causes.h"

#include <string.h>

#include "firstbad/locate.h"

static const fb_cause_class classes[FB_CAUSES] = {
    [FB_CAUSE_UNKNOWN] = {"unknown", "unknown", "the evidence does not tell the cause",
                          "replay the case with more of the step on the tape, or bisect it, and judge again"},
    [FB_CAUSE_MASK_FULL_ROW] =
        {"mask_full_row", "data", "a softmax was taken over a row in which everything is masked: 0/0",
         "drop samples without a single real token in the collator, or give fully masked rows a finite value"},
    [FB_CAUSE_DOMAIN_MATH] =
        {"domain_math", "program", "an operator was given an argument outside of its domain",
         "keep the argument inside the domain before the operator runs, not after: an epsilon inside the root or "
         "the denominator, a clamp in front of the logarithm"},
    [FB_CAUSE_EPSILON_UNDERFLOW] = {"epsilon_underflow", "numbers",
                                    "an epsilon that guards a denominator is 0 in the format it is used in",
                                    "compute that operator and its epsilon in FP32, or take an epsilon that the format can hold"},
    [FB_CAUSE_FP16_FORWARD_OVERFLOW] = {"fp16_forward_overflow", "numbers", "an activation exceeds what FP16 can hold",
                                        "run this operator in BF16 or FP32, or scale its operands down before the product"},
    [FB_CAUSE_FP16_BACKWARD_OVERFLOW] = {"fp16_backward_overflow", "numbers", "a gradient, scaled, exceeds what FP16 can hold",
                                         "lower the loss scale or let it move, or run backward of this operator in BF16 or FP32"},
    [FB_CAUSE_OVERFLOW] =
        {"overflow", "numbers", "a value exceeds what its format can hold",
         "find what made the value so large (learning rate, initialisation, a missing normalisation), or take the "
         "largest of the row off before an exponential"},
    [FB_CAUSE_LABEL_ALL_IGNORED] = {"label_all_ignored", "data", "no label of the batch counts, so that the mean loss is 0/0",
                                    "skip batches without a label that counts, or divide by max(1, number of labels)"},
    [FB_CAUSE_ZERO_DENOMINATOR] = {"zero_denominator", "data", "a normaliser that sums up the batch is 0",
                                   "divide by max(1, the sum), or leave out batches whose weights are all 0"},
    [FB_CAUSE_TOKEN_OUT_OF_RANGE] = {"token_out_of_range", "data", "a token or label has no row in its table",
                                     "compare the tokenizer with the size of the table; look for ids stored in 16 bits"},
    [FB_CAUSE_POSITION_OUT_OF_RANGE] = {"position_out_of_range", "data", "a position lies beyond the table of positions",
                                        "cut sequences to the length of the table, or make the table longer"},
    [FB_CAUSE_INPUT_NONFINITE] = {"input_nonfinite", "data", "the batch itself holds a number that is not finite",
                                  "find where the data pipeline makes it, and leave the sample out until then"},
    [FB_CAUSE_OPTIMIZER_STATE] = {"optimizer_state", "state",
                                  "a moment or a counter of the optimizer is not what an optimizer leaves",
                                  "go back to a checkpoint from before the moment went bad, or start its moments anew"},
    [FB_CAUSE_STATE_BAD] =
        {"state_bad", "state", "a number of the state was not finite before this step began",
         "go back to a checkpoint from before it went bad, and check parameters after each update until it shows"},
    [FB_CAUSE_UNINITIALISED_MEMORY] =
        {"uninitialised_memory", "program", "memory was read that nobody had written",
         "initialise what is allocated (an initialiser for each parameter, zeros for padding and tails)"},
    [FB_CAUSE_CHECKPOINT_CORRUPT] = {"checkpoint_corrupt", "state", "the state came bad out of the checkpoint",
                                     "scan the checkpoint, and resume from an older one that is finite"},
    [FB_CAUSE_RESUME_MISMATCH] = {"resume_mismatch", "state", "a part of the state was not restored when the run was resumed",
                                  "save and load the counters of optimizer and schedule together with its moments"},
    [FB_CAUSE_SCALE_RUNAWAY] = {"scale_runaway", "state", "the loss scale grew without a bound",
                                "bound the loss scale from above, and never grow it on a step that was skipped"},
    [FB_CAUSE_SCALER_ORDER] = {"scaler_order", "program", "unscaling, clipping and the update came in the wrong order",
                               "unscale once, then clip, then update"},
    [FB_CAUSE_LR_INSTABILITY] = {"lr_instability", "program", "the learning rate is not a number, or far too large",
                                 "check the schedule at this step: a division by a warm-up of no steps gives 0/0"},
    [FB_CAUSE_FP8_SCALING] = {"fp8_scaling", "numbers", "the scale of an FP8 tensor is 0 or infinite",
                              "keep the largest magnitude of which the scale is made above 0"},
    [FB_CAUSE_COLLECTIVE_RACE] =
        {"collective_race", "machine", "a collective gave what no sum of its inputs is",
         "wait for the kernels that write the buffer before it is sent, and do not reuse it before it arrived"},
    [FB_CAUSE_HARDWARE_FAULT] = {"hardware_fault", "machine", "one device computes what the others do not",
                                 "take the device out of the job and run its memory and arithmetic tests"},
    [FB_CAUSE_KERNEL_BUG] = {"kernel_bug", "program", "the operator's result is not explained by arithmetic on its inputs",
                             "run this operator by another kernel, and report it with l3/witness.safetensors"},
    [FB_CAUSE_INIT_SCALE] = {"init_scale", "program", "weights were drawn too large for the width of the model",
                             "scale the initial standard deviation with the width: sqrt(2 / (5 x width)) is a usual choice"},
    [FB_CAUSE_TRANSIENT] = {"transient", "machine", "the same step, run again, does not do it again",
                            "train on; when it comes back on the same rank, take that device out and test it"},
};

const fb_cause_class *fb_cause_class_of(int32_t number)
{
    return &classes[number > 0 && number < FB_CAUSES ? number : FB_CAUSE_UNKNOWN];
}

int32_t fb_cause_class_named(const char *name)
{
    for (int32_t i = 0; name && i < FB_CAUSES; i++) {
        if (strcmp(classes[i].name, name) == 0) return i;
    }
    return FB_CAUSE_UNKNOWN;
}

const char *fb_rule_name(int32_t rule)
{
    switch (rule) {
    case FB_RULE_RANGE: return "range";
    case FB_RULE_ROUNDING: return "rounding";
    case FB_RULE_ROUNDING_UPSTREAM: return "rounding_upstream";
    case FB_RULE_DOMAIN: return "domain";
    case FB_RULE_STATE: return "state";
    case FB_RULE_BATCH: return "batch";
    case FB_RULE_NOT_REPRODUCIBLE: return "not_reproducible";
    default: return "none";
    }
}

const char *fb_located_name(int32_t found)
{
    switch (found) {
    case FB_LOCATED_OPERATOR: return "operator";
    case FB_LOCATED_SET: return "set";
    case FB_LOCATED_INTERVAL: return "interval";
    case FB_LOCATED_ENTRY: return "entry";
    case FB_LOCATED_NOT_REPRODUCED: return "not_reproduced";
    case FB_LOCATED_NOT_STEADY: return "not_steady";
    case FB_LOCATED_UNDECIDED: return "undecided";
    default: return "nothing";
    }
}
