/*
 * locate.json, schema firstbad.locate/1 (docs/format/locate.md): written once by the rank that owns the origin, or, where there is
 * none, by the one that has the finding; and read back by `why`, `replay` and `bisect`, who trust nothing in it.
 */
#ifndef FB_LOCATE_LOCATE_JSON_H
#define FB_LOCATE_LOCATE_JSON_H

#include "locate/cause.h"
#include "locate/evidence.h"

typedef struct fb_locate_doc {
    const fb_locate_config *config; /* folder NULL: nothing is written */
    const fb_locate_result *result;
    const fb_witness *witness; /* NULL: none */
    const fb_cause *cause;     /* NULL: not judged */
    /* Every difference between run and replays, those of config included. */
    const char *const *differences;
    uint32_t difference_count;
    int32_t minimised; /* FB_MINIMISE_* of search/minimise.h; 0: not done */
    uint32_t minimise_tests;
    const char *notes; /* a sentence on what could not be done; NULL: nothing */
} fb_locate_doc;

/**
 * Write l3/ (where config->parts asks for evidence and there is a witness), then locate.json into config->folder. Evidence that
 * cannot be written is told in locate.json and fails nothing.
 * Errors: FB_E_USAGE, FB_E_EXISTS (there is one already, and it stays as it is), FB_E_IO, FB_E_NOMEM.
 */
fb_status fb_locate_write(const fb_os *os, const fb_locate_doc *doc, fb_error *err);

/* ---- reading ----------------------------------------------------------------------------------------------------------------- */

enum {
    FB_LOCATE_BYTES_MAX = 8 << 20, /* of a file that is read */
    FB_LOCATE_LINKS_MAX = 4096,    /* of a chain, of candidates and other lists: more are counted and passed over */
    FB_LOCATE_ROWS_MAX = 1 << 16
};

/* One operator or entry of a chain. Text is never NULL. */
typedef struct fb_locate_link {
    char op[64], module[128], source[256], tensor[128];
    char node[64];                /* autograd node that ran it; "" none */
    int32_t boundary, micro_step; /* micro_step -1: unknown */
    int32_t label;                /* FB_LABEL_* of search/bisect.h */
    int32_t entry;                /* 1: no operator */
    int64_t made, reads;          /* ids of tensors in that replay: `reads` is the `made` of the link before; -1: null */
} fb_locate_link;

typedef struct fb_locate_links {
    fb_locate_link *items;
    uint32_t count; /* of items */
    uint32_t total; /* that the file says there are */
} fb_locate_links;

/* What locate.json says. Text that is null there is "" here, numbers that are null are as said. Strings longer than their place are
   cut at a character. */
typedef struct fb_locate_file {
    char run_id[128], case_id[64];
    int64_t step;
    int32_t world, rank; /* rank: that wrote it */
    char precision[32];
    struct {
        int32_t rank, boundary, micro_step, kind;
        char module[128], tensor[128];
        int64_t tensor_id; /* -1: null */
    } finding;
    int32_t found; /* FB_LOCATED_* */
    char sentence[1024];
    /* Where it is. known 0: `location` was null. */
    struct {
        int32_t known, boundary, micro_step, rank, kind;
        char module[128], op[64], tensor[128], source[256], node[64];
        int64_t index[FB_DIMS_MAX];
        int32_t ndim; /* of index; 0: unknown */
        uint64_t bad, elements;
        int64_t shape[FB_DIMS_MAX];
        int32_t shape_ndim;
        int32_t format; /* FB_F16, ...; 0 unknown */
    } location;
    fb_locate_links candidates, chain, swallowed, later;
    struct {
        uint32_t tried, reproduced, other_tried, other_bad;
        int32_t faithful, persists; /* persists -1: not tried */
        char **differences;
        uint32_t difference_count;
    } replay;
    struct {
        int32_t class_number; /* FB_CAUSE_*; FB_CAUSE_UNKNOWN for a class that this build does not know */
        int32_t rule, certain, format, format_needed, has_value;
        char name[48], lies_in[16];
        char explanation[2048], witness[1024], fix[512], verify[512];
        double value, limit; /* has_value; may be non-finite */
        int64_t sample, sample_id, row;
    } cause;
    struct {
        int32_t state; /* FB_MINIMISE_*; 0: not done */
        uint32_t rows_needed, rows, columns, tokens_needed, tests;
        int32_t coupled;    /* 1: several samples, needed together */
        int32_t rest_shows; /* 1: the other samples show it as well, so that none is to blame; 0: they do not; -1: not tried */
        uint32_t *rows_kept;
        int64_t *sample_ids; /* [sample_count]; as many as rows_needed, or none */
        uint32_t kept_count, sample_count;
        int64_t (*spans)[3]; /* [span_count] row, first and last token that is needed */
        uint32_t span_count;
    } minimise;
    struct {
        uint32_t replays, search_replays;
        double seconds;
        char strategy[16];
    } cost;
    fb_evidence evidence;
    char notes[1024];
} fb_locate_file;

/* Errors: FB_E_NOTFOUND, FB_E_CORRUPT (not JSON, another schema, a member of the wrong kind: the sentence names it), FB_E_LIMIT,
   FB_E_IO, FB_E_NOMEM. On failure `out` is empty and needs no release. */
fb_status fb_locate_read(fb_locate_file *out, const fb_os *os, const char *folder, fb_error *err);
fb_status fb_locate_parse(fb_locate_file *out, const void *bytes, size_t count, fb_error *err);
/* Accepts NULL, and one that is all zeros. */
void fb_locate_file_release(fb_locate_file *file);

/**
 * Is the chain whole: does it begin with the location's operator (or, of an entry, with a tensor that was there), run on link by
 * link, and end with the finding? A location without one must not be shown as a name. Returns 1 or 0; why (NULL, or room for a
 * sentence) says what is wrong.
 */
int fb_locate_chain_whole(const fb_locate_file *file, char *why, size_t room);

#endif
