#include "locate/op_title.h"

#include <string.h>

#include "locate/cause_inside.h"

const char *fb_op_plain(char *out, size_t room, const char *op)
{
    const char *from = op ? op : "", *dot, *last;
    size_t bytes;
    int aten = strncmp(from, "aten.", 5) == 0 || strncmp(from, "aten::", 6) == 0;
    if (aten) from += from[4] == '.' ? 5 : 6;
    while (aten && *from == '_') from++;
    bytes = strlen(from);
    dot = strchr(from, '.');
    last = strrchr(from, '.');
    /* The overload, "Tensor_Scalar", says nothing about the arithmetic. A name with dots of a trainer's own is left alone. */
    if (aten && dot) bytes = (size_t)(dot - from);
    else if (!aten && last && last != dot && strcmp(last, ".default") == 0) bytes = (size_t)(last - from);
    if (bytes == 0) {
        from = op ? op : "";
        bytes = strlen(from);
    }
    out[0] = '\0';
    fb_say(out, room, "%.*s", (int)(bytes < 4096 ? bytes : 4096), from);
    return out;
}

/* A node of the framework itself is numbered, "SqrtBackward0"; what the program wrote is not, and
 * keeps its name: "MySqrtBackward". */
static void name_of_node(char *out, size_t room, const char *node)
{
    static const char tail[] = "Backward";
    const char *name = node, *at;
    size_t bytes;
    int32_t backward;
    for (at = strstr(name, "::"); at; at = strstr(name, "::")) name = at + 2;
    bytes = strlen(name);
    if (bytes > strlen(tail) && strcmp(name + bytes - strlen(tail), tail) == 0) {
        out[0] = '\0';
        fb_say(out, room, "%.*s", (int)(bytes - strlen(tail) < room ? bytes - strlen(tail) : room), name);
        return;
    }
    (void)fb_op_stem(out, room, name, &backward);
}

void fb_op_title_of(fb_op_title *out, const char *op, const char *node)
{
    char stem[64];
    int32_t backward;
    memset(out, 0, sizeof *out);
    (void)fb_op_plain(out->shown, sizeof out->shown, op);
    if (!node || !node[0]) return;
    memcpy(out->kernel, out->shown, sizeof out->kernel);
    name_of_node(out->shown, sizeof out->shown, node);
    (void)fb_op_stem(stem, sizeof stem, op, &backward);
    if (strcmp(stem, out->shown) == 0) out->kernel[0] = '\0';
}

const char *fb_op_title_text(char *out, size_t room, const char *op, const char *node)
{
    fb_op_title title;
    fb_op_title_of(&title, op, node);
    out[0] = '\0';
    fb_say(out, room, "%s%s%s%s", title.shown, title.kernel[0] ? " (" : "", title.kernel, title.kernel[0] ? ")" : "");
    return out;
}
