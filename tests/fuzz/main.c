/*
 * main.c - replays stored inputs through a fuzz target, without a fuzzer: each argument is a file,
 * or a folder whose files are taken. What once broke something stays broken loudly.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t replayed;

static void replay_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1); /* exact, so that a sanitizer sees one byte too far */
    if (!file || !data || fread(data, 1, size, file) != size) {
        perror(path);
        exit(1);
    }
    fclose(file);
    fprintf(stderr, "%s\n", path); /* the last line before a crash names its cause */
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    replayed++;
}

static void replay(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        exit(1);
    }
    if (!S_ISDIR(st.st_mode)) {
        replay_file(path, (size_t)st.st_size);
        return;
    }
    DIR *dir = opendir(path);
    if (!dir) {
        perror(path);
        exit(1);
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char child[4096];
        int len = snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && len > 0 && (size_t)len < sizeof(child))
            replay(child);
    }
    closedir(dir);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    printf("%zu inputs\n", replayed);
    return replayed > 0 ? 0 : 1; /* a corpus that went missing is a failure, not a pass */
}
