/* What `firstbad replay` and `firstbad bisect` ask of the trainer that they start. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "firstbad/bundle.h"
#include "firstbad/locate.h"

typedef struct word {
    const char *text;
    uint32_t number;
} word;

static const word parts[] = {
    {"replay", FB_LOCATE_REPLAY},     {"search", FB_LOCATE_SEARCH},     {"cause", FB_LOCATE_CAUSE}, {"other", FB_LOCATE_OTHER_RANK},
    {"minimise", FB_LOCATE_MINIMISE}, {"evidence", FB_LOCATE_EVIDENCE}, {"all", FB_LOCATE_ALL},
};
static const word strategies[] = {{"sweep", FB_LOCATE_SWEEP}, {"bisect", FB_LOCATE_BISECT}};

static int find_word(const word *words, size_t n, const char *text, size_t bytes, uint32_t *number)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(words[i].text) == bytes && memcmp(words[i].text, text, bytes) == 0) {
            *number = words[i].number;
            return 1;
        }
    }
    return 0;
}

/* NULL when it is not set, or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static fb_status read_parts(uint32_t *out, fb_error *err)
{
    const char *text = variable("FIRSTBAD_REPLAY_PARTS");
    *out = 0;
    while (text) {
        const char *comma = strchr(text, ',');
        size_t bytes = comma ? (size_t)(comma - text) : strlen(text);
        uint32_t part = 0;
        if (!find_word(parts, sizeof parts / sizeof parts[0], text, bytes, &part)) {
            return fb_fail(err, FB_E_USAGE,
                           "read FIRSTBAD_REPLAY_PARTS: \"%.*s\" is none of replay, search, cause, other, minimise, evidence, all",
                           (int)(bytes < 64 ? bytes : 64), text);
        }
        *out |= part;
        text = comma ? comma + 1 : NULL;
    }
    return FB_OK;
}

static fb_status read_count(const char *name, uint32_t most, uint32_t *out, fb_error *err)
{
    const char *text = variable(name);
    uint64_t value = 0;
    *out = 0;
    for (const char *c = text; c && *c; c++) {
        value = *c >= '0' && *c <= '9' ? value * 10 + (uint64_t)(*c - '0') : (uint64_t)most + 1;
        if (value > most) {
            return fb_fail(err, FB_E_USAGE, "read %s: \"%.64s\" is no number from 0 to %u", name, text, (unsigned)most);
        }
    }
    *out = (uint32_t)value;
    return FB_OK;
}

static fb_status read_strategy(int32_t *out, fb_error *err)
{
    const char *text = variable("FIRSTBAD_REPLAY_STRATEGY");
    uint32_t strategy = FB_LOCATE_SWEEP;
    if (text && !find_word(strategies, sizeof strategies / sizeof strategies[0], text, strlen(text), &strategy))
        return fb_fail(err, FB_E_USAGE, "read FIRSTBAD_REPLAY_STRATEGY: \"%.64s\" is neither sweep nor bisect", text);
    *out = (int32_t)strategy;
    return FB_OK;
}

static fb_status read_path(const char *name, char *out, size_t room, fb_error *err)
{
    const char *text = variable(name);
    if (text && strlen(text) >= room) {
        return fb_fail(err, FB_E_USAGE, "read %s: a path of %zu bytes; at most %zu are taken", name, strlen(text), room - 1);
    }
    (void)snprintf(out, room, "%s", text ? text : "");
    return FB_OK;
}

fb_status fb_replay_asked(fb_replay_wanted *out, fb_error *err)
{
    fb_replay_wanted wanted;
    uint32_t size;
    fb_status status;
    if (!out || out->size < sizeof wanted) return fb_fail(err, FB_E_USAGE, "ask for a replay: start from FB_REPLAY_WANTED_INIT");
    size = out->size;
    memset(&wanted, 0, sizeof wanted);
    if (!variable("FIRSTBAD_REPLAY")) return fb_fail(err, FB_E_NOTFOUND, "ask for a replay: FIRSTBAD_REPLAY is not set");
    status = read_path("FIRSTBAD_REPLAY", wanted.bundle, sizeof wanted.bundle, err);
    if (status == FB_OK) status = read_path("FIRSTBAD_REPLAY_OUT", wanted.out, sizeof wanted.out, err);
    if (status == FB_OK) status = read_parts(&wanted.parts, err);
    if (status == FB_OK) status = read_count("FIRSTBAD_REPLAY_TIMES", 10000, &wanted.times, err);
    if (status == FB_OK) status = read_count("FIRSTBAD_REPLAY_PROBES", INT32_MAX, &wanted.probes_max, err);
    if (status == FB_OK) status = read_strategy(&wanted.strategy, err);
    if (status != FB_OK) return status;
    wanted.size = size;
    *out = wanted;
    return FB_OK;
}
