/*
 * When to look deeper: a spike of the loss, a skip, lost headroom or an open case turns deep scanning on for the steps that follow,
 * and quiet turns it off. Robust against what it watches for: no non-finite number enters a statistic.
 */
#ifndef FB_GUARD_RISK_H
#define FB_GUARD_RISK_H

#include <stdint.h>

enum { FB_RISK_WINDOW = 32, FB_RISK_STEPS = 32, FB_RISK_FIRST_STEPS = 16 };

/* A loss this many median absolute deviations above the median of the window is a spike. 10 MADs are
 * 6.7 sigma of a normal series. */
#define FB_RISK_SPIKE_MADS 10.0

typedef struct fb_risk {
    double losses[FB_RISK_WINDOW]; /* ring of finite losses */
    uint32_t count, next;
    uint64_t steps;       /* updates seen */
    uint64_t deep_until;  /* value of `steps` up to which batches are scanned deep */
    uint64_t not_numbers; /* losses that were not finite: counted, never averaged */
} fb_risk;

void fb_risk_init(fb_risk *risk);
/* 1 when the coming checks shall be deep. */
int fb_risk_deep(const fb_risk *risk);
/* Something happened: deep from now on for FB_RISK_STEPS updates. */
void fb_risk_raise(fb_risk *risk);
/* End of an update with its loss (known or not). Returns 1 when the loss was a spike, or not finite. */
int fb_risk_update(fb_risk *risk, int known, double loss);

#endif
