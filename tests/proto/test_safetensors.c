/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/safetensors.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const float weights[6] = {1, 2, 3, 4, 5, 6};
static const int64_t counter[1] = {7};
static const uint8_t flags[3] = {1, 0, 1};

static void fill(struct rb_safetensor tensors[4])
{
    tensors[0] = (struct rb_safetensor){"z.flags", {RB_BOOL, 1, {3}}, flags};
    tensors[1] = (struct rb_safetensor){"fc.weight", {RB_F32, 2, {2, 3}}, weights};
    tensors[2] = (struct rb_safetensor){"a \"b\"\n", {RB_F32, 1, {0}}, NULL};
    tensors[3] = (struct rb_safetensor){"count", {RB_I64, 0, {0}}, counter};
}

static void pack(struct rb_buffer *out, const char *header, size_t data)
{
    uint64_t size = strlen(header);

    for (int i = 0; i < 8; i++)
        rb_buffer_add(out, &(char){(char)(size >> (8 * i))}, 1);
    rb_buffer_text(out, header);
    memset(rb_buffer_reserve(out, data), 0, data);
    out->size += data;
}

static int read_text(const char *header, size_t data, struct rb_why *why)
{
    struct rb_buffer file = {0};
    struct rb_safetensor *tensors = NULL;
    int n = -1, err;
    void *exact;

    pack(&file, header, data);
    exact = malloc(file.size); /* so that a sanitizer sees a byte too far */
    memcpy(exact, file.data, file.size);
    err = rb_safetensors_read(exact, file.size, &tensors, &n, why);
    free(exact);
    free(tensors);
    rb_buffer_done(&file);
    return err;
}

/* Exactly these bytes: exports are compared by their hash. */
static void test_header(void **state)
{
    static const char expected[] =
        "{\"count\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"a \\\"b\\\"\\n\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]},"
        "\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
        "\"z.flags\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[32,35]}}";
    struct rb_safetensor tensors[4];
    struct rb_buffer out = {0};
    size_t size;

    (void)state;
    fill(tensors);
    rb_safetensors_header(tensors, 4, &out);
    size = (uint8_t)out.data[0] + 256u * (uint8_t)out.data[1];
    assert_int_equal(size % 8, 0);
    assert_int_equal(out.size, size + 8);
    assert_memory_equal(out.data + 8, expected, sizeof expected - 1);
    for (size_t i = 8 + sizeof expected - 1; i < out.size; i++)
        assert_int_equal(out.data[i], ' ');
    rb_buffer_done(&out);
}

static void test_round_trip(void **state)
{
    char path[] = "/tmp/rubato-safetensors-XXXXXX";
    struct rb_safetensor tensors[4], *read = NULL;
    char file[2048];
    uint64_t bytes;
    int n, fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    unlink(path);
    fill(tensors);
    assert_int_equal(rb_safetensors_write(fd, tensors, 4, NULL, 0, &bytes, NULL), 0);
    assert_int_equal(pread(fd, file, sizeof file, 0), (ssize_t)bytes);
    close(fd);
    assert_int_equal(rb_safetensors_read(file, bytes, &read, &n, NULL), 0);
    assert_int_equal(n, 4);
    assert_string_equal(read[0].name, "count");
    assert_string_equal(read[1].name, "a \"b\"\n");
    assert_int_equal(read[2].type.dim[1], 3);
    assert_memory_equal(read[2].data, weights, sizeof weights);
    assert_memory_equal(read[3].data, flags, sizeof flags);
    free(read);
    for (uint64_t cut = 0; cut < bytes; cut++) {
        void *exact = malloc(cut + 1);

        memcpy(exact, file, cut);
        read = NULL;
        assert_int_not_equal(rb_safetensors_read(exact, cut, &read, &n, NULL), 0);
        assert_null(read);
        free(exact);
    }
}

/* Notes stand in front, in their order, and are read back; a file without notes is read as having
 * none. */
