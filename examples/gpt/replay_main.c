/* replay_main.c: see replay_main.h. */
#include "replay_main.h"
#include "capture.h"
#include "located.h"

#include <stdio.h>
#include <string.h>

/*
 * Which rank of the run this process plays. With fewer processes than ranks, the finding's rank must be among those that are
 * played: process 0 plays it then.
 */
static int32_t role_of(const trainer *t, int32_t finding_rank)
{
    return t->rank == 0 && finding_rank >= t->world ? finding_rank : t->rank;
}

static int tell(const trainer *t, int code, const fb_error *err)
{
    if (code) fprintf(stderr, "firstbad-gpt: rank %d: %s\n", t->rank, err->message[0] ? err->message : "no memory");
    return code;
}

static int run(trainer *t, captured *c, const fb_bundle *bundle, const fb_replay_wanted *wanted)
{
    fb_locate_result result = FB_LOCATE_RESULT_INIT;
    fb_locate_config config;
    fb_error err = {0};
    fb_status status;
    char folder[GPT_PATH_MAX + 8];
    double since = MPI_Wtime();
    replay r;
    if (replay_open(&r, &c->start, t->comm) != 0) return complain(t, EXIT_FAILED, "replay: no memory for a model of this size");
    config = located_config(t, &r, wanted->out[0] ? wanted->out : NULL);
    config.parts = wanted->parts ? wanted->parts : FB_LOCATE_ALL;
    config.times = wanted->times;
    config.strategy = wanted->strategy;
    config.probes_max = wanted->probes_max;
    /* A rank that nobody plays would count as one on which the batch is clean, and the machine would be suspected. */
    if (t->world < c->start.world) config.parts &= ~(uint32_t)FB_LOCATE_OTHER_RANK;
    if (config.world < t->world) config.world = t->world; /* processes beyond those of the run take part with a harmless batch */
    config.sample_ids = c->sample_ids;
    snprintf(folder, sizeof folder, "%s/..", wanted->bundle); /* a bundle lies in its case */
    config.finding_injected = located_planted(t, folder);
    config.differences = c->difference;
    config.difference_count = c->difference_count;
    config.run_id = fb_bundle_run_id(bundle);
    config.case_id = fb_bundle_case_id(bundle);
    status = fb_locate_run(&config, &result, &err);
    if (status != FB_OK || err.message[0]) (void)tell(t, 1, &err);
    if (status == FB_OK && c->start.rank == (result.owner >= 0 ? result.owner : c->start.finding.rank)) {
        char headline[128];
        snprintf(headline, sizeof headline, "step %lld, replayed from its bundle on %d of %d rank%s", (long long)c->start.step,
                 t->world, c->start.world, c->start.world == 1 ? "" : "s");
        fb_locate_words words = FB_LOCATE_WORDS_INIT;
        words.rank = t->rank;
        words.headline = headline;
        words.case_line = wanted->out;
        words.seconds = MPI_Wtime() - since;
        located_print(&config, &result, &words);
    }
    fb_locate_release(&result);
    replay_close(&r);
    /* Who started this wants the file; what could not be written is told in err, and is no error of the replay. */
    return agree(t, status != FB_OK || (wanted->out[0] && err.message[0]) ? EXIT_FAILED : 0);
}

static int read_all(trainer *t, captured *c, const fb_bundle *bundle)
{
    fb_error err = {0};
    int64_t rank = 0;
    int status = 0;
    if (fb_bundle_integer(bundle, 0, "finding.rank", &rank, &err) != FB_OK || rank < 0 || rank >= fb_bundle_world(bundle)) {
        snprintf(err.message, sizeof err.message, "replay %s: it does not say which rank has the finding",
                 fb_bundle_folder(bundle));
        status = EXIT_FAILED;
    }
    if (!status) status = capture_read(c, bundle, t, role_of(t, (int32_t)rank), &err);
    return agree(t, tell(t, status, &err));
}

int replay_main(trainer *t, const fb_replay_wanted *wanted)
{
    static captured c;
    fb_error err = {0};
    fb_bundle *bundle = NULL;
    int status = fb_bundle_open(&bundle, wanted->bundle, &err) == FB_OK ? 0 : EXIT_FAILED;
    status = agree(t, tell(t, status, &err));
    if (status) goto done;
    t->model = gpt_open(&t->options.model);
    t->optimizer = optimizer_of(&t->options);
    status = agree(t, t->model ? 0 : EXIT_FAILED);
    if (status) {
        (void)complain(t, status, "replay: no memory for a model of this size");
        goto done;
    }
    status = read_all(t, &c, bundle);
    if (!status) status = run(t, &c, bundle, wanted);
done:
    capture_free(&c);
    gpt_close(t->model);
    fb_bundle_close(bundle);
    return status;
}
