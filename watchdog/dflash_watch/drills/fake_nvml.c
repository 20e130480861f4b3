/* A libnvidia-ml.so.1 for machines without a GPU: the real ABI, values from a small text file.
 *
 * The file is FAKE_NVML_STATE, else state.txt beside this library; it is read again whenever it has
 * changed. One setting a line (see __init__.py): `gpus 8`, `init 18`, `hang nvmlDeviceGetPowerUsage`,
 * `refuse nvmlDeviceGetSamples 4`, `gpu 3 lost 1`, `gpu 0 power_mw 690000`, `gpu 0 process 418 9060000000`,
 * `xid 1 3 79` (a number that grows, the card, the Xid).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15, MAX_GPUS = 16, MAX_RULES = 32,
       MAX_PROCESSES = 16, MAX_XIDS = 64, MAX_SETS = 4, TIMEOUT = 10, UTIL_RING = 71, POWER_RING = 119 };
typedef unsigned int uint;
typedef unsigned long long u64;
typedef struct { char call[64]; int gpu, code, hang; } Rule;
typedef struct {
    int lost, util, temp_c, sm_mhz, ecc, gpm, links, mig, num_processes, burst_ms;
    uint power_mw, limit_mw;
    u64 reasons, used, total;
    double sm, tensor, dram, energy_mj;
    u64 energy_at_us;
    struct { uint pid; u64 bytes; uint sm; } process[MAX_PROCESSES];
} Gpu;
typedef struct { int serial, gpu, number; } Xid;
static struct { char driver[64]; int init, gpus, num_rules, num_xids; Rule rule[MAX_RULES]; Gpu gpu[MAX_GPUS]; Xid xid[MAX_XIDS]; } S;
static struct timespec read_mtime;
static off_t read_size = -1;

static u64 now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (u64)t.tv_sec * 1000000ULL + t.tv_nsec / 1000;
}

static const char *state_path(void) {
    static char path[4096];
    const char *named = getenv("FAKE_NVML_STATE");
    Dl_info info;
    if (named && *named) return named;
    if (!path[0] && dladdr((void *)state_path, &info)) {
        char real[4096]; /* a link to the library leads to the file beside the library itself */
        strncat(path, realpath(info.dli_fname, real) ? real : info.dli_fname, sizeof path - 16);
        char *slash = strrchr(path, '/');
        strcpy(slash ? slash + 1 : path, "state.txt");
    }
    return path;
}

static void set_gpu(int i, const char *key, const char *value) {
    Gpu *g = &S.gpu[i];
    double number = atof(value);
    if (!strcmp(key, "lost")) g->lost = number;
    else if (!strcmp(key, "util")) g->util = number;
    else if (!strcmp(key, "burst_ms")) g->burst_ms = number;
    else if (!strcmp(key, "power_mw")) g->power_mw = number;
    else if (!strcmp(key, "limit_mw")) g->limit_mw = number;
    else if (!strcmp(key, "temp_c")) g->temp_c = number;
    else if (!strcmp(key, "sm_mhz")) g->sm_mhz = number;
    else if (!strcmp(key, "ecc")) g->ecc = number;
    else if (!strcmp(key, "gpm")) g->gpm = number;
    else if (!strcmp(key, "links")) g->links = number;
    else if (!strcmp(key, "mig")) g->mig = number;
    else if (!strcmp(key, "reasons")) g->reasons = strtoull(value, NULL, 0);
    else if (!strcmp(key, "used")) g->used = strtoull(value, NULL, 0);
    else if (!strcmp(key, "total")) g->total = strtoull(value, NULL, 0);
    else if (!strcmp(key, "sm")) g->sm = number;
    else if (!strcmp(key, "tensor")) g->tensor = number;
    else if (!strcmp(key, "dram")) g->dram = number;
    else if (!strcmp(key, "process") && g->num_processes < MAX_PROCESSES) {
        g->process[g->num_processes].sm = g->util;
        if (sscanf(value, "%u %llu", &g->process[g->num_processes].pid, &g->process[g->num_processes].bytes) == 2)
            g->num_processes++;
    }
}

