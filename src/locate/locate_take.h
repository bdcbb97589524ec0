/*
 * Values of locate.json as they are taken out of the stream, each with its bounds: what locate_read.c is made of. A value of the
 * wrong kind refuses the file with a sentence that names its key; null is "not known" everywhere.
 */
#ifndef FB_LOCATE_LOCATE_TAKE_H
#define FB_LOCATE_LOCATE_TAKE_H

#include "base/json_read.h"
#include "locate/locate_json.h"

enum { FB_TAKE_KEY_MAX = 48 };

typedef struct fb_reading {
    fb_json_reader json;
    fb_error *err;
    int has_schema, has_found;
} fb_reading;

/* Takes the value of a key that it knows and sets *known; leaves the value alone otherwise. */
typedef fb_status (*fb_member_fn)(fb_reading *r, const char *key, void *of, int *known);
typedef const char *(*fb_name_fn)(int32_t number);

fb_status fb_locate_take_wrong(fb_reading *r, const fb_json_token *token, const char *key, const char *expected);
fb_status fb_locate_take_no_memory(fb_reading *r);

/* A text, cut to its room at a character; null gives "". fb_locate_take_copy: of a token that was taken already. */
fb_status fb_locate_take_text(fb_reading *r, const char *key, char *out, size_t room);
fb_status fb_locate_take_copy(fb_reading *r, const fb_json_token *token, char *out, size_t room);
/* null gives `otherwise`; a number outside of [low, high] is refused. */
fb_status fb_locate_take_integer(fb_reading *r, const char *key, int64_t low, int64_t high, int64_t otherwise, int64_t *out);
fb_status fb_locate_take_int32(fb_reading *r, const char *key, int32_t low, int32_t otherwise, int32_t *out);
/* null gives 0. */
fb_status fb_locate_take_count(fb_reading *r, const char *key, uint32_t *out);
fb_status fb_locate_take_uint64(fb_reading *r, const char *key, uint64_t *out);
fb_status fb_locate_take_hash(fb_reading *r, const char *key, uint64_t *out);
fb_status fb_locate_take_bool(fb_reading *r, const char *key, int32_t otherwise, int32_t *out);
/* A number, or the text of one that is not finite. *known: it was not null. */
fb_status fb_locate_take_number(fb_reading *r, const char *key, double *out, int32_t *known);
/* Out of the names of first .. last; another text, and null, give `otherwise`. */
fb_status fb_locate_take_name(fb_reading *r, const char *key, fb_name_fn name_of, int32_t first, int32_t last, int32_t otherwise,
                              int32_t *out);
/* At most `room` of them; null gives none. */
fb_status fb_locate_take_integers(fb_reading *r, const char *key, int64_t *out, int32_t room, int32_t *count);

/* An object, or null, which leaves everything as it is; *there says which. fb_locate_take_members: its brace was taken already. */
fb_status fb_locate_take_object(fb_reading *r, const char *key, fb_member_fn member, void *of, int32_t *there);
fb_status fb_locate_take_members(fb_reading *r, fb_member_fn member, void *of);
/* Open a list, or find null; then take its items, until *there is 0. */
fb_status fb_locate_take_list(fb_reading *r, const char *key, int *there);
fb_status fb_locate_take_item(fb_reading *r, fb_json_token *token, int *there);
/* Room for item number `count` of a list that doubles; NULL without memory, and then the list is as
 * it was (gone where count is 0). */
void *fb_locate_take_room(void *items, uint32_t count, size_t size);

#endif
