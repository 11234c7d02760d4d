/* The least work that makes a batch: rows copied, or widened, into memory that is used again. */

#include <stdint.h>
#include <string.h>

/* Windows of seq_len + 1 tokens, widened twice: once from the first token, once from the second. */
void gather_tokens(const uint16_t *const *shards, const int64_t *rows, int64_t count,
                   int64_t batch_rows, int64_t windows, int64_t seq_len, int64_t *restrict input,
                   int64_t *restrict target)
{
    for (int64_t i = 0; i < count; i++) {
        const uint16_t *from = shards[rows[i] / windows] + (rows[i] % windows) * seq_len;
        int64_t *x = input + (i % batch_rows) * seq_len;
        int64_t *y = target + (i % batch_rows) * seq_len;
        for (int64_t j = 0; j < seq_len; j++)
            x[j] = from[j];
        for (int64_t j = 0; j < seq_len; j++)
            y[j] = from[j + 1];
    }
}

void gather_vectors(const char *values, const int64_t *rows, int64_t count, int64_t batch_rows,
                    int64_t row_bytes, char *restrict out)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(out + (i % batch_rows) * row_bytes, values + rows[i] * row_bytes, row_bytes);
}