static void defaults(void) {
    static u64 begin_us;
    if (!begin_us) begin_us = now_us();
    memset(&S, 0, sizeof S);
    strcpy(S.driver, "580.159.04");
    S.gpus = 8;
    for (int i = 0; i < MAX_GPUS; i++)
        S.gpu[i] = (Gpu){.util = 0, .temp_c = 37, .sm_mhz = 345, .power_mw = 78300, .limit_mw = 700000, .reasons = 1,
                         .used = 645000000ULL, .total = 150754820096ULL, .gpm = 1, .links = 18, .energy_at_us = begin_us,
                         .energy_mj = 2.8e6};
}

static void refresh(void) {
    struct stat there;
    char line[512], call[64], rest[256], key[64];
    int index, code, length;
    Xid xid;
    if (stat(state_path(), &there)) { if (!S.gpus) defaults(); return; }
    if (there.st_size == read_size && !memcmp(&there.st_mtim, &read_mtime, sizeof read_mtime)) return;
    FILE *file = fopen(state_path(), "r");
    if (!file) return;
    read_size = there.st_size;
    read_mtime = there.st_mtim;
    defaults();
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "gpu %d %63s %n", &index, key, &length) == 2 && index >= 0 && index < MAX_GPUS)
            set_gpu(index, key, line + length);
        else if (sscanf(line, "gpus %d", &index) == 1 && index >= 0 && index <= MAX_GPUS) S.gpus = index;
        else if (sscanf(line, "init %d", &code) == 1) S.init = code;
        else if (S.num_xids < MAX_XIDS && sscanf(line, "xid %d %d %d", &xid.serial, &xid.gpu, &xid.number) == 3)
            S.xid[S.num_xids++] = xid;
        else if (sscanf(line, "driver %63s", rest) == 1) strcpy(S.driver, rest);
        else if (S.num_rules < MAX_RULES) {
            Rule rule = {.gpu = -1};
            if (sscanf(line, "hang %63s %d", call, &rule.gpu) >= 1) rule.hang = 1;
            else if (sscanf(line, "hold %63s %d", call, &rule.gpu) >= 1) rule.hang = 2;
            else if (sscanf(line, "refuse %63s %d %d", call, &rule.code, &rule.gpu) < 2) continue;
            strcpy(rule.call, call);
            S.rule[S.num_rules++] = rule;
        }
    }
    fclose(file);
}

/* A rule names a call with or without its version: nvmlDeviceGetCount is nvmlDeviceGetCount_v2 too. */
static int is_about(const char *rule, const char *call) {
    size_t length = strlen(rule);
    return !strncmp(rule, call, length) && (!call[length] || !strncmp(call + length, "_v", 2));
}

/* What a rule says of this call: a code, or it never comes back. */
static int ruled(const char *call, int gpu) {
    refresh();
    for (int i = 0; i < S.num_rules; i++) {
        Rule *r = &S.rule[i];
        if (!is_about(r->call, call) || (r->gpu >= 0 && r->gpu != gpu)) continue;
        while (r->hang == 1) pause();
        if (r->hang == 2 && !vfork()) { /* its parent waits in state D for it */
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            sleep(600);
            _exit(0);
        }
        return r->code;
    }
    return OK;
}

#define EXPORT __attribute__((visibility("default"))) int
#define ENTER(gpu) do { int e_ = ruled(__func__, gpu); if (e_) return e_; } while (0)
/* A device handle is the address of its row. */
#define DEVICE(handle)                                                                                       \
    Gpu *g = (Gpu *)(handle);                                                                                \
    int index_ = (int)(g - S.gpu);                                                                           \
    if (index_ < 0 || index_ >= MAX_GPUS) return INVALID;                                                    \
    ENTER(index_);                                                                                           \
    if (g->lost) return LOST

