/* The bundle on a given table of system calls, for tests and for the library's own callers; firstbad/bundle.h has the rest. */
#ifndef FB_BUNDLE_INSIDE_H
#define FB_BUNDLE_INSIDE_H

#include "firstbad/bundle.h"
#include "os/os.h"

/* `os` must outlive what is opened on it. */
fb_status fb_bundle_create_on(const fb_os *os, fb_bundle_writer **out, const fb_bundle_config *config, fb_error *err);
fb_status fb_bundle_seal_on(const fb_os *os, const char *folder, int32_t world, fb_error *err);
fb_status fb_bundle_open_on(const fb_os *os, fb_bundle **out, const char *folder, fb_error *err);

#endif
