/* Numbers in names of files and folders. */
#ifndef FB_CKPT_RANK_NAME_H
#define FB_CKPT_RANK_NAME_H

#include <stddef.h>
#include <stdint.h>

/*
 * Take a name apart by a pattern in which each '#' stands for a decimal number of up to nine digits: "zero_pp_rank_#_mp_rank_#_*",
 * where a final '*' stands for any rest. numbers: as many as the pattern has. 1: it fits.
 */
int fb_rank_name(const char *pattern, const char *name, uint64_t *numbers);

/*
 * The name with the numbers of ranks and shards written as '#': all shards of one thing have it in common.
 * "mp_rank_03_001/model.pt" gives "mp_rank_#_#/model.pt". Other numbers, such as that of a step, stay. 1: there was such a number,
 * and it fitted into `room`.
 */
int fb_rank_family(const char *name, char *family, size_t room);

#endif
