/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/conv_weights.h"

#include "kernels/cpu/conv_direct.h"
#include "kernels/cpu/conv_tile.h"
#include "kernels/cpu/product_pack.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)

/* PIXELS: of this many, both factors of a block stay in the first cache.  Sums of up to SMALL
 * bytes, which stay in the second cache, are gone through once for PIXELS, larger ones once for
 * MANY. */
enum { PIXELS = 128, MANY = 1024, SMALL = 192 << 10 };

/* In numbers: with large strides x is much more than what windows see of it. */
enum { MOST_COPIED = 8 << 20 };

/* How x or dy lies: image by image, and in each image block by block. */
struct side {
    int64_t blocks, plane; /* plane: numbers of a block in an image */
    bool copied;           /* images are copied, so that those of a block are side by side */
};

struct weights {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    struct rb_window window;
    int64_t m, taps;
    bool blocked;
    int64_t rows; /* of a block of x: its channels; if x is not in blocks, all of them */
    /* Gone through together: all lines of several images, or some of one. */
    int64_t images, lines;
    int64_t few_images, few_lines; /* of these, PIXELS at most where a line has no more */
    struct side x, y;
};

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- What is gone through --------------------------------------------------------------------*/

/* Some images from `first` on: as they lie, or copied so that those of a block are side by side. */
static const float *look_at(const struct side *side, const float *from, int64_t first, int64_t n,
                            float *copy)
{
    from += first * side->blocks * side->plane;
    if (!side->copied)
        return from;
    for (int64_t i = 0; i < n; i++)
        for (int64_t b = 0; b < side->blocks; b++, from += side->plane)
            memcpy(copy + (b * n + i) * side->plane, from, (size_t)side->plane * sizeof *copy);
    return copy;
}

/* From image to image of n, and from block to block. */
static int64_t image_step(const struct side *side)
{
    return side->copied ? side->plane : side->blocks * side->plane;
}

static int64_t block_step(const struct side *side, int64_t n)
{
    return side->copied ? n * side->plane : side->plane;
}

/* Some lines of some images: what both factors are there, and the sums of a block of each. */
struct piece {
    int64_t images, first, end; /* lines [first, end) of dy */
    const float *x, *dy;        /* of its first image, and block */
    float *sums;                /* [rows][taps][16] */
};

/* One tap, of those windows of the piece that see x there. */
static void add_tap(const struct weights *g, const struct piece *piece, int64_t k, int64_t line,
                    int64_t lines, int64_t l, int64_t pixel, int64_t pixels)
{
    const struct rb_window *w = &g->window;
    const int64_t number = g->blocked ? RB_BLOCK : 1, columns = w->in[2] * number;
    const int64_t row = line * w->stride[1] - w->begin[1] + k * w->dilation[1];
    const int64_t column = pixel * w->stride[2] - w->begin[2] + l * w->dilation[2];
    const struct rb_conv_pixels over = {.images = piece->images,
                                        .lines = lines,
                                        .pixels = pixels,
                                        .x_image = image_step(&g->x),
                                        .x_line = w->stride[1] * columns,
                                        .x_pixel = w->stride[2] * number,
                                        .y_image = image_step(&g->y),
                                        .y_line = w->out[2] * RB_BLOCK,
                                        .x_row = g->blocked ? 1 : w->in[1] * w->in[2]};
    const float *x = piece->x + row * columns + column * number;
    const float *dy = piece->dy + (line * w->out[2] + pixel) * RB_BLOCK;
    float *sums = piece->sums + (k * w->kernel[2] + l) * RB_BLOCK;
    const int64_t tiles = (g->rows + RB_CONV_ROWS - 1) / RB_CONV_ROWS, step = g->taps * RB_BLOCK;

    for (int64_t tile = 0, at = 0; tile < tiles; tile++) {
        const int64_t next = g->rows * (tile + 1) / tiles;

        rb_conv_weights_tile((int)(next - at), &over, x + at * over.x_row, dy, sums + at * step,
                             step);
        at = next;
    }
}

static void add_piece(const struct weights *g, const struct piece *piece)
{
    const struct rb_window *w = &g->window;
    int64_t line, line_end, pixel, pixel_end;

    for (int64_t k = rb_window_next(w, 1, 0, &line, &line_end); k < w->kernel[1];
         k = rb_window_next(w, 1, k + 1, &line, &line_end)) {
        line = line > piece->first ? line : piece->first;
        line_end = lesser(line_end, piece->end);
        for (int64_t l = rb_window_next(w, 2, 0, &pixel, &pixel_end);
             l < w->kernel[2] && line < line_end;
             l = rb_window_next(w, 2, l + 1, &pixel, &pixel_end))
            add_tap(g, piece, k, line, line_end - line, l, pixel, pixel_end - pixel);
    }
}

/* n images at x and dy, lines [first, end) of each: block by block of both, some pixels at a time.
 */
