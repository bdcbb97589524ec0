/* located.c: see located.h. */
#include "located.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "the words of --locate stand for the parts of fb_locate_run")
SAME(LOCATE_REPLAY, FB_LOCATE_REPLAY);
SAME(LOCATE_SEARCH, FB_LOCATE_SEARCH);
SAME(LOCATE_CAUSE, FB_LOCATE_CAUSE);
SAME(LOCATE_OTHER, FB_LOCATE_OTHER_RANK);
SAME(LOCATE_MINIMISE, FB_LOCATE_MINIMISE);
SAME(LOCATE_EVIDENCE, FB_LOCATE_EVIDENCE);

fb_locate_config located_config(const trainer *t, replay *r, const char *folder)
{
    fb_locate_config c = FB_LOCATE_CONFIG_INIT;
    const replay_start *s = &r->start;
    c.rank = s->rank;
    c.world = s->world;
    c.finding_rank = s->finding.rank;
    c.finding_boundary = s->finding.boundary;
    c.finding_micro_step = s->finding.micro_step;
    c.finding_kind = s->finding.kind;
    c.finding_module = s->finding.module;
    c.finding_tensor = s->finding.tensor;
    c.parts = (uint32_t)t->options.locate & FB_LOCATE_ALL;
    c.strategy = t->options.bisect ? FB_LOCATE_BISECT : FB_LOCATE_SWEEP;
    c.folder = folder;
    c.precision = precision_name(t->options.model.format);
    c.rows = (uint32_t)(s->rows ? s->row_count : s->batch->rows);
    c.columns = (uint32_t)s->batch->columns;
    c.step = s->step;
    c.ctx = r;
    c.replay = replay_run;
    c.rerun = replay_rerun;
    c.max = s->world > 1 || r->processes > 1 ? replay_max : NULL;
    return c;
}

int located_planted(const trainer *t, const char *folder)
{
    static const char key[] = "\"injected\":"; /* within a string of the file its quotes would be escaped */
    char path[GPT_PATH_MAX + 32], text[1 << 14];
    const char *at;
    size_t bytes = 0;
    FILE *in;
    snprintf(path, sizeof path, "%s/first_bad.json", folder);
    if ((in = fopen(path, "r")) != NULL) {
        bytes = fread(text, 1, sizeof text - 1, in);
        fclose(in);
    }
    text[bytes] = '\0';
    at = strstr(text, key);
    if (at) at += strlen(key) + strspn(at + strlen(key), " ");
    return agree(t, at && strncmp(at, "true", 4) == 0);
}

/* One write for all of it: ranks share a terminal, and lines of another must not come between. */
void located_print(const fb_locate_config *config, const fb_locate_result *result, const fb_locate_words *words)
{
    size_t bytes = 0;
    char *text;
    if (fb_locate_text(config, result, words, NULL, &bytes, NULL) != FB_OK || (text = malloc(bytes)) == NULL) return;
    if (fb_locate_text(config, result, words, text, &bytes, NULL) == FB_OK) fwrite(text, 1, bytes - 1, stderr);
    free(text);
}
