/* Whether a chain that was read proves what it is said to prove. */
#include <stdio.h>
#include <string.h>

#include "locate/locate_json.h"
#include "search/bisect.h"

static int broken(char *why, size_t room, const char *sentence, uint32_t link)
{
    if (why && room) snprintf(why, room, sentence, link);
    return 0;
}

static int begins(const fb_locate_file *file)
{
    const fb_locate_link *first = &file->chain.items[0];
    if (first->reads >= 0 || strcmp(first->module, file->location.module) != 0 || strcmp(first->tensor, file->location.tensor) != 0)
        return 0;
    if (file->found == FB_LOCATED_ENTRY) return first->entry;
    return !first->entry && first->label == FB_LABEL_GENERATE && first->op[0] && strcmp(first->op, file->location.op) == 0 &&
           first->boundary == file->location.boundary;
}

int fb_locate_chain_whole(const fb_locate_file *file, char *why, size_t room)
{
    const fb_locate_links *chain = &file->chain;
    if (!file->location.known) return broken(why, room, "no location is given", 0);
    if (file->found != FB_LOCATED_OPERATOR && file->found != FB_LOCATED_SET && file->found != FB_LOCATED_ENTRY) {
        return broken(why, room, "what was found is no single place", 0);
    }
    if (chain->count == 0) return broken(why, room, "there is no chain to the finding", 0);
    if (chain->total != chain->count)
        return broken(why, room, "the chain is too long to be checked: more than %u links", chain->count);
    if (!begins(file)) return broken(why, room, "the chain does not begin with the location", 0);
    for (uint32_t i = 0; i < chain->count; i++) {
        const fb_locate_link *link = &chain->items[i];
        if (link->made < 0) return broken(why, room, "link %u of the chain does not say what it made", i + 1);
        if (i == 0) continue;
        if (link->entry || link->label != FB_LABEL_PROPAGATE)
            return broken(why, room, "link %u of the chain is no operator that passes on", i + 1);
        if (link->reads != chain->items[i - 1].made)
            return broken(why, room, "link %u of the chain does not read what the one before made", i + 1);
    }
    if (file->finding.tensor_id < 0 || chain->items[chain->count - 1].made != file->finding.tensor_id) {
        return broken(why, room, "the chain does not end with the finding", 0);
    }
    if (why && room) why[0] = '\0';
    return 1;
}