EXPORT nvmlInitWithFlags(uint flags) { (void)flags; ENTER(-1); return S.init; }
EXPORT nvmlInit_v2(void) { ENTER(-1); return S.init; }
EXPORT nvmlShutdown(void) { return OK; }
__attribute__((visibility("default"))) const char *nvmlErrorString(int code) {
    switch (code) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 15: return "GPU is lost";
    case 18: return "RM has detected an NVML/RM version mismatch.";
    default: return "Unknown Error";
    }
}
EXPORT nvmlSystemGetDriverVersion(char *text, uint length) { ENTER(-1); snprintf(text, length, "%s", S.driver); return OK; }
EXPORT nvmlDeviceGetCount_v2(uint *count) { ENTER(-1); *count = S.gpus; return OK; }
EXPORT nvmlDeviceGetHandleByIndex_v2(uint index, void **handle) {
    ENTER((int)index);
    if ((int)index >= S.gpus) return INVALID;
    if (S.gpu[index].lost) return LOST;
    *handle = &S.gpu[index];
    return OK;
}
EXPORT nvmlDeviceGetIndex(void *d, uint *index) { DEVICE(d); *index = index_; return OK; }
EXPORT nvmlDeviceGetUUID(void *d, char *text, uint length) {
    DEVICE(d);
    snprintf(text, length, "GPU-fa4e0000-0000-4000-8000-%012d", index_);
    return OK;
}
EXPORT nvmlDeviceGetName(void *d, char *text, uint length) { DEVICE(d); snprintf(text, length, "NVIDIA H200"); return OK; }
EXPORT nvmlDeviceGetMemoryInfo(void *d, u64 *m) { DEVICE(d); m[0] = g->total; m[1] = g->total - g->used; m[2] = g->used; return OK; }
typedef struct { uint version; u64 total, reserved, free, used; } Memory2;
EXPORT nvmlDeviceGetMemoryInfo_v2(void *d, Memory2 *m) {
    DEVICE(d);
    if (m->version != 0x02000028) return 25;
    m->total = g->total; m->reserved = 0; m->used = g->used; m->free = g->total - g->used;
    return OK;
}
EXPORT nvmlDeviceGetMigMode(void *d, uint *current, uint *pending) { DEVICE(d); *current = *pending = g->mig; return OK; }
EXPORT nvmlDeviceGetUtilizationRates(void *d, uint *u) {
    DEVICE(d);
    if (g->mig) return NOT_SUPPORTED;
    u[0] = g->util; u[1] = g->dram;
    return OK;
}
EXPORT nvmlDeviceGetPowerUsage(void *d, uint *mw) { DEVICE(d); *mw = g->power_mw; return OK; }
EXPORT nvmlDeviceGetEnforcedPowerLimit(void *d, uint *mw) { DEVICE(d); *mw = g->limit_mw; return OK; }
EXPORT nvmlDeviceGetTemperature(void *d, int sensor, uint *celsius) { (void)sensor; DEVICE(d); *celsius = g->temp_c; return OK; }
EXPORT nvmlDeviceGetClockInfo(void *d, int kind, uint *mhz) { DEVICE(d); *mhz = kind == 2 ? 3201 : g->sm_mhz; return OK; }
EXPORT nvmlDeviceGetCurrentClocksEventReasons(void *d, u64 *mask) { DEVICE(d); *mask = g->reasons; return OK; }
EXPORT nvmlDeviceGetCurrentClocksThrottleReasons(void *d, u64 *mask) { DEVICE(d); *mask = g->reasons; return OK; }
EXPORT nvmlDeviceGetTotalEnergyConsumption(void *d, u64 *mj) {
    DEVICE(d);
    u64 now = now_us();
    g->energy_mj += g->power_mw * ((now - g->energy_at_us) / 1e6);
    g->energy_at_us = now;
    *mj = (u64)g->energy_mj;
    return OK;
}
EXPORT nvmlDeviceGetTotalEccErrors(void *d, int kind, int counter, u64 *count) {
    (void)counter;
    DEVICE(d);
    *count = kind == 1 ? g->ecc : 0;
    return OK;
}

