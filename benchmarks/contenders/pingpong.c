/* Both sides of a ping-pong over two connected sockets; prints the seconds of all rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int ours = atoi(argv[1]), theirs = atoi(argv[2]), rounds = atoi(argv[3]);
    char data[100] = {0};
    if (argc != 4) return 2;
    if (fork() == 0) {
        for (int i = 0; i < rounds; i++)
            if (read(theirs, data, sizeof data) <= 0 || write(theirs, data, sizeof data) <= 0) return 1;
        return 0;
    }
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < rounds; i++)
        if (write(ours, data, sizeof data) <= 0 || read(ours, data, sizeof data) <= 0) return 1;
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%.9f\n", (b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) / 1e9);
    return 0;
}
