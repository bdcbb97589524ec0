/* located.h: what was located, in words for a person (stderr of the job), and the configuration of fb_locate_run. */
#ifndef GPT_LOCATED_H
#define GPT_LOCATED_H

#include "replay.h"
#include "trainer.h"

/* What is asked for and from which replay; the caller may change it before fb_locate_run. */
fb_locate_config located_config(const trainer *t, replay *r, const char *folder);
/* 1: first_bad.json in that folder says that the guard planted the finding. Collective, the same on every rank. */
int located_planted(const trainer *t, const char *folder);

/* The block of docs/gpt.md on stderr, of the rank that calls. */
void located_print(const fb_locate_config *config, const fb_locate_result *result, const fb_locate_words *words);

#endif
