/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "daemon/http/listen.h"
#include "proto/reflect.h"
#include "proto/spec.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICES_MOST = 1024, NODE_MOST = 63, STATE_DIR_MOST = 80 };

const char rb_settings_usage[] =
    "usage: rubatod --single-node --state-dir DIR [--cpu-devices N]\n"
    "       rubatod --node NAME --state-dir DIR --etcd URL[,URL] [--cpu-devices N] [--listen "
    "ADDR:PORT]\n"
    "       rubatod --config FILE\n"
    "\n"
    "  --single-node        keep a private etcd in DIR; nothing else is needed\n"
    "  --state-dir DIR      where this node keeps its state; DIR/rubatod.sock is for rubatoctl\n"
    "  --cpu-devices N      train on N devices of one core each (default: the cores)\n"
    "  --node NAME          this node's name (default: the host's)\n"
    "  --etcd URL[,URL]     the cluster's etcd: http://HOST:PORT, https://HOST:PORT or unix:PATH\n"
    "  --listen ADDR:PORT   where other nodes reach this one (default with --etcd: 127.0.0.1:0, "
    "which\n"
    "                       serves nodes on one host); anyone who reaches it can use this rubatod\n"
    "  --tls DIR            speak TLS there, and with other nodes: anyone with a certificate of "
    "DIR/ca.crt\n"
    "                       can use this rubatod; its own is DIR/tls.crt with DIR/tls.key\n"
    "  --etcd-tls DIR       trust etcd by DIR/ca.crt; show it DIR/tls.crt with DIR/tls.key, where "
    "they are\n"
    "  --http ADDR:PORT     serve a status page, /livez, /readyz and /metrics there, to anyone "
    "who\n"
    "                       reaches it (port 0: any)\n"
    "  --leave-timeout T    how long SIGTERM waits for jobs to leave (default 30s; a single node: "
    "4s)\n"
    "  --notice-command CMD a program and its arguments, split at blanks, that exits with 0 when "
    "this "
    "node\n"
    "                       will be taken away, and may say in how many seconds: it is drained\n"
    "  --notice-every T     how often to ask it (default 5s)\n"
    "  --config FILE        the same settings as YAML (stateDir: DIR, notice: {command: CMD})\n"
    "  --version, -h, --help\n";

enum word {
    CONFIG = 1,
    SINGLE_NODE,
    STATE_DIR,
    CPU_DEVICES,
    NODE,
    ETCD,
    LISTEN,
    TLS,
    ETCD_TLS,
    HTTP,
    LEAVE_TIMEOUT,
    NOTICE_COMMAND,
    NOTICE_EVERY,
    HELP,
    VERSION,
};

static const struct option options[] = {
    {"config", required_argument, NULL, CONFIG},
    {"single-node", no_argument, NULL, SINGLE_NODE},
    {"state-dir", required_argument, NULL, STATE_DIR},
    {"cpu-devices", required_argument, NULL, CPU_DEVICES},
    {"node", required_argument, NULL, NODE},
    {"etcd", required_argument, NULL, ETCD},
    {"listen", required_argument, NULL, LISTEN},
    {"tls", required_argument, NULL, TLS},
    {"etcd-tls", required_argument, NULL, ETCD_TLS},
    {"http", required_argument, NULL, HTTP},
    {"leave-timeout", required_argument, NULL, LEAVE_TIMEOUT},
    {"notice-command", required_argument, NULL, NOTICE_COMMAND},
    {"notice-every", required_argument, NULL, NOTICE_EVERY},
    {"help", no_argument, NULL, HELP},
    {"version", no_argument, NULL, VERSION},
    {0},
};

static void set_string(char **field, const char *text)
{
    free(*field);
    *field = rb_string(text);
}

static Rb__NoticeSettings *notice_of(Rb__DaemonSettings *value)
{
    if (!value->notice) {
        value->notice = rb_alloc(sizeof(*value->notice));
        rb__notice_settings__init(value->notice);
        value->notice->every = rb_string(value->notice->every); /* ours to free */
    }
    return value->notice;
}

static void clear_etcd(Rb__DaemonSettings *value)
{
    for (size_t i = 0; i < value->n_etcd; i++)
        free(value->etcd[i]);
    free(value->etcd);
    value->etcd = NULL;
    value->n_etcd = 0;
}

/* A list with commas; the option may be given more than once. */
static void add_etcd(Rb__DaemonSettings *value, const char *list)
{
    while (*list) {
        size_t length = strcspn(list, ",");
        if (length) {
            value->etcd = rb_realloc(value->etcd, (value->n_etcd + 1) * sizeof(*value->etcd));
            value->etcd[value->n_etcd++] = rb_format("%.*s", (int)length, list);
        }
        list += length + (list[length] == ',');
    }
}

