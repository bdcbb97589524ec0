/*
 * How a Python program is attached to: a folder with a sitecustomize.py and a run.json, first in PYTHONPATH. The folder belongs to
 * one attempt of one run and lies on the run's own path, so that it is reached wherever the run is; it alone attaches, and the
 * FIRSTBAD_ variables only override, since some launchers pass on what begins with PYTHON and nothing else.
 *
 *   attach_find      the package: FIRSTBAD_PYTHON, in the wheel, behind the install prefix, beside the build
 *   attach_write     the folder
 *   attach_look      after the end: who came by
 */
#ifndef CLI_ATTACH_H
#define CLI_ATTACH_H

#include "firstbad/firstbad.h"
#include "os/os.h"

typedef struct attach {
    char package[FB_OS_PATH_MAX]; /* folder of the package firstbad; "": none, and why[] says so */
    char library[FB_OS_PATH_MAX]; /* the library that belongs to this tool; "": the package knows where its own is */
    char folder[FB_OS_PATH_MAX];  /* that stands in PYTHONPATH; "": nothing is attached */
    char *path;                   /* value of PYTHONPATH; freed by attach_release */
    char why[512];                /* why no Python program is attached to; "" when they are */
} attach;

/* Where the package and the library are. Never fails: what is missing is said in `why`. */
void attach_find(attach *out, const fb_os *os);

/**
 * Make the folder `ledger`/python. A peer that made it already made the same. On failure out->why is set and nothing is attached:
 * a job is started all the same.
 * env  variables for run.json; others than FIRSTBAD_ are left out.
 */
void attach_write(attach *out, const fb_os *os, const char *ledger, const fb_pair *env, size_t env_count);
void attach_release(attach *out);

/* What the folder tells. */
typedef struct attach_seen {
    int python;        /* 1: some Python ran our file: it left a compiled one, or a note; 0: not known to */
    uint64_t imported; /* processes that imported torch */
    uint64_t failed;   /* of these: could not be attached to, or gave it up */
    char error[512];   /* of one of them */
    char command[512]; /* that it runs */
} attach_seen;
void attach_look(attach_seen *out, const fb_os *os, const char *folder);

/* 1: this command is Python, or a launcher that is written in it. */
int attach_names_python(const char *word);
/* An option of Python in this command that keeps it from reading PYTHONPATH or sitecustomize: "-I", "-E", "-S"; NULL: none. */
const char *attach_blinded(char *const *command);

#endif
