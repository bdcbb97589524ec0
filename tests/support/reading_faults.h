/*
 * What every reader must survive, tried on one valid file each: every prefix, every failing request for memory, every failing call.
 * Each fails the running cmocka test, naming the place.
 */
#ifndef FB_TESTS_SUPPORT_READING_FAULTS_H
#define FB_TESTS_SUPPORT_READING_FAULTS_H

#include "ckpt/reader.h"

/* tail_bytes: so many bytes at the end may be missing (padding). */
void reading_every_prefix_is_refused(const fb_ckpt_reader *reader, const void *data, size_t bytes, size_t tail_bytes);
void reading_every_failing_allocation_is_told(const fb_ckpt_reader *reader, const void *data, size_t bytes);
void reading_every_failing_call_is_told(const fb_ckpt_reader *reader, const void *data, size_t bytes);
/* Bytes before and after it in the file change nothing but the places. */
void reading_a_window_is_read_alone(const fb_ckpt_reader *reader, const void *data, size_t bytes);
/* The three before and the window, on a file of this folder. */
void reading_survives(const fb_ckpt_reader *reader, const char *path, size_t tail_bytes);

#endif
