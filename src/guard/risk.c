#include "guard/risk.h"

#include <math.h>
#include <string.h>

#include "base/json_write.h"

void fb_risk_init(fb_risk *risk)
{
    memset(risk, 0, sizeof *risk);
    risk->deep_until = FB_RISK_FIRST_STEPS;
}

int fb_risk_deep(const fb_risk *risk)
{
    return risk->steps < risk->deep_until;
}

void fb_risk_raise(fb_risk *risk)
{
    risk->deep_until = risk->steps + 1 + FB_RISK_STEPS;
}

/* Median by insertion: the window is small. */
static double median(double *values, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        double value = values[i];
        uint32_t j = i;
        for (; j > 0 && values[j - 1] > value; j--) values[j] = values[j - 1];
        values[j] = value;
    }
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

static int is_spike(const fb_risk *risk, double loss)
{
    double sorted[FB_RISK_WINDOW], middle, spread, floor;
    if (risk->count < FB_RISK_WINDOW) return 0;
    memcpy(sorted, risk->losses, sizeof sorted);
    middle = median(sorted, FB_RISK_WINDOW);
    for (uint32_t i = 0; i < FB_RISK_WINDOW; i++) sorted[i] = fabs(risk->losses[i] - middle);
    spread = median(sorted, FB_RISK_WINDOW);
    floor = 1e-3 * fabs(middle); /* a loss that does not move has no spread: a thousandth of it is no spike */
    if (spread < floor) spread = floor;
    return !(loss - middle <= FB_RISK_SPIKE_MADS * spread);
}

int fb_risk_update(fb_risk *risk, int known, double loss)
{
    int spike = 0;
    risk->steps++;
    if (!known) return 0;
    if (!fb_json_is_number(loss)) {
        risk->not_numbers++;
        return 1; /* a trainer that does not hand its loss over for a check may still have told it here */
    }
    spike = is_spike(risk, loss);
    risk->losses[risk->next] = loss;
    risk->next = (risk->next + 1) % FB_RISK_WINDOW;
    if (risk->count < FB_RISK_WINDOW) risk->count++;
    return spike;
}
