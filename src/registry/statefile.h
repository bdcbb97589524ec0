/*
 * firstbad-state.json inside the folder of a checkpoint: what was concluded, so that it travels with the bytes. It is a claim and
 * not
 * proof: the registry decides, and a state file that claims more than the registry says is passed over.
 *
 * It is made at birth, before the bytes are read, and later written in place, always of one size: a file that is put into the
 * folder changes the folder's time, which a scan takes for a change of the checkpoint. A write that a crash cut short leaves no
 * valid JSON, and then there is no claim. No digest counts it.
 */
#ifndef FB_REGISTRY_STATEFILE_H
#define FB_REGISTRY_STATEFILE_H

#include "evidence/records.h"
#include "os/os.h"

#define FB_STATE_FILE "firstbad-state.json"

/* What a folder's state file says; state 0: there is none, or nothing that can be read. */
typedef struct fb_state_claim {
    int32_t state, attempt;
    int64_t step;
    uint64_t digest;
    char run_id[256];
} fb_state_claim;

/*
 * Write what a record says into the folder that it speaks of; a file, a folder that is gone or cannot be written is left alone.
 * path    where the folder lies now, which may be aside.
 * home    absolute.
 * create  1: make the file if there is none.
 */
void fb_state_write(const fb_os *os, const char *path, const char *home, const fb_rec_ckpt *rec, int create);
void fb_state_read(const fb_os *os, const char *path, fb_state_claim *claim);

#endif
