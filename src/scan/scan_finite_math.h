/*
 * Included first by every file of src/scan. Under -ffast-math or -ffinite-math-only the compiler may assume that no NaN exists and
 * delete what looks for one. Our tests are on integers and would survive, sums and conversions around them would not: refuse.
 */
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ == 1
#error "firstbad must not be built with -ffast-math, -Ofast or -ffinite-math-only: they delete the checks it is made of"
#endif
