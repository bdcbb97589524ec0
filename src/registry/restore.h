/* A pinned checkpoint back under the name that a trainer looks for. */
#ifndef FB_REGISTRY_RESTORE_H
#define FB_REGISTRY_RESTORE_H

#include "registry/registry.h"

/*
 * If `found`, which was chosen from this home, is a pin: its own name gets the bytes again, as a second copy, and found->path is
 * that name. What lies there, a save that nobody vouches for, is moved aside first. The pin stays a pin where a copy can be made,
 * and is moved otherwise.
 */
fb_status fb_restore(const fb_os *os, const char *home, fb_registry_checkpoint *found, fb_error *err);

#endif
