/* LAB STAND-IN for Pyxis: a SPANK plug-in with --container-image=FILE.sqsh and --container-mounts=SRC:DST[:FLAGS][,...].
   Each task really runs in the image: the squashfs is mounted in a mount namespace of the task's own, under a
   writable layer in memory, and becomes its root. Nothing stays behind: mounts and loop device end with the task.
   An image that is no path is asked of the program behind importer= in plugstack.conf, as Pyxis 0.24 does (importer.c):
   as the job's user, `get docker://IMAGE`, the first line of its output is the file; `release` afterwards.
   It knows neither Enroot nor names of containers.
   -DBUILT_FOR=0x190500 makes the same plug-in say that it was built for another Slurm (25.05.0). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef BUILT_FOR
#undef SLURM_VERSION_NUMBER
#define SLURM_VERSION_NUMBER BUILT_FOR
#endif
SPANK_PLUGIN(pyxis, 1)

#define SAY(...) slurm_error("pyxis (LAB STAND-IN): " __VA_ARGS__)
#define PLACE "/run/pyxis-stand-in"

static char image[4096], mounts[4096], importer[4096];

static int take(int which, const char *value, int remote)
{
    (void)remote;
    if (snprintf(which ? mounts : image, sizeof image, "%s", value) >= (int)sizeof image) {
        SAY("option too long");
        return -1;
    }
    return 0;
}

static struct spank_option options[] = {
    {"container-image", "FILE.sqsh|IMAGE", "[pyxis] LAB STAND-IN: run the tasks in this squashfs", 1, 0, take},
    {"container-mounts", "SRC:DST[:FLAGS][,...]", "[pyxis] LAB STAND-IN: bind mounts", 1, 1, take},
    SPANK_OPTIONS_TABLE_END};

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    for (int i = 0; i < ac; i++)
        if (!strncmp(av[i], "importer=", 9))
            snprintf(importer, sizeof importer, "%s", av[i] + 9);
    if (spank_context() != S_CTX_LOCAL && spank_context() != S_CTX_REMOTE && spank_context() != S_CTX_ALLOCATOR)
        return 0;
    for (struct spank_option *o = options; o->name; o++)
        if (spank_option_register(sp, o) != ESPANK_SUCCESS)
            return -1;
    return 0;
}

static int directory(const char *path)
{
    char part[4096];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = part + 1;; slash++)
        if (*slash == '/' || !*slash) {
            char last = *slash;
            *slash = 0;
            if (mkdir(part, 0755) && errno != EEXIST)
                return -1;
            if (!last)
                return 0;
            *slash = last;
        }
}

/* A free loop device on a file; the node is made here, since a host of the lab has none. It goes when it is unused. */
static int attach(const char *file, char *device, size_t size)
{
    struct loop_config config = {.info = {.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR}};
    int control, loop, backing = open(file, O_RDONLY | O_CLOEXEC);
    if (backing < 0)
        return -1;
    mknod("/dev/loop-control", S_IFCHR | 0600, makedev(10, 237));
    if ((control = open("/dev/loop-control", O_RDWR | O_CLOEXEC)) < 0)
        return -1;
    config.fd = backing;
    for (int attempt = 0; attempt < 64; attempt++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0)
            return -1;
        snprintf(device, size, PLACE "/loop%d", number);
        mknod(device, S_IFBLK | 0600, makedev(7, number));
        if ((loop = open(device, O_RDONLY | O_CLOEXEC)) < 0)
            return -1;
        if (!ioctl(loop, LOOP_CONFIGURE, &config)) {
            close(backing);
            close(control);
            return loop;
        }
        close(loop); /* another task was quicker: the next free one */
    }
    return -1;
}

