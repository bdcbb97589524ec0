/* See replay_show.h. */
#include "replay_show.h"

#include "base/alloc.h"
#include "base/json_write.h"
#include "cli.h"

/* locate.json as it stands: it was read as strict JSON before. */
static fb_status write_located(const replay_job *job, fb_json *json, fb_error *err)
{
    char path[FB_OS_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    fb_status status = fb_os_join(path, sizeof path, job->out, "locate.json", err);
    if (status == FB_OK) status = fb_os_read_file(fb_os_posix(), path, FB_LOCATE_BYTES_MAX, &data, &bytes, err);
    if (status != FB_OK) return status;
    while (bytes && (data[bytes - 1] == '\n' || data[bytes - 1] == ' ')) bytes--;
    fb_json_key(json, "locate");
    fb_json_raw(json, data, bytes);
    fb_free(data);
    return FB_OK;
}

int replay_show_json(const replay_job *job, int asked)
{
    fb_json json;
    fb_error err;
    int code;
    fb_json_init(&json, 0);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.replay/1");
    fb_json_key_string(&json, "status", replay_status(job, asked));
    fb_json_key_int(&json, "exit", replay_exit_code(job, asked));
    fb_json_key_string(&json, "case", job->place.id);
    fb_json_key_string(&json, "bundle", job->bundle_folder);
    fb_json_key_string(&json, "results", job->out);
    fb_json_key(&json, "command");
    fb_json_array_begin(&json);
    for (size_t i = 0; i < job->argument_count; i++) fb_json_string(&json, job->argv[i]);
    fb_json_array_end(&json);
    fb_json_key_string(&json, "cwd", job->cwd[0] ? job->cwd : NULL);
    fb_json_key_double(&json, "seconds", job->seconds);
    fb_json_key(&json, "differences");
    fb_json_array_begin(&json);
    for (uint32_t i = 0; i < job->notes.count; i++) fb_json_string(&json, job->notes.text[i]);
    fb_json_array_end(&json);
    fb_json_key_bool(&json, "witnessed", replay_is_located(job));
    code = write_located(job, &json, &err) != FB_OK ? cli_fail(&err) : 0;
    fb_json_object_end(&json);
    if (code == 0) code = fb_json_finish(&json, &err) != FB_OK ? cli_fail(&err) : cli_print(fb_json_text(&json));
    if (code == 0) code = cli_print("\n");
    fb_json_release(&json);
    return code;
}