static int set_devices(Rb__DaemonSettings *value, const char *text, struct rb_why *why)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n > DEVICES_MOST)
        return rb_why_set(why, RB_EINVAL, "--cpu-devices '%s': a number from 0 to %d", text,
                          DEVICES_MOST);
    value->has_cpu_devices = true;
    value->cpu_devices = (uint32_t)n;
    return RB_OK;
}

static int set(Rb__DaemonSettings *value, int option, const char *text, bool *etcd_seen,
               struct rb_why *why)
{
    switch (option) {
    case SINGLE_NODE:
        value->has_single_node = value->single_node = true;
        return RB_OK;
    case STATE_DIR:
        set_string(&value->state_dir, text);
        return RB_OK;
    case CPU_DEVICES:
        return set_devices(value, text, why);
    case NODE:
        set_string(&value->node, text);
        return RB_OK;
    case ETCD:
        if (!*etcd_seen)
            clear_etcd(value);
        *etcd_seen = true;
        add_etcd(value, text);
        return RB_OK;
    case LISTEN:
        set_string(&value->listen, text);
        return RB_OK;
    case TLS:
        set_string(&value->tls, text);
        return RB_OK;
    case ETCD_TLS:
        set_string(&value->etcd_tls, text);
        return RB_OK;
    case HTTP:
        set_string(&value->http, text);
        return RB_OK;
    case LEAVE_TIMEOUT:
        set_string(&value->leave_timeout, text);
        return RB_OK;
    case NOTICE_COMMAND:
        set_string(&notice_of(value)->command, text);
        return RB_OK;
    case NOTICE_EVERY:
        set_string(&notice_of(value)->every, text);
        return RB_OK;
    }
    return RB_OK;
}

/* Go through the command line: once for --config and what ends the program, once for the rest. */
static int go_through(int argc, char *const *argv, Rb__DaemonSettings *value,
                      struct rb_settings *settings, const char **config, struct rb_why *why)
{
    bool etcd_seen = false;
    optind = 0; /* start anew, also when called twice */
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        const char *word = argv[optind - 1];
        if (option == ':')
            return rb_why_set(why, RB_EINVAL, "%s needs a value", word);
        if (option == '?')
            return rb_why_set(why, RB_EINVAL, "unknown option %s", word);
        if (option == CONFIG)
            *config = optarg;
        settings->help = settings->help || option == HELP || option == 'h';
        settings->version = settings->version || option == VERSION;
        int err = value ? set(value, option, optarg, &etcd_seen, why) : RB_OK;
        if (err)
            return err;
    }
    if (optind < argc)
        return rb_why_set(why, RB_EINVAL, "what is '%s'? rubatod takes options only", argv[optind]);
    return RB_OK;
}

static int read_file(const char *path, Rb__DaemonSettings **ret, struct rb_why *why)
{
    struct rb_buffer text = {0};
    ProtobufCMessage *message = NULL;
    int err = rb_file_read(path, 1 << 20, &text, why);
    if (!err)
        err = rb_reflect_from_yaml(path, text.data ? text.data : "", text.size,
                                   &rb__daemon_settings__descriptor, &message, why);
    rb_buffer_done(&text);
    if (!err)
        *ret = (Rb__DaemonSettings *)message;
    return err;
}

static int check_name(const char *name, struct rb_why *why)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    if (!*name || strlen(name) > NODE_MOST || strspn(name, allowed) != strlen(name) ||
        strchr("-.", name[0]) || !strcmp(name, "leader"))
        return rb_why_set(why, RB_EINVAL,
                          "--node '%s': up to %d letters, digits, '-', '_' and '.', no '-' or '.' "
                          "in front, and not 'leader'",
                          name, NODE_MOST);
    return RB_OK;
}

static int check_duration(const char *text, const char *name, int64_t least, struct rb_why *why)
{
    int64_t ms;
    if (rb_spec_duration_ms(text, &ms) || ms < least)
        return rb_why_set(why, RB_EINVAL, "%s '%.40s': seconds, or 90s 5m 2h, at least %g s", name,
                          text, (double)least / 1e3);
    return RB_OK;
}

static int check_notice(const Rb__NoticeSettings *notice, struct rb_why *why)
{
    if (!notice)
        return RB_OK;
    if (!notice->command)
        return rb_why_set(why, RB_EINVAL,
                          "--notice-every (notice.every) goes with --notice-command");
    if (notice->command[0] != '/')
        return rb_why_set(why, RB_EINVAL,
                          "notice.command '%.80s': the absolute path of a program, and its "
                          "arguments, split at blanks; there is no shell",
                          notice->command);
    return check_duration(notice->every, "notice.every", 100, why);
}

static int check_tls(const Rb__DaemonSettings *value, struct rb_why *why)
{
    if (value->tls && !value->listen)
        return rb_why_set(why, RB_EINVAL, "--tls is for --listen, and nothing listens here");
    if (value->etcd_tls && value->single_node)
        return rb_why_set(why, RB_EINVAL,
                          "--etcd-tls goes with --etcd; --single-node keeps its own etcd");
    for (size_t i = 0; value->etcd_tls && i < value->n_etcd; i++)
        if (strncmp(value->etcd[i], "https://", 8))
            return rb_why_set(why, RB_EINVAL, "--etcd-tls is for https://, and %s is none",
                              value->etcd[i]);
    return RB_OK;
}

