/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of NVML's answers, with a library in its place (fake_nvml.c). */
#include "daemon/agent/devices.h"
#include "daemon/agent/nvml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/rubato-nvml.XXXXXX";

static void tell(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct rb_nvml_look look(struct rb_nvml *nvml, struct rb_nvml_gpu *gpu)
{
    struct rb_nvml_look found;

    rb_nvml_listen(nvml);
    rb_nvml_look_at(gpu, &found);
    return found;
}

static void no_library_is_a_sentence(void **state)
{
    struct rb_nvml *nvml;
    struct rb_why why = {{0}};

    (void)state;
    assert_int_equal(rb_nvml_open("/nonexistent/libnvidia-ml.so.1", &nvml, &why), RB_ENOTFOUND);
    assert_non_null(strstr(why.text, "/nonexistent"));
    assert_int_equal(rb_nvml_open("libc.so.6", &nvml, &why), RB_ENOTFOUND);
    assert_non_null(strstr(why.text, "lacks functions"));
    setenv("FAKE_NVML", "/nonexistent", 1);
    assert_int_equal(rb_nvml_open(getenv("RUBATO_NVML"), &nvml, &why), RB_ENOTFOUND);
    assert_non_null(strstr(why.text, "Driver Not Loaded"));
    setenv("FAKE_NVML", path, 1);
}

static void what_makes_a_gpu_sick(void **state)
{
    struct rb_nvml *nvml;
    struct rb_nvml_gpu *a, *b, *again;
    struct rb_nvml_look found;
    struct rb_why why = {{0}};

    (void)state;
    tell("");
    assert_int_equal(rb_nvml_open(getenv("RUBATO_NVML"), &nvml, &why), 0);
    assert_int_equal(rb_nvml_find(nvml, "0000:01:00.0", &a, &why), 0);
    assert_int_equal(rb_nvml_find(nvml, "0000:02:00.0", &b, &why), 0);
    assert_int_equal(rb_nvml_find(nvml, "0000:01:00.0", &again, &why), 0);
    assert_ptr_equal(a, again);
    found = look(nvml, a);
    assert_string_equal(found.sick, "");
    assert_int_equal(found.all, 1 << 30);

    /* A program's own error, and heat: the device is not sick. */
    tell("0000:01:00.0 xid 31\n0000:01:00.0 clocks 64\n0000:01:00.0 used 1000\n");
    found = look(nvml, a);
    assert_string_equal(found.sick, "");
    assert_string_equal(found.slow, "it is too hot");
    assert_int_equal(found.xids, 1);
    assert_int_equal(found.used, 1000);
    assert_int_equal(look(nvml, b).xids, 0);

    /* A sick device stays sick, whatever is reported later. */
    tell("0000:01:00.0 xid 31\n0000:01:00.0 xid 79\n0000:02:00.0 ecc 2\n");
    assert_string_equal(look(nvml, a).sick, "Xid 79: it has fallen off the bus");
    assert_string_equal(look(nvml, b).sick, "2 errors of its memory were not corrected");
    tell("0000:01:00.0 lost 1\n");
    found = look(nvml, a);
    assert_string_equal(found.sick, "Xid 79: it has fallen off the bus");
    assert_string_equal(found.slow, "");
    assert_int_equal(found.xids, 0);
    assert_string_equal(look(nvml, b).sick, "2 errors of its memory were not corrected");
    rb_nvml_close(nvml);
}

static void a_lost_gpu_is_sick(void **state)
{
    struct rb_nvml *nvml;
    struct rb_nvml_gpu *gpu;
    struct rb_why why = {{0}};

    (void)state;
    tell("0000:03:00.0 lost 1\n");
    assert_int_equal(rb_nvml_open(getenv("RUBATO_NVML"), &nvml, &why), 0);
    assert_int_equal(rb_nvml_find(nvml, "0000:03:00.0", &gpu, &why), 0);
    assert_string_equal(look(nvml, gpu).sick, "the driver has lost it");
    rb_nvml_close(nvml);
}

/* Others are told of changes, and of memory only where it changes much. */
static void changes_are_told(void **state)
{
    struct rb_devices *devices = rb_devices_new("/nonexistent", 0);
    struct rb_why why = {{0}};
    const char *line = "{\"devices\":[{\"index\":0,\"kind\":\"cuda\",\"bytes\":1600}]}";

    (void)state;
    assert_int_equal(rb_devices_take(devices, line, &why), 0);
    assert_false(rb_devices_note(devices, 0, "", "", 100));
    assert_true(rb_devices_note(devices, 0, "", "", 101));
    assert_false(rb_devices_note(devices, 0, "", "", 1));
    assert_true(rb_devices_note(devices, 0, "Xid 79", "", 101));
    assert_false(rb_devices_note(devices, 0, "Xid 79", "", 101));
    assert_string_equal(devices->at[0]->sick, "Xid 79");
    assert_true(rb_devices_note(devices, 0, "", "", 101));
    assert_null(devices->at[0]->sick);
    rb_devices_free(devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_library_is_a_sentence),
        cmocka_unit_test(what_makes_a_gpu_sick),
        cmocka_unit_test(a_lost_gpu_is_sick),
        cmocka_unit_test(changes_are_told),
    };
    int fd = mkstemp(path), failed;

    if (fd < 0)
        return 1;
    close(fd);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