/* Eighteen links, of which the first `links` are up; -1: a card without. */
EXPORT nvmlDeviceGetNvLinkState(void *d, uint link, uint *active) {
    DEVICE(d);
    if (g->links < 0) return 3;
    if (link >= 18) return 2;
    *active = link < (uint)g->links;
    return OK;
}
typedef struct { char legacy[16]; uint domain, bus, device, id, subsystem; char text[32]; } Pci;
EXPORT nvmlDeviceGetPciInfo_v3(void *d, Pci *pci) {
    DEVICE(d);
    snprintf(pci->text, sizeof pci->text, "00000000:%02X:00.0", 0x10 + index_);
    return OK;
}

typedef struct { u64 stamp; union { double d; uint ui; u64 ull; } value; } Sample;
/* Kind 0 is power at 50 Hz, kind 1 utilisation at 5 Hz; rings of 2.4 s and 14 s. A burst is on for half its length. */
EXPORT nvmlDeviceGetSamples(void *d, int kind, u64 last, int *type, uint *count, Sample *samples) {
    DEVICE(d);
    if ((kind != 0 && kind != 1) || (kind && g->mig)) return NOT_SUPPORTED;
    u64 step = kind ? 200000 : 20000, now = now_us() / step * step, ring = kind ? UTIL_RING : POWER_RING;
    u64 first = now - (ring - 1) * step;
    if (last >= first) first = last / step * step + step;
    uint there = first > now ? 0 : (uint)((now - first) / step + 1);
    *type = 1;
    if (!there) return NOT_FOUND;
    if (!samples) { *count = there; return OK; }
    if (*count < there) there = *count;
    for (uint i = 0; i < there; i++) {
        u64 stamp = first + i * step;
        int on = !g->burst_ms || (stamp / 1000 / g->burst_ms) % 2 == 0;
        uint jitter = (uint)(stamp / step * 2654435761u >> 7) % 900;
        samples[i].stamp = stamp;
        samples[i].value.ull = 0;
        samples[i].value.ui = kind ? (on ? g->util : 0) : (on ? g->power_mw : 120000) + jitter;
    }
    *count = there;
    return OK;
}
typedef struct { uint pid; u64 used; uint gpu_instance, compute_instance; } ProcessInfo;
EXPORT nvmlDeviceGetComputeRunningProcesses_v3(void *d, uint *count, ProcessInfo *rows) {
    DEVICE(d);
    uint room = *count;
    *count = g->num_processes;
    if (!g->num_processes) return OK;
    if (!rows || room < (uint)g->num_processes) return TOO_SMALL;
    for (int i = 0; i < g->num_processes; i++)
        rows[i] = (ProcessInfo){g->process[i].pid, g->process[i].bytes, ~0u, ~0u};
    return OK;
}
typedef struct { uint pid; u64 stamp; uint sm, memory, enc, dec; } ProcessSample;
EXPORT nvmlDeviceGetProcessUtilization(void *d, ProcessSample *rows, uint *count, u64 last) {
    DEVICE(d);
    u64 now = now_us() / 200000 * 200000;
    uint room = *count;
    if (!g->num_processes || now <= last) return NOT_FOUND;
    *count = g->num_processes;
    if (!rows || room < (uint)g->num_processes) return TOO_SMALL;
    for (int i = 0; i < g->num_processes; i++)
        rows[i] = (ProcessSample){g->process[i].pid, now, g->process[i].sm, 0, 0, 0};
    return OK;
}

