/* replay_main.h: the program when `firstbad replay` or `firstbad bisect` started it: replay a bundle,
 * write what came of it, end. */
#ifndef GPT_REPLAY_MAIN_H
#define GPT_REPLAY_MAIN_H

#include "trainer.h"

#include <firstbad/bundle.h>

/*
 * Collective. 0: it ran, and locate.json in wanted->out has the answer, whatever it is; EXIT_WRONG_USE: the program was started
 * with another shape than the bundle's; EXIT_FAILED: the bundle cannot be read, or there is no memory.
 */
int replay_main(trainer *t, const fb_replay_wanted *wanted);

#endif
