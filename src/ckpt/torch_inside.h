/*
 * What the parts of torch_object share: places (storages, and bytes in memory), the tensors that live in them, remarks, and the
 * text of all names. Filled while the pickle is walked; turned into what torch_object.h hands out by fb_torch_finish.
 */
#ifndef FB_CKPT_TORCH_INSIDE_H
#define FB_CKPT_TORCH_INSIDE_H

#include "ckpt/torch_names.h"
#include "ckpt/torch_object.h"

/* Bounds on what is made of a pickle: a few bytes of it can name a long path or a shape of 64 dimensions again and again. */
enum { FB_TORCH_TENSORS_MAX = 2000000, FB_TORCH_TEXT_MAX = 256 << 20, FB_TORCH_DIMS_MAX = 32 << 20, FB_TORCH_UNSCANNED_MAX = 1000 };

enum { FB_TORCH_STORAGE = 1, FB_TORCH_BORROWED, FB_TORCH_OWNED, FB_TORCH_NUMBERS, FB_TORCH_ODD_NUMBER, FB_TORCH_ODD_NUMBERS };

typedef struct fb_torch_place {
    int32_t kind; /* FB_TORCH_STORAGE, ... */
    int32_t swapped;
    uint32_t name_at; /* key of a storage; path of what lies in memory */
    uint32_t root_at; /* 0: none */
    uint64_t root_offset;
    const fb_torch_format *format; /* of a storage; NULL: unknown class */
    uint64_t elements;
    const uint8_t *data;   /* BORROWED, OWNED */
    uint64_t bytes, at;    /* ODD_NUMBER: at, in the bytes of all odd numbers */
    uint64_t first, count; /* tensors, once finished */
} fb_torch_place;

typedef struct fb_torch_record {
    uint32_t place, name_at, dtype_at;
    int32_t dtype;
    uint32_t dims_at, ndim;
    uint64_t elements, offset_bytes;
    const char *unscanned;
    uint8_t strided, number, legal_inf;
} fb_torch_record;

typedef struct fb_torch_note {
    int32_t kind;
    uint32_t name_at, text_at;
    double value;
} fb_torch_note;

/* A growing run of 8-byte numbers. */
typedef struct fb_torch_words {
    uint64_t *data;
    uint64_t count, room;
} fb_torch_words;

/* Parameters of one optimizer, by number: places of names in the text, 0: unknown. */
typedef struct fb_torch_map {
    uint32_t *names;
    uint64_t count;
} fb_torch_map;

struct fb_torch_object {
    const fb_pickle *pickle;
    const char *path;
    uint32_t *marks; /* by node: VISITED, and a number whose meaning depends on the kind of node */
    char *text;      /* text[0] is "" */
    uint64_t text_used, text_room;
    uint64_t *dims;
    uint64_t dims_used, dims_room;
    fb_torch_place *places;
    uint64_t place_count, place_room;
    uint32_t *keys; /* open addressing over the keys of storages: place + 1 */
    uint64_t key_slots, storage_count;
    fb_torch_record *records;
    uint64_t record_count, record_room;
    fb_torch_words numbers, odd; /* finite ones; the others that have a name of their own */
    fb_torch_words more_odd;     /* and those that there are too many of */
    uint64_t odd_count;
    fb_torch_note *notes;
    uint64_t note_count, note_room, unscanned_count;
    fb_torch_map *maps;
    uint64_t map_count, map_room;
    fb_torch_words models; /* dicts that may be the parameters of a model; looked for once */
    int models_known;
    uint64_t work; /* steps spent on the search for names of parameters */
    /* Results. */
    fb_ckpt_tensor *tensors;
    fb_torch_storage *storages;
    uint32_t *extents; /* places */
    uint64_t extent_count;
};

#define FB_TORCH_VISITED 0x80000000u

/* A tensor as its arguments describe it; nodes that are 0 were not there. */
typedef struct fb_torch_view {
    fb_node storage, offset, size, stride, dtype;
    int quantised;
} fb_torch_view;

/* ---- torch_store.c ---- */
fb_status fb_torch_no_memory(const fb_torch_object *object, fb_error *err);
/* Keep a text, as it is. */
fb_status fb_torch_keep(fb_torch_object *object, const char *text, uint64_t bytes, uint32_t *at, fb_error *err);
/* Write text for eyes and terminals: control characters and what is not UTF-8 as \xNN. Returns the bytes written, at most room. */
uint64_t fb_torch_clean(char *out, uint64_t room, const char *text, uint64_t bytes);
fb_status fb_torch_add_place(fb_torch_object *object, const fb_torch_place *place, uint32_t *index, fb_error *err);
/* shape and strides are copied; strides NULL: dense. */
fb_status fb_torch_add_tensor(fb_torch_object *object, fb_torch_record record, const uint64_t *shape, const int64_t *strides,
                              fb_error *err);
fb_status fb_torch_remark_add(fb_torch_object *object, int32_t kind, uint32_t name_at, double value, fb_error *err,
                              const char *format, ...) __attribute__((format(printf, 6, 7)));
fb_status fb_torch_word(fb_torch_object *object, fb_torch_words *words, uint64_t word, fb_error *err);
fb_status fb_torch_finish(fb_torch_object *object, fb_error *err);

/* ---- torch_rebuild.c ---- */
/* The class of a call, FB_TORCH_*; 0 when the node is no call. */
int fb_torch_class(fb_torch_object *object, fb_node call);
int fb_torch_class_of_callee(fb_torch_object *object, fb_node callee);
/* See through Parameter and subclasses to the view of a tensor; 0: it is none, or none with a storage. */
int fb_torch_look(fb_torch_object *object, fb_node call, fb_torch_view *view);
/* The view that a callee of this class makes of its arguments. */
int fb_torch_view_of(fb_torch_object *object, int class_of, fb_node arguments, fb_node state, fb_torch_view *view);
/* The node of a tuple or list of integers: itself, or what torch.Size was called with. */
fb_node fb_torch_integers(const fb_torch_object *object, fb_node node);
/* The place of ('storage', type, key, location, elements[, view]). *index is UINT32_MAX when it is no such id. */
fb_status fb_torch_storage_of(fb_torch_object *object, fb_node persistent, uint32_t *index, fb_error *err);
fb_status fb_torch_add_view(fb_torch_object *object, const fb_torch_view *view, fb_node at, uint32_t name_at, fb_error *err);
fb_status fb_torch_add_storage(fb_torch_object *object, fb_node persistent, uint32_t name_at, int *known, fb_error *err);
fb_status fb_torch_refuse(const fb_torch_object *object, fb_node at, fb_error *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- torch_arrays.c ---- */
/* An array of numpy in a call of class ARRAY, SCALAR or FROM_BUFFER. *objects: its elements when they
 * are objects, to be walked; or 0. */
fb_status fb_torch_add_array(fb_torch_object *object, fb_node call, int class_of, uint32_t name_at, fb_node *objects,
                             fb_error *err);
/* Bytes of a BYTES node, or of the call by which protocol 2 writes bytes; 0: it is neither. */
int fb_torch_bytes_of(fb_torch_object *object, fb_node node, fb_node *holder, uint64_t *bytes);

/* ---- torch_optim.c ---- */
/* Names of the parameters of {'state': .., 'param_groups': ..}. *map: index + 1 in object->maps, 0 when nothing tells. */
fb_status fb_torch_name_parameters(fb_torch_object *object, fb_node state, fb_node groups, uint32_t *map, fb_error *err);

#endif
