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

void gather_images(const char *images, const int64_t *labels, const int64_t *rows, int64_t count,
                   int64_t batch_rows, int64_t image_bytes, char *restrict out,
                   int64_t *restrict out_labels)
{
    gather_vectors(images, rows, count, batch_rows, image_bytes, out);
    for (int64_t i = 0; i < count; i++)
        out_labels[i % batch_rows] = labels[rows[i]];
}

/* One batch of sequences, padded with 0 to the longest of it. Gives that length. */
static int64_t pad_batch(const int32_t *flat, const int64_t *offsets, const int64_t *rows,
                         int64_t count, int32_t *restrict values, int64_t *restrict lengths,
                         uint8_t *restrict mask)
{
    int64_t width = 0;
    for (int64_t i = 0; i < count; i++) {
        lengths[i] = offsets[rows[i] + 1] - offsets[rows[i]];
        width = lengths[i] > width ? lengths[i] : width;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t length = lengths[i], rest = width - length;
        memcpy(values + i * width, flat + offsets[rows[i]], length * sizeof *flat);
        memset(values + i * width + length, 0, rest * sizeof *flat);
        memset(mask + i * width, 1, length);
        memset(mask + i * width + length, 0, rest);
    }
    return width;
}

/* Gives the width of the last batch. */
int64_t gather_sequences(const int32_t *flat, const int64_t *offsets, const int64_t *rows,
                         int64_t count, int64_t batch_rows, int32_t *restrict values,
                         int64_t *restrict lengths, uint8_t *restrict mask)
{
    int64_t width = 0;
    for (int64_t i = 0; i < count; i += batch_rows) {
        int64_t left = count - i < batch_rows ? count - i : batch_rows;
        width = pad_batch(flat, offsets, rows + i, left, values, lengths, mask);
    }
    return width;
}