static int bind_mounts(const char *root)
{
    char *rest = mounts, *one;
    while ((one = strsep(&rest, ","))) {
        char target[8192], *source = strsep(&one, ":"), *place = one ? strsep(&one, ":") : source;
        struct stat about;
        if (!*source)
            continue;
        if (stat(source, &about)) {
            SAY("couldn't mount %s: %s", source, strerror(errno));
            return -1;
        }
        snprintf(target, sizeof target, "%s%s", root, place);
        if (S_ISDIR(about.st_mode)) {
            if (directory(target))
                return -1;
        } else {
            char *slash = strrchr(target, '/');
            *slash = 0;
            directory(target);
            *slash = '/';
            int made = open(target, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
            if (made >= 0)
                close(made);
        }
        if (mount(source, target, NULL, MS_BIND | MS_REC, NULL) ||
            (one && strstr(one, "ro") && mount(NULL, target, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL))) {
            SAY("couldn't mount %s: %s", source, strerror(errno));
            return -1;
        }
    }
    return 0;
}

/* What the importer prints first; its complaints go to the job's own output. */
static int ask_importer(spank_t sp, const char *verb, const char *uri, char *said, size_t size)
{
    uid_t uid;
    gid_t gid;
    int ends[2], status;
    if (spank_get_item(sp, S_JOB_UID, &uid) || spank_get_item(sp, S_JOB_GID, &gid) || pipe(ends))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        if (setregid(gid, gid) || setreuid(uid, uid))
            _exit(127);
        execl(importer, importer, verb, uri, NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    if (!output || !fgets(said, size, output))
        said[0] = 0;
    said[strcspn(said, "\n")] = 0;
    if (output)
        fclose(output);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
        return -1;
    return 0;
}

/* The file of an image that is named and not pointed at. */
static int fetch(spank_t sp)
{
    char uri[4200], file[4096], nothing[64];
    if (!importer[0]) {
        SAY("%s: no importer in plugstack.conf, and this stand-in imports nothing itself", image);
        return -1;
    }
    snprintf(uri, sizeof uri, "%s%s", strncmp(image, "docker://", 9) ? "docker://" : "", image);
    int got = ask_importer(sp, "get", uri, file, sizeof file);
    ask_importer(sp, "release", NULL, nothing, sizeof nothing);
    if (got || !file[0]) {
        SAY("failed to import docker image: %s (importer: %s)", image, importer);
        return -1;
    }
    snprintf(image, sizeof image, "%s", file);
    return 0;
}

int slurm_spank_task_init_privileged(spank_t sp, int ac, char **av) /* as root, in the task's own process */
{
    static const char *shared[] = {"/dev", "/proc", "/sys", NULL};
    char device[64], lower[64], root[64], target[128];
    int loop;
    (void)ac;
    (void)av;
    if (!image[0])
        return 0;
    if (!strchr("./", image[0]) && fetch(sp))
        return -1;
    if (access(image, R_OK)) {
        SAY("%s: %s", image, strerror(errno));
        return -1;
    }
    snprintf(lower, sizeof lower, PLACE "/lower");
    snprintf(root, sizeof root, PLACE "/root");
    if (directory(PLACE) || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", PLACE, "tmpfs", 0, "mode=0755")) {
        SAY("no namespace of its own: %s", strerror(errno));
        return -1;
    }
    if (directory(lower) || directory(root) || directory(PLACE "/upper") || directory(PLACE "/work"))
        return -1;
    if ((loop = attach(image, device, sizeof device)) < 0) {
        SAY("no loop device for %s: %s", image, strerror(errno));
        return -1;
    }
    if (mount(device, lower, "squashfs", MS_RDONLY | MS_NODEV, NULL)) {
        SAY("%s is no squashfs: %s", image, strerror(errno));
        return -1;
    }
    close(loop);
    if (mount("overlay", root, "overlay", 0,
              "lowerdir=" PLACE "/lower,upperdir=" PLACE "/upper,workdir=" PLACE "/work")) {
        SAY("no writable layer: %s", strerror(errno));
        return -1;
    }
    for (int i = 0; shared[i]; i++) {
        snprintf(target, sizeof target, "%s%s", root, shared[i]);
        if (directory(target) || mount(shared[i], target, NULL, MS_BIND | MS_REC, NULL)) {
            SAY("%s: %s", shared[i], strerror(errno));
            return -1;
        }
    }
    if (bind_mounts(root))
        return -1;
    if (chroot(root) || chdir("/")) {
        SAY("%s: %s", root, strerror(errno));
        return -1;
    }
    return 0;
}
