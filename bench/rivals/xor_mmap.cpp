// The XOR of all 32-bit words of a file, as one would write it: a mapping and a loop. Prints the digest.
//
// Usage: xor_mmap FILE
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    if (count != 2) {
        std::fprintf(stderr, "usage: xor_mmap FILE\n");
        return 2;
    }
    int file = open(arguments[1], O_RDONLY);
    struct stat found;
    if (file < 0 || fstat(file, &found) != 0) {
        std::perror(arguments[1]);
        return 1;
    }
    std::size_t bytes = static_cast<std::size_t>(found.st_size);
    std::uint32_t digest = 0;
    if (bytes > 0) {
        void *start = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
        if (start == MAP_FAILED) {
            std::perror("mmap");
            return 1;
        }
        madvise(start, bytes, MADV_SEQUENTIAL);
        const std::uint32_t *words = static_cast<const std::uint32_t *>(start);
        for (std::size_t i = 0; i < bytes / 4; i++)
            digest ^= words[i];
        std::uint32_t last = 0;
        std::memcpy(&last, words + bytes / 4, bytes % 4);
        digest ^= last;
    }
    std::printf("%08x\n", digest);
    return 0;
}
