/* The pieces of JSON that locate.json and l3/stack.json have in common. */
#include "evidence/site.h"
#include "locate/cause_inside.h"
#include "locate/evidence.h"
#include "search/bisect.h"

const char *fb_label_name(int32_t label)
{
    switch (label) {
    case FB_LABEL_CLEAN: return "clean";
    case FB_LABEL_GENERATE: return "generate";
    case FB_LABEL_PROPAGATE: return "propagate";
    case FB_LABEL_KILL: return "kill";
    default: return "unknown";
    }
}

void fb_evidence_key_number(fb_json *json, const char *key, double value)
{
    fb_json_key(json, key);
    if (fb_json_is_number(value)) fb_json_double(json, value);
    else fb_json_string(json, fb_number_is_neg_inf(value) ? "-inf" : fb_number_is_inf(value) ? "inf" : "nan");
}

void fb_evidence_key_format(fb_json *json, const char *key, int32_t format)
{
    fb_json_key(json, key);
    fb_json_string(json, fb_dtype_name(format));
}

/* Unknown text is null, not "". */
static void key_text(fb_json *json, const char *key, const char *text)
{
    fb_json_key(json, key);
    fb_json_string(json, text && text[0] ? text : NULL);
}

static void key_id(fb_json *json, const char *key, uint32_t id)
{
    if (id == FB_WITNESS_NONE) fb_json_key_null(json, key);
    else fb_json_key_uint(json, key, id);
}

void fb_evidence_link(fb_json *json, const fb_witness_place *place)
{
    fb_json_object_begin(json);
    key_text(json, "operator", place->entry ? NULL : place->op);
    key_text(json, "node", place->node);
    fb_json_key_string(json, "module", place->module);
    fb_json_key_string(json, "tensor", place->tensor);
    key_text(json, "source", place->source);
    key_text(json, "boundary",
             place->boundary >= FB_ENTRY && place->boundary <= FB_CHECKPOINT ? fb_boundary_name(place->boundary) : NULL);
    fb_json_key(json, "micro_step");
    if (place->micro_step < 0) fb_json_null(json);
    else fb_json_int(json, place->micro_step);
    fb_json_key_string(json, "label", fb_label_name(place->label));
    fb_json_key_bool(json, "entry", place->entry != 0);
    key_id(json, "made", place->made);
    key_id(json, "reads", place->reads);
    fb_json_object_end(json);
}
