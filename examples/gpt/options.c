/* options.c: one table says name, kind and place of every option; the help text stands below it. */
#include "options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind {
    TEXT,
    SIZE,
    INTEGER,
    REAL,
    SINGLE,
    SEED,
    SET,
    CLEAR,
    PRECISION,
    STATE,
    CHECK,
    FAULT,
    LOCATE,
    STRATEGY
} option_kind;

typedef struct option_row {
    const char *name;
    option_kind kind;
    size_t at;
    double low, high; /* of a number */
} option_row;

#define AT(field) offsetof(options, field)
static const option_row ROWS[] = {
    {"--data", TEXT, AT(data), 0, 0},
    {"--steps", INTEGER, AT(steps), 0, 1e9},
    {"--batch", SIZE, AT(model.batch), 1, 65536},
    {"--block", SIZE, AT(model.block), 1, 65536},
    {"--layers", SIZE, AT(model.layers), 1, GPT_LAYERS_MAX},
    {"--channels", SIZE, AT(model.channels), 1, 16384},
    {"--heads", SIZE, AT(model.heads), 1, 1024},
    {"--accum", SIZE, AT(accumulation), 1, 16382},
    {"--precision", PRECISION, AT(model.format), 0, 0},
    {"--dropout", SINGLE, AT(model.dropout), 0, 0.99},
    {"--seed", SEED, AT(model.seed), 0, 0},
    {"--lr", REAL, AT(learning_rate), 0, 1e9},
    {"--lr-min", REAL, AT(learning_rate_min), 0, 1e9},
    {"--warmup", INTEGER, AT(warmup), 0, 1e9},
    {"--weight-decay", REAL, AT(weight_decay), 0, 1e9},
    {"--clip", REAL, AT(clip), 0, 1e30},
    {"--loss-scale", REAL, AT(loss_scale), 1e-30, 1e30},
    {"--scale-growth-interval", INTEGER, AT(scale_growth_interval), 1, 1e9},
    {"--log-every", INTEGER, AT(log_every), 0, 1e9},
    {"--save-every", INTEGER, AT(save_every), 0, 1e9},
    {"--keep", INTEGER, AT(keep), 0, 1e9},
    {"--save-name", TEXT, AT(save_name), 0, 0},
    {"--out", TEXT, AT(out), 0, 0},
    {"--resume", TEXT, AT(resume), 0, 0},
    {"--dump", TEXT, AT(dump), 0, 0},
    {"--no-guard", CLEAR, AT(guard), 0, 0},
    {"--check", CHECK, AT(check_forward), 0, 0},
    {"--check-state", STATE, AT(check_state), 0, 0},
    {"--max-skips", INTEGER, AT(max_skips), 1, 1e9},
    {"--replica-period", INTEGER, AT(replica_period), 0, 1e9},
    {"--dir", TEXT, AT(dir), 0, 0},
    {"--inject", TEXT, AT(inject), 0, 0},
    {"--activation-gain", SINGLE, AT(model.activation_gain), 1e-6, 1e6},
    {"--gradient-blowup", INTEGER, AT(gradient_blowup), 0, 1e9},
    {"--fault", FAULT, AT(faults), 0, 0},
    {"--locate", LOCATE, AT(locate), 0, 0},
    {"--strategy", STRATEGY, AT(bisect), 0, 0},
    {"--bundle-max", INTEGER, AT(bundle_max), 1, 1e6},
    {"--keep-state", SET, AT(keep_state), 0, 0},
    {"--help", SET, AT(help), 0, 0},
    {"-h", SET, AT(help), 0, 0},
};