static void add_images(const struct weights *g, const float *x, const float *dy, int64_t n,
                       int64_t first, int64_t end, float *sums)
{
    for (int64_t o = 0; o < g->y.blocks; o++)
        for (int64_t b = 0; b < g->x.blocks; b++, sums += g->rows * g->taps * RB_BLOCK)
            for (int64_t i = 0; i < n; i += g->few_images)
                for (int64_t line = first; line < end; line += g->few_lines) {
                    const struct piece piece = {
                        .images = lesser(n - i, g->few_images),
                        .first = line,
                        .end = lesser(end, line + g->few_lines),
                        .x = x + b * block_step(&g->x, n) + i * image_step(&g->x),
                        .dy = dy + o * block_step(&g->y, n) + i * image_step(&g->y),
                        .sums = sums};

                    add_piece(g, &piece);
                }
}

/* [channels of x][taps][16] by block of dy, as [16][channels of x][taps]. */
static void write_sums(const struct weights *g, const float *sums, float *dw)
{
    const int64_t depth = g->window.c * g->taps;

    for (int64_t o = 0; o < g->m; o += RB_BLOCK, sums += RB_BLOCK * depth, dw += RB_BLOCK * depth)
        rb_turn(sums, RB_BLOCK, depth, RB_BLOCK, dw, depth);
}

/* ---- The kernel ------------------------------------------------------------------------------*/

static int64_t copy_of(const struct weights *g, const struct side *side)
{
    return side->copied ? g->images * side->blocks * side->plane : 0;
}

static void weights_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    const struct weights *g = (const struct weights *)kernel;
    const int64_t n_sums = g->m * g->window.c * g->taps, n = g->window.n, lines = g->window.out[1];
    float *sums = g->cpu->windows.memory, *copy_y = sums + n_sums;
    float *copy_x = copy_y + copy_of(g, &g->y);

    (void)key;
    memset(sums, 0, (size_t)n_sums * sizeof *sums);
    for (int64_t i = 0; i < n; i += g->images) {
        const int64_t some = lesser(n - i, g->images);
        const float *dy = look_at(&g->y, in[0], i, some, copy_y);
        const float *x = look_at(&g->x, in[1], i, some, copy_x);

        for (int64_t line = 0; line < lines; line += g->lines)
            add_images(g, x, dy, some, line, lesser(lines, line + g->lines), sums);
    }
    write_sums(g, sums, out[0]);
}

static void weights_free(struct rb_kernel *kernel)
{
    free(kernel);
}

/* How many images, or lines of one, are about `pixels` pixels. */
static void find_part(const struct weights *g, int64_t pixels, int64_t *ret_images,
                      int64_t *ret_lines)
{
    const int64_t lines = g->window.out[1], columns = g->window.out[2];
    const int64_t images = pixels / (lines * columns), some = pixels / columns;

    *ret_images = images < 1 ? 1 : lesser(images, g->window.n);
    *ret_lines = images < 1 ? some < 1 ? 1 : some : lines;
}

static void set_side(struct side *side, int64_t blocks, int64_t plane, int64_t images)
{
    *side = (struct side){blocks, plane, blocks > 1 && images > 1};
}

int rb_cpu_conv_weights(struct rb_cpu *cpu, const struct rb_window *w, int64_t m, bool blocked,
                        struct rb_kernel **ret_kernel)
{
    const int64_t taps = w->kernel[1] * w->kernel[2], n_sums = m * w->c * taps;
    struct weights *g;
    int64_t copied;
    int err = 0;

    if (!rb_conv_direct_suits(w, blocked))
        return RB_EUNSUPPORTED;
    g = rb_cpu_kernel(sizeof *g, weights_run);
    g->base.free = weights_free;
    g->cpu = cpu;
    g->window = *w;
    g->m = m;
    g->taps = taps;
    g->blocked = blocked;
    g->rows = blocked ? RB_BLOCK : w->c;
    find_part(g, n_sums * (int64_t)sizeof(float) > SMALL ? MANY : PIXELS, &g->images, &g->lines);
    find_part(g, PIXELS / w->stride[2], &g->few_images, &g->few_lines);
    set_side(&g->x, w->c / g->rows, w->in[1] * w->in[2] * g->rows, g->images);
    set_side(&g->y, m / RB_BLOCK, w->out[1] * w->out[2] * RB_BLOCK, g->images);
    copied = copy_of(g, &g->x) + copy_of(g, &g->y);
    if (copied > MOST_COPIED)
        err = RB_EUNSUPPORTED;
    else if (rb_cpu_need(&cpu->windows, (size_t)(n_sums + copied) * sizeof(float)))
        err = RB_ENOMEM;
    if (err) {
        weights_free(&g->base);
        return err;
    }
    *ret_kernel = &g->base;
    return 0;
}

#endif
