/* So much work and no more: a chain of that many multiplications, in a program that does nothing else. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
	char *end = NULL;
	unsigned long long left = count == 2 ? strtoull(words[1], &end, 10) : 0;
	if (count != 2 || *end != '\0') {
		fputs("usage: work_loop MULTIPLICATIONS\n", stderr);
		return 2;
	}
	uint64_t value = 1;
	while (left-- > 0) {
		value *= 6364136223846793005u;
		__asm__ volatile("" : "+r"(value));
	}
	return value == 0;
}