static const char HELP[] =
    "usage: firstbad-gpt [options]\n"
    "       mpirun -n RANKS firstbad-gpt [options]\n"
    "\n"
    "Train a small GPT on the bytes of a text file, guarded by firstbad. Each MPI rank takes a batch of its own; gradients are "
    "averaged.\n"
    "\n"
    "Training\n"
    "  --data FILE            text to learn (default /usr/share/common-licenses/GPL-3)\n"
    "  --steps N              updates in all, counted from the start of training (100)\n"
    "  --batch N              rows per rank and micro-step (2)\n"
    "  --accum N              micro-steps per update (1)\n"
    "  --precision P          fp32, bf16 or fp16: format of weights, activations and gradients (fp32).\n"
    "                         The optimizer keeps FP32 copies; fp16 uses a dynamic loss scale\n"
    "  --seed N               seed of parameters, batches and dropout (1)\n"
    "  --lr X, --lr-min X     highest and last learning rate (2e-3, 2e-4)\n"
    "  --warmup N             steps of linear warm-up before the cosine (20)\n"
    "  --weight-decay X       decoupled decay of weights, not of biases and norms (0.1)\n"
    "  --clip X               limit of the global gradient norm, 0: none (1)\n"
    "  --dropout P            on embeddings, attention and both branches (0)\n"
    "  --loss-scale X         first loss scale in fp16 (65536)\n"
    "  --scale-growth-interval N  clean updates before the scale doubles (2000)\n"
    "Model\n"
    "  --layers N --channels N --heads N --block N   (4, 64, 4, 64); block is the context length\n"
    "Output\n"
    "  --log-every N          print a line every N steps, 0: none (10)\n"
    "  --save-every N         write a checkpoint at the start and after every N steps, 0: never (0)\n"
    "  --out DIR              folder of checkpoints (checkpoints)\n"
    "  --keep N               after a save delete all but the newest N step files, whatever is in them; 0: keep all (0)\n"
    "  --save-name NAME       write every checkpoint over the same file of --out\n"
    "  --resume FILE          continue from a checkpoint, to the same bits as an uninterrupted run. \"latest\": the newest in "
    "--out\n"
    "                         that firstbad committed. One that is known to be bad is refused\n"
    "  --dump PREFIX          write PREFIX-000001.safetensors, ... with batch, logits, loss, gradients and parameters of each "
    "step;\n"
    "                         rank 1 writes PREFIX-000001-r1.safetensors, and so on\n";

/* In two parts: C promises no more than 4,095 bytes for one. */
static const char HELP_GUARD[] =
    "Guard\n"
    "  --no-guard             run without firstbad, for comparison of speed; nothing is checked then\n"
    "  --check forward        also check every activation\n"
    "  --check-state WHAT     check parameters and moments on entry: none, sampled (every tensor once in 16 steps) or full "
    "(sampled)\n"
    "  --max-skips N          bad updates in a row that are skipped before the run halts (3)\n"
    "  --replica-period N     compare the parameters of all ranks at the start, every N steps and after a skip, 0: never (100)\n"
    "  --dir DIR              folder that holds firstbad's runs (firstbad-runs)\n"
    "  --inject SPEC          let the guard inject a fault, for example grad-inf@step=20,rank=1,site=h.2.mlp\n"
    "When an update was bad\n"
    "  --locate WHAT          all (default), none, or some of replay,search,cause,other,minimise,evidence,bundle: replay the step\n"
    "                         from memory, name the operator, say why, try other ranks, make the batch small, keep the witness,\n"
    "                         keep a bundle that others can replay. FIRSTBAD_LOCATE says the same\n"
    "  --strategy S           sweep (default) or bisect; FIRSTBAD_STRATEGY says the same\n"
    "  --bundle-max MIB       state that a bundle takes in; what is larger is referred to by its checkpoint (256)\n"
    "  --keep-state           write each update beside the state, look at all of it, and put it in place only when every rank\n"
    "                         found it finite: a bad one is stopped at its own step, and replayed from the state it came from\n"
    "Faults that are real: nothing is injected, the arithmetic itself overflows\n"
    "  --activation-gain X    multiply what the middle block's MLP adds by X to the power of the step: activations grow until "
    "fp16\n"
    "                         cannot hold them\n"
    "  --gradient-blowup STEP at this step each rank's gradient of one element is finite and so large that the sum over ranks is "
    "not\n"
    "  --fault SPEC           up to 4, for example mask-full-row@step=5,rank=1; \"list\" prints all of them,\n"
    "                         \"truths\" what is true of each, as JSON, a line each\n"
    "\n"
    "Exit code: 0 trained to the end; 1 halted by firstbad; 2 wrong use; 3 a file or MPI failed.\n";