static int check_http(const char *address, struct rb_why *why)
{
    struct sockaddr_storage parsed;
    int err = address ? rb_http_address(address, &parsed, why) : RB_OK;
    return err ? rb_why_add(why, err, "--http") : RB_OK;
}

static int complete(Rb__DaemonSettings *value, unsigned cores, struct rb_why *why)
{
    if (!value->state_dir || !*value->state_dir)
        return rb_why_set(why, RB_EINVAL, "--state-dir is missing");
    if (value->single_node && value->n_etcd)
        return rb_why_set(why, RB_EINVAL,
                          "--single-node keeps its own etcd: leave out one of it and --etcd");
    if (!value->single_node && !value->n_etcd)
        return rb_why_set(why, RB_EINVAL, "give --single-node, or --etcd URL for a cluster");
    if (value->state_dir[0] != '/') {
        RB_CLEANUP(rb_freep) char *here = getcwd(NULL, 0);
        RB_CLEANUP(rb_freep)
        char *absolute = rb_format("%s/%s", here ? here : "", value->state_dir);
        set_string(&value->state_dir, absolute);
    }
    for (size_t n = strlen(value->state_dir); n > 1 && value->state_dir[n - 1] == '/'; n--)
        value->state_dir[n - 1] = 0;
    if (strlen(value->state_dir) > STATE_DIR_MOST)
        return rb_why_set(
            why, RB_EINVAL,
            "--state-dir: '%.200s' is longer than %d bytes, and the paths of sockets in "
            "it would be too long for the system",
            value->state_dir, STATE_DIR_MOST);
    if (!value->node) {
        char host[NODE_MOST + 1] = "";
        if (!gethostname(host, sizeof(host) - 1))
            set_string(&value->node, host);
        else
            set_string(&value->node, "node");
    }
    if (!value->listen && !value->single_node)
        set_string(&value->listen, "127.0.0.1:0");
    if (!value->single_node &&
        (!strncmp(value->listen, "0.0.0.0:", 8) || !strncmp(value->listen, "[::]:", 5)))
        return rb_why_set(why, RB_EINVAL,
                          "--listen %s: others are told this address, so it has to be one by which "
                          "they reach this node",
                          value->listen);
    if (!value->has_cpu_devices) {
        value->has_cpu_devices = true;
        value->cpu_devices = cores;
    }
    if (value->cpu_devices > DEVICES_MOST)
        return rb_why_set(why, RB_EINVAL, "cpuDevices: at most %d", DEVICES_MOST);
    int err = check_tls(value, why);
    err = err ? err : check_http(value->http, why);
    err = err ? err : check_notice(value->notice, why);
    if (!err && value->leave_timeout)
        err = check_duration(value->leave_timeout, "--leave-timeout", 0, why);
    return err ? err : check_name(value->node, why);
}

uint64_t rb_settings_leave_ms(const Rb__DaemonSettings *settings)
{
    enum { SINGLE_MS = 4000, MS = 30000 }; /* a single node stops within 5 s in all */
    int64_t ms = settings->single_node ? SINGLE_MS : MS;
    if (settings->leave_timeout)
        rb_spec_duration_ms(settings->leave_timeout, &ms);
    return (uint64_t)ms;
}

char *rb_settings_host(const Rb__DaemonSettings *settings)
{
    const char *listen = settings->listen, *colon = listen ? strrchr(listen, ':') : NULL;
    if (!colon)
        return rb_string("127.0.0.1");
    if (listen[0] == '[' && colon > listen + 2)
        return rb_format("%.*s", (int)(colon - listen) - 2, listen + 1);
    return rb_format("%.*s", (int)(colon - listen), listen);
}

int rb_settings_read(int argc, char *const *argv, unsigned cores, struct rb_settings *ret,
                     struct rb_why *why)
{
    struct rb_settings settings = {0};
    const char *config = NULL;
    int err = go_through(argc, argv, NULL, &settings, &config, why);
    if (err || settings.help || settings.version) {
        if (!err)
            *ret = settings;
        return err;
    }
    if (config) {
        err = read_file(config, &settings.value, why);
        if (err)
            return err;
    } else {
        settings.value = rb_alloc(sizeof(*settings.value));
        rb__daemon_settings__init(settings.value);
    }
    err = go_through(argc, argv, settings.value, &settings, &config, why);
    if (!err)
        err = complete(settings.value, cores, why);
    if (err)
        rb_settings_done(&settings);
    else
        *ret = settings;
    return err;
}

void rb_settings_done(struct rb_settings *settings)
{
    if (settings->value)
        rb__daemon_settings__free_unpacked(settings->value, NULL);
    settings->value = NULL;
}