typedef struct { int index; u64 at_us; } GpmSample;
typedef struct { uint id; int code; double value; const char *text[3]; } GpmMetric;
typedef struct { uint version, count; GpmSample *one, *two; GpmMetric metric[]; } GpmQuestion;
typedef struct { uint version, supported; } GpmSupport;
EXPORT nvmlGpmQueryDeviceSupport(void *d, GpmSupport *s) { DEVICE(d); s->supported = g->gpm && !g->mig; return OK; }
EXPORT nvmlGpmSampleAlloc(GpmSample **s) { ENTER(-1); *s = calloc(1, sizeof **s); return *s ? OK : 999; }
EXPORT nvmlGpmSampleFree(GpmSample *s) { free(s); return OK; }
EXPORT nvmlGpmSampleGet(void *d, GpmSample *s) {
    DEVICE(d);
    if (!g->gpm || g->mig) return NOT_SUPPORTED;
    s->index = index_;
    s->at_us = now_us();
    return OK;
}
EXPORT nvmlGpmMetricsGet(GpmQuestion *q) {
    ENTER(q->one ? q->one->index : -1);
    if (q->version != 1 || !q->one || !q->two || q->one->index != q->two->index) return INVALID;
    if (q->two->at_us <= q->one->at_us) return INVALID;
    Gpu *g = &S.gpu[q->one->index];
    for (uint i = 0; i < q->count; i++) {
        uint id = q->metric[i].id;
        q->metric[i].code = id == 2 || id == 5 || id == 10 ? OK : NOT_SUPPORTED;
        q->metric[i].value = id == 2 ? g->sm : id == 5 ? g->tensor : g->dram;
    }
    return OK;
}

/* Events: a set sees what comes after the registration of a card, and sees it again for each registration more. */
typedef struct { int used, seen[MAX_GPUS], times[MAX_GPUS], left, last; } EventSet;
typedef struct { void *device; u64 type, data; uint gpu_instance, compute_instance; } EventData;
static EventSet event_sets[MAX_SETS];
static int newest_xid(void) {
    int newest = 0;
    for (int i = 0; i < S.num_xids; i++)
        if (S.xid[i].serial > newest) newest = S.xid[i].serial;
    return newest;
}
EXPORT nvmlEventSetCreate(EventSet **set) {
    ENTER(-1);
    for (int i = 0; i < MAX_SETS; i++)
        if (!event_sets[i].used) {
            event_sets[i] = (EventSet){.used = 1};
            *set = &event_sets[i];
            return OK;
        }
    return 999;
}
EXPORT nvmlEventSetFree(EventSet *set) { set->used = 0; return OK; }
EXPORT nvmlDeviceGetSupportedEventTypes(void *d, u64 *types) { DEVICE(d); *types = 0x1f; return OK; }
EXPORT nvmlDeviceRegisterEvents(void *d, u64 types, EventSet *set) {
    DEVICE(d);
    if (!set || !set->used || !(types & 8)) return INVALID;
    set->times[index_]++;
    set->seen[index_] = newest_xid();
    return OK;
}
EXPORT nvmlEventSetWait_v2(EventSet *set, EventData *event, uint timeout_ms) {
    ENTER(-1);
    if (!set || !set->used) return INVALID;
    if (set->left > 0) set->left--;
    else {
        int found = -1;
        for (int i = 0; i < S.num_xids && found < 0; i++)
            if (set->times[S.xid[i].gpu] && S.xid[i].serial > set->seen[S.xid[i].gpu]) found = i;
        if (found < 0) { usleep(timeout_ms * 1000); return TIMEOUT; }
        set->last = found;
        set->seen[S.xid[found].gpu] = S.xid[found].serial;
        set->left = set->times[S.xid[found].gpu] - 1;
    }
    *event = (EventData){&S.gpu[S.xid[set->last].gpu], 8, S.xid[set->last].number, ~0u, ~0u};
    return OK;
}
