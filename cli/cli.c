#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "report/report.h"

enum { COLUMNS_MIN = 40, COLUMNS_MAX = 100 };

void cli_error(const char *format, ...)
{
    char text[8192];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fb_text_disarm(text);
    fprintf(stderr, "firstbad: %s\n", text);
}

int cli_fail(const fb_error *err)
{
    cli_error("%s", err->message);
    return err->code == FB_E_USAGE ? CLI_USAGE : CLI_UNREADABLE;
}

int cli_columns(FILE *out)
{
    struct winsize size;
    const char *text = getenv("COLUMNS");
    long columns = 0;
    if (isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0) columns = size.ws_col;
    if (columns == 0 && text) columns = strtol(text, NULL, 10);
    if (columns <= 0 || columns > COLUMNS_MAX) return COLUMNS_MAX;
    return columns < COLUMNS_MIN ? COLUMNS_MIN : (int)columns; /* narrower than labels and their text can be */
}

int cli_colour(FILE *out)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if (no_color && *no_color) return 0;
    if (term && strcmp(term, "dumb") == 0) return 0;
    return isatty(fileno(out)) != 0;
}

int cli_print(const char *text)
{
    size_t n = strlen(text);
    (void)fwrite(text, 1, n, stdout);
    return cli_flush();
}

int cli_flush(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    cli_error("write to standard output: %s", errno ? strerror(errno) : "not all of it went out");
    return CLI_UNREADABLE;
}

int cli_number(const char *option, const char *text, long long low, long long *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && *value >= low) return 1;
    cli_error("%s wants a whole number from %lld on, not '%s'", option, low, text);
    return 0;
}

static const cli_option *find_option(const cli_option *options, const char *text, size_t bytes)
{
    for (; options->name; options++) {
        if (strlen(options->name) == bytes && strncmp(options->name, text, bytes) == 0) return options;
    }
    return NULL;
}

/* One argument that begins with a dash; *at is moved past a value that is an argument of its own. 0 after a message. */
static int take_option(int argc, char **argv, int *at, const cli_option *options)
{
    const char *text = argv[*at], *equals = strchr(text, '=');
    const cli_option *option = find_option(options, text, equals ? (size_t)(equals - text) : strlen(text));
    if (!option) {
        cli_error("%s has no option %s; see firstbad %s --help", argv[0], text, argv[0]);
        return 0;
    }
    if (option->flag) {
        if (equals) cli_error("%s takes no value", option->name);
        *option->flag = 1;
        return !equals;
    }
    if (equals) {
        *option->value = equals + 1;
    } else if (*at + 1 < argc) {
        *option->value = argv[++*at];
    } else {
        cli_error("%s wants a value; see firstbad %s --help", option->name, argv[0]);
        return 0;
    }
    return 1;
}

int cli_parse(int argc, char **argv, const cli_option *options, const char *help, const char **words, int words_max,
              int *word_count, int *exit_code)
{
    int ended = 0;
    *word_count = 0;
    *exit_code = CLI_USAGE;
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        if (!ended && strcmp(text, "--") == 0) {
            ended = 1;
        } else if (!ended && (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0)) {
            *exit_code = cli_print(help);
            return 0;
        } else if (!ended && text[0] == '-' && text[1]) {
            if (!take_option(argc, argv, &i, options)) return 0;
        } else if (*word_count == words_max) {
            cli_error("%s does not know what to do with '%s'; see firstbad %s --help", argv[0], text, argv[0]);
            return 0;
        } else {
            words[(*word_count)++] = text;
        }
    }
    return 1;
}

char **cli_split_command(int *argc, char **argv)
{
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "--") != 0) continue;
        argv[i] = NULL;
        *argc = i;
        return argv + i + 1;
    }
    return NULL;
}