void options_help(void)
{
    fputs(HELP, stdout);
    fputs(HELP_GUARD, stdout);
}

static int bad(char *message, size_t bytes, const char *name, const char *value, const char *expected)
{
    snprintf(message, bytes, "option %s: expected %s, found \"%s\"; see firstbad-gpt --help", name, expected, value);
    return -1;
}

static int read_number(const option_row *row, const char *text, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    if (end == text || *end || errno) return -1;
    if (!(*out >= row->low && *out <= row->high)) return -1;
    if ((row->kind == SIZE || row->kind == INTEGER) && *out != (double)(int64_t)*out) return -1;
    return 0;
}

/* `value` as one of the words, whose number goes to *out. */
static int read_word(const char *value, const char *const words[], size_t count, int *out)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(value, words[i]) == 0) {
            *out = (int)i;
            return 0;
        }
    }
    return -1;
}

/* "replay,search" as bits. */
static int read_parts(const char *text, int *parts)
{
    static const struct {
        const char *word;
        int bits;
    } words[] = {{"all", LOCATE_ALL},           {"none", 0},
                 {"replay", LOCATE_REPLAY},     {"search", LOCATE_SEARCH},
                 {"cause", LOCATE_CAUSE},       {"other", LOCATE_OTHER},
                 {"minimise", LOCATE_MINIMISE}, {"evidence", LOCATE_EVIDENCE},
                 {"bundle", LOCATE_BUNDLE}};
    *parts = 0;
    for (;;) {
        size_t length = strcspn(text, ","), k = 0;
        while (k < sizeof words / sizeof *words && (strlen(words[k].word) != length || strncmp(words[k].word, text, length) != 0))
            k++;
        if (k == sizeof words / sizeof *words) return -1;
        *parts |= words[k].bits;
        if (!text[length]) return 0;
        text += length + 1;
    }
}

static int read_locate(options *o, const char *name, const char *value, char *message, size_t bytes)
{
    if (read_parts(value, &o->locate) == 0) return 0;
    return bad(message, bytes, name, value, "all, none, or words out of replay,search,cause,other,minimise,evidence,bundle");
}

static int read_strategy(options *o, const char *name, const char *value, char *message, size_t bytes)
{
    if (read_word(value, (const char *const[]){"sweep", "bisect"}, 2, &o->bisect) == 0) return 0;
    return bad(message, bytes, name, value, "sweep or bisect");
}

static int read_fault(options *o, const char *value, char *message, size_t bytes)
{
    if (strcmp(value, "list") != 0 && strcmp(value, "truths") != 0) return faults_read(&o->faults, value, message, bytes);
    o->list_faults = strcmp(value, "list") == 0 ? LIST_FAULTS : LIST_TRUTHS;
    return 0;
}