static void test_notes(void **state)
{
    static const struct rb_safetensor_note notes[] = {{"format", "pt"}, {"b\n", "fc.weight"}};
    static const char expected[] = "{\"__metadata__\":{\"format\":\"pt\",\"b\\n\":\"fc.weight\"},"
                                   "\"count\":{";
    char path[] = "/tmp/rubato-safetensors-XXXXXX";
    struct rb_safetensor tensors[4], *read = NULL;
    struct rb_safetensor_note *found = NULL;
    struct rb_why why = {0};
    char file[2048];
    uint64_t bytes;
    int n, fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    unlink(path);
    fill(tensors);
    assert_int_equal(rb_safetensors_write(fd, tensors, 4, notes, 2, &bytes, NULL), 0);
    assert_int_equal(pread(fd, file, sizeof file, 0), (ssize_t)bytes);
    close(fd);
    assert_memory_equal(file + 8, expected, sizeof expected - 1);
    assert_int_equal(rb_safetensors_read(file, bytes, &read, &n, NULL), 0);
    assert_int_equal(n, 4);
    free(read);
    assert_int_equal(rb_safetensors_notes(file, bytes, &found, &n, NULL), 0);
    assert_int_equal(n, 2);
    assert_string_equal(found[0].key, "b\n");
    assert_string_equal(found[0].text, "fc.weight");
    assert_string_equal(found[1].key, "format");
    free(found);
    assert_int_equal(rb_safetensors_notes("\2\0\0\0\0\0\0\0{}", 10, &found, &n, NULL), 0);
    assert_int_equal(n, 0);
    free(found);
    assert_true(rb_safetensors_notes(file, 7, &found, &n, &why) < 0);
}

static void test_full_disk(void **state)
{
    struct rb_safetensor tensors[4];
    struct rb_why why = {0};
    int fd = open("/dev/full", O_WRONLY);

    (void)state;
    if (fd < 0)
        skip();
    fill(tensors);
    assert_int_equal(rb_safetensors_write(fd, tensors, 4, NULL, 0, NULL, &why), RB_EFULL);
    assert_non_null(strstr(why.text, "No space"));
    close(fd);
}

#define TENSOR(name, shape, from, to)                                                              \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void test_hostile(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        const char *why;
    } cases[] = {
        {"{" TENSOR("a", "[2]", 0, 8) "}", 9, "cut off"},
        {"{" TENSOR("a", "[2]", 0, 8) "}", 7, "do not lie"},
        {"{" TENSOR("a", "[2]", 4, 12) "}", 12, "hole"},
        {"{" TENSOR("a", "[2]", 0, 8) "," TENSOR("b", "[2]", 4, 12) "}", 12, "overlap"},
        {"{" TENSOR("a", "[2]", 0, 8) "," TENSOR("a", "[2]", 8, 16) "}", 16, "JSON"},
        {"{" TENSOR("a", "[3]", 0, 8) "}", 8, "agree"},
        {"{" TENSOR("a", "[-1]", 0, 8) "}", 8, "axis"},
        {"{" TENSOR("a", "[2.0]", 0, 8) "}", 8, "axis"},
        {"{" TENSOR("a", "[4611686018427387904,4]", 0, 0) "}", 0, "larger than any"},
        {"{" TENSOR("a", "[4611686018427387904,4,0]", 0, 0) "}", 0, "larger than any"},
        {"{" TENSOR("a", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "axes"},
        {"{" TENSOR("a", "[2]", 8, 0) "}", 8, "do not lie"},
        {"{" TENSOR("a", "[2]", 0, 9223372036854775808) "}", 8, "JSON"},
        {"{\"a\":{\"dtype\":\"F9\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "F9"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, "expected"},
        {"{\"a\":[]}", 0, "expected"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "strings"},
        {"[]", 0, "no JSON object"},
        {"", 0, "no JSON object"},
        {"{\"a\"", 0, "not JSON"},
    };

    static const char zip[] = "PK\3\4 and what torch.save puts there";
    struct rb_safetensor *tensors = NULL;
    struct rb_why other = {0};
    int n;

    (void)state;
    assert_int_equal(rb_safetensors_read((const void *)zip, sizeof zip, &tensors, &n, &other),
                     RB_EINVAL);
    assert_non_null(strstr(other.text, "safetensors.torch.save_file"));
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct rb_why why = {0};

        if (read_text(cases[i].header, cases[i].data, &why) >= 0)
            fail_msg("accepted: %s", cases[i].header);
        if (!strstr(why.text, cases[i].why))
            fail_msg("%s: %s", cases[i].header, why.text);
    }
    assert_int_equal(read_text("{}  ", 0, NULL), 0);
    assert_int_equal(read_text("{\"__metadata__\":{\"format\":\"pt\"}}", 0, NULL), 0);
    assert_int_equal(
        read_text("{" TENSOR("b", "[2]", 4, 12) "," TENSOR("a", "[]", 0, 4) "}", 12, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),  cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_notes),   cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_hostile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
