/*
 * replay_main: runs a fuzz driver over saved inputs, where there is no fuzzer. `fuzz_<name> FILE-OR-FOLDER...` hands every file to
 * LLVMFuzzerTestOneInput in the order of names, and closes with a count. A folder without a file is a failure: a replay of nothing
 * proves nothing.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    long bytes = -1;
    int ok = 0;
    if (!file) goto done;
    if (fseek(file, 0, SEEK_END) != 0 || (bytes = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0) goto done;
    /* Exactly as long as the input, so that a read past its end is seen by the address sanitizer. */
    data = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (!data || fread(data, 1, (size_t)bytes, file) != (size_t)bytes) goto done;
    ok = LLVMFuzzerTestOneInput(data, (size_t)bytes) == 0;
done:
    if (!ok) printf("FAIL %s\n", path);
    free(data);
    if (file) fclose(file);
    return ok;
}

static void replay(const char *path, unsigned *passed, unsigned *failed)
{
    struct stat info;
    struct dirent **names = NULL;
    int n;
    if (stat(path, &info) != 0) {
        printf("FAIL %s: cannot be read\n", path);
        ++*failed;
        return;
    }
    if (!S_ISDIR(info.st_mode)) {
        *(replay_file(path) ? passed : failed) += 1;
        return;
    }
    n = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char below[4096];
        if (names[i]->d_name[0] != '.') {
            (void)snprintf(below, sizeof below, "%s/%s", path, names[i]->d_name);
            replay(below, passed, failed);
        }
        free(names[i]);
    }
    free(names);
}

int main(int argc, char **argv)
{
    unsigned passed = 0, failed = 0;
    for (int i = 1; i < argc; i++) replay(argv[i], &passed, &failed);
    if (passed + failed == 0) {
        printf("FAIL %s: no saved input\n", argc > 1 ? argv[1] : "no folder named");
        failed = 1;
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