static int store(const option_row *row, options *o, const char *value, char *message, size_t bytes)
{
    char *at = (char *)o + row->at, *end, expected[96];
    double number;
    int word;
    switch (row->kind) {
    case TEXT: memcpy(at, &value, sizeof value); return 0;
    case SEED: {
        errno = 0;
        uint64_t seed = strtoull(value, &end, 10);
        if (end == value || *end || errno || *value == '-')
            return bad(message, bytes, row->name, value, "a number from 0 to 18446744073709551615");
        memcpy(at, &seed, sizeof seed);
        return 0;
    }
    case PRECISION:
        if (read_word(value, (const char *const[]){"fp32", "bf16", "fp16"}, 3, &word) != 0)
            return bad(message, bytes, row->name, value, "fp32, bf16 or fp16");
        o->model.format = (precision)word;
        return 0;
    case STATE:
        if (read_word(value, (const char *const[]){"none", "sampled", "full"}, 3, &word) != 0)
            return bad(message, bytes, row->name, value, "none, sampled or full");
        o->check_state = (state_check)word;
        return 0;
    case CHECK:
        if (strcmp(value, "forward") != 0) return bad(message, bytes, row->name, value, "forward");
        o->check_forward = 1;
        return 0;
    case FAULT: return read_fault(o, value, message, bytes);
    case LOCATE: return read_locate(o, row->name, value, message, bytes);
    case STRATEGY: return read_strategy(o, row->name, value, message, bytes);
    default: break;
    }
    if (read_number(row, value, &number) != 0) {
        snprintf(expected, sizeof expected, "%s from %g to %g",
                 row->kind == SIZE || row->kind == INTEGER ? "a whole number" : "a number", row->low, row->high);
        return bad(message, bytes, row->name, value, expected);
    }
    if (row->kind == SIZE) *(size_t *)(void *)at = (size_t)number;
    else if (row->kind == INTEGER) *(int64_t *)(void *)at = (int64_t)number;
    else if (row->kind == SINGLE) *(float *)(void *)at = (float)number;
    else *(double *)(void *)at = number;
    return 0;
}

static int check_together(const options *o, char *message, size_t bytes)
{
    if (o->model.channels % o->model.heads) {
        snprintf(message, bytes, "--channels %zu does not divide by --heads %zu", o->model.channels, o->model.heads);
        return -1;
    }
    return 0;
}

/* What `firstbad run` sets; an option of the command line is read later, and wins. */
static int read_environment(options *o, char *message, size_t bytes)
{
    const char *locate = getenv("FIRSTBAD_LOCATE"), *strategy = getenv("FIRSTBAD_STRATEGY");
    if (locate && *locate && read_locate(o, "FIRSTBAD_LOCATE", locate, message, bytes) != 0) return -1;
    if (strategy && *strategy && read_strategy(o, "FIRSTBAD_STRATEGY", strategy, message, bytes) != 0) return -1;
    return 0;
}

int options_read(options *o, int argc, char **argv, char *message, size_t bytes)
{
    *o = (options){
        .model = {.layers = 4, .heads = 4, .channels = 64, .block = 64, .batch = 2, .activation_gain = 1.0f, .seed = 1},
        .data = "/usr/share/common-licenses/GPL-3",
        .out = "checkpoints",
        .steps = 100,
        .warmup = 20,
        .log_every = 10,
        .gradient_blowup = -1,
        .max_skips = -1,
        .replica_period = 100,
        .accumulation = 1,
        .learning_rate = 2e-3,
        .learning_rate_min = 2e-4,
        .weight_decay = 0.1,
        .clip = 1.0,
        .loss_scale = 65536.0,
        .scale_growth_interval = 2000,
        .check_state = STATE_SAMPLED,
        .guard = 1,
        .locate = LOCATE_ALL,
        .bundle_max = 256,
    };
    if (read_environment(o, message, bytes) != 0) return -1;
    for (int i = 1; i < argc; i++) {
        const option_row *row = NULL;
        for (size_t k = 0; k < sizeof ROWS / sizeof *ROWS; k++)
            if (strcmp(argv[i], ROWS[k].name) == 0) row = &ROWS[k];
        if (!row) {
            snprintf(message, bytes, "unknown option %s; see firstbad-gpt --help", argv[i]);
            return -1;
        }
        if (row->kind == SET || row->kind == CLEAR) {
            *(int *)(void *)((char *)o + row->at) = row->kind == SET;
            continue;
        }
        if (i + 1 == argc) {
            snprintf(message, bytes, "option %s needs a value; see firstbad-gpt --help", argv[i]);
            return -1;
        }
        if (store(row, o, argv[++i], message, bytes) != 0) return -1;
    }
    return check_together(o, message, bytes);
}
