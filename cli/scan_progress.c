/*
 * The bar on standard error while a scan runs:
 *
 *     ckpt/step-000500  [===========>         ]  61 %  4.9 GB/s  2 s left
 *
 * It is drawn ten times a second at most, in one write, and first after a third of a second, so that what is over at once shows
 * nothing. The rate is that of the last second or so: that of the whole scan would hide a disk that became slow.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/os.h"
#include "scan_show.h"

enum { DRAW_NS = 100000000, FIRST_NS = 300000000, RATE_NS = 400000000, BAR_MIN = 10, BAR_MAX = 40, NAME_MIN = 12 };

static int64_t now_ns(void)
{
    const fb_os *os = fb_os_posix();
    return os->monotonic_ns(os->ctx);
}

/* Asked each time: a window is made narrower while one waits. One column stays free, or the cursor would move to the next line. */
static int columns_now(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col < 100 ? size.ws_col - 1 : 99;
    return 79;
}

void scan_bar_begin(scan_bar *bar, const char *path, int wanted)
{
    const char *term = getenv("TERM");
    memset(bar, 0, sizeof *bar);
    bar->on = wanted && isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    bar->path = path;
    bar->begun_ns = bar->last_ns = bar->rate_ns = now_ns();
}

static void time_left(double seconds, char *out, size_t room)
{
    enum { HOURS_MAX = 1000 };
    out[0] = '\0';
    if (seconds < 90) (void)snprintf(out, room, "  %.0f s left", seconds < 1 ? 1.0 : seconds);
    else if (seconds < 5400) (void)snprintf(out, room, "  %.0f min left", seconds / 60);
    else if (seconds < HOURS_MAX * 3600.0) (void)snprintf(out, room, "  %.1f h left", seconds / 3600);
}

void scan_bar_text(const scan_bar *bar, uint64_t done_bytes, uint64_t total_bytes, int columns, char *out, size_t room)
{
    char numbers[128], left[48] = "", rate[48] = "", amount[32], name[512], picture[BAR_MAX + 3];
    double share = total_bytes ? (double)done_bytes / (double)total_bytes : 0;
    int bar_columns, name_columns = scan_width(bar->path), rest;
    if (share > 1) share = 1;
    if (bar->rate > 0) {
        (void)snprintf(rate, sizeof rate, "  %s/s", scan_bytes((uint64_t)bar->rate, amount));
        if (total_bytes > done_bytes) time_left((double)(total_bytes - done_bytes) / bar->rate, left, sizeof left);
    }
    (void)snprintf(numbers, sizeof numbers, " %3d %%%s%s", (int)(share * 100), rate, left);
    rest = columns - scan_width(numbers);
    if (name_columns > rest / 2) name_columns = rest / 2 > NAME_MIN ? rest / 2 : NAME_MIN;
    bar_columns = rest - name_columns - 4; /* two spaces and two brackets */
    if (bar_columns > BAR_MAX) bar_columns = BAR_MAX;
    if (bar_columns < BAR_MIN) { /* too narrow for a picture: the numbers matter more */
        if (columns >= scan_width(numbers)) (void)snprintf(out, room, "%s", numbers + 1);
        else (void)snprintf(out, room, "%.*s", columns > 0 ? columns : 0, numbers + 1);
        return;
    }
    picture[0] = '[';
    for (int i = 0; i < bar_columns; i++) {
        double edge = share * bar_columns;
        picture[i + 1] = i + 1 <= (int)edge ? '=' : i == (int)edge ? '>' : ' ';
    }
    picture[bar_columns + 1] = ']';
    picture[bar_columns + 2] = '\0';
    scan_fit_name(bar->path, name_columns, name, sizeof name);
    (void)snprintf(out, room, "%s  %s%s", name, picture, numbers);
}

static void measure_rate(scan_bar *bar, int64_t now, uint64_t done_bytes)
{
    int64_t passed = now - bar->rate_ns;
    double fresh;
    if (passed < RATE_NS || done_bytes < bar->rate_bytes) return;
    fresh = (double)(done_bytes - bar->rate_bytes) / ((double)passed / 1e9);
    bar->rate = bar->rate > 0 ? 0.6 * bar->rate + 0.4 * fresh : fresh;
    bar->rate_ns = now;
    bar->rate_bytes = done_bytes;
}

void scan_bar_progress(scan_bar *bar, uint64_t done_bytes, uint64_t total_bytes)
{
    char text[1024], line[1100];
    int64_t now;
    int bytes;
    if (!bar->on) return;
    now = now_ns();
    measure_rate(bar, now, done_bytes);
    if (now - bar->begun_ns < FIRST_NS || (bar->drawn && now - bar->last_ns < DRAW_NS)) return;
    scan_bar_text(bar, done_bytes, total_bytes, columns_now(), text, sizeof text);
    /* The rest of the line is wiped after the text and not before it, which would flicker. */
    bytes = snprintf(line, sizeof line, "\r%s\033[K", text);
    (void)!write(STDERR_FILENO, line, bytes < (int)sizeof line ? (size_t)bytes : sizeof line - 1);
    bar->last_ns = now;
    bar->drawn = 1;
}

void scan_bar_end(scan_bar *bar)
{
    static const char wipe[] = "\r\033[K";
    if (bar->drawn) (void)!write(STDERR_FILENO, wipe, sizeof wipe - 1);
    bar->drawn = 0;
}
