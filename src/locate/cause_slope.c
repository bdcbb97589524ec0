/*
 * Slopes that are infinite. In backward a framework runs kernels within the node of the operator whose slope it takes, and a
 * division by 0 in the node of a square root is no careless division of the program's: it is the slope of sqrt at 0, and what has
 * to change is what the root is taken of. The formulas are those of PyTorch's derivatives.yaml; a node that is not listed leaves
 * the kernel's own words as they are. Where the framework itself fills in 0 at the point (the norm, the deviation) nothing bad gets
 * out of the node.
 */
#include <string.h>

#include "locate/cause_inside.h"

static const struct {
    const char *node, *shown, *point;
} slopes[] = {
    {"sqrt", "the square root", "0"},                    /* grad / (2 * result) */
    {"rsqrt", "the reciprocal of the square root", "0"}, /* -0.5 * grad * result^3 */
    {"pow", "a power", "0, with an exponent below 1,"},  /* grad * e * self^(e - 1) */
    {"log", "the logarithm", "0"},                       /* grad / self */
    {"log2", "the logarithm", "0"},                      /* grad / (self * ln 2) */
    {"log10", "the logarithm", "0"},                     /* grad / (self * ln 10) */
    {"log1p", "log1p", "-1"},                            /* grad / (self + 1) */
    {"acos", "acos", "1 and -1"},                        /* grad * -rsqrt(1 - self^2) */
    {"asin", "asin", "1 and -1"},                        /* grad * rsqrt(1 - self^2) */
    {"acosh", "acosh", "1"},                             /* grad * rsqrt(self^2 - 1) */
    {"atanh", "atanh", "1 and -1"},                      /* grad / (1 - self^2) */
    {"erfinv", "erfinv", "1 and -1"},
    {"logit", "logit", "0 and 1"}, /* grad / (self * (1 - self)) */
    {"hypot", "hypot", "(0, 0)"},  /* grad * self / result */
    {"norm", "the norm", "0"},     /* self * grad / norm */
    {"linalg_vector_norm", "the norm", "0"},
    {"cdist", "the distance", "0"},
    {"std", "the standard deviation", "a row in which all are equal"}, /* grad / (2 * result) */
    {"std_mean", "the standard deviation", "a row in which all are equal"},
    {"linalg_eigh", "the eigenvectors", "eigenvalues that are equal"}, /* 1 / (e_i - e_j) */
    {"linalg_eig", "the eigenvectors", "eigenvalues that are equal"},
    {"linalg_svd", "the singular vectors", "singular values that are equal, or 0"},
};

void fb_slope_of(fb_look *look)
{
    fb_domain *d = &look->domain;
    const char *node = look->w->place.node;
    char stem[96];
    int32_t backward;
    if (!node || !node[0] || look->w->place.boundary != FB_LOCAL_GRAD || look->backward) return;
    if (d->what != FB_DOMAIN_BY_ZERO && d->what != FB_DOMAIN_ZERO_BY_ZERO) return;
    (void)fb_op_stem(stem, sizeof stem, node, &backward);
    for (size_t i = 0; backward && i < sizeof slopes / sizeof *slopes; i++) {
        if (strcmp(slopes[i].node, stem) != 0) continue;
        d->what = FB_DOMAIN_SLOPE;
        d->of = slopes[i].shown;
        d->point = slopes[i].point;
    }
}
